#include "src/pir/sets/single_pass_server.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/table_server.h"
#include "src/pir/pages.h"
#include "src/pir/sets/single_pass.h"
#include "src/storage/memory.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {
namespace {

class SinglePassServer final : public PairServer {
 public:
  SinglePassServer(wire::PirSetup setup, const SinglePassShape& shape, PageBuffer table,
                   const ServerOptions& options)
      : PairServer(std::move(setup),
                   {.query = shape.query_bytes(),
                    .hints = Seed::size() + sizeof(uint32_t),
                    .client = shape.parity_bytes()},
                   std::move(table), options),
        shape_(shape) {}

 protected:
  absl::StatusOr<Bytes> MakeHints(BytesView body) const override {
    const Seed seed(body.first(Seed::size()));
    const auto first = LoadLe<uint32_t>(body.data() + Seed::size());
    if (first >= shape_.chunk_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("permuted: parities from ", first, " on, of ", shape_.chunk_rows));
    }
    const uint32_t count = std::min(SinglePassPartOf(shape_), shape_.chunk_rows - first);
    const uint64_t bytes = shape_.record_bytes;
    SHOAL_RETURN_IF_ERROR(CheckMemory(sizeof(uint32_t) * shape_.places() + count * bytes,
                                      "permuted: the parities of one client"));
    Bytes parities(count * bytes);
    const ParityMaker maker(shape_, seed, heavy_pool(), stop_heavy());
    std::atomic<bool> made = true;
    const auto make = [&](size_t begin, size_t end) {
      if (!maker.Make(records(), first + static_cast<uint32_t>(begin),
                      MutableBytes(parities).subspan(begin * bytes, (end - begin) * bytes))) {
        made = false;
      }
    };
    constexpr size_t kTogether = 256;
    if (heavy_pool() == nullptr) {
      make(0, count);
    } else {
      heavy_pool()->ParallelFor(count, kTogether, make);
    }
    if (!made) return Stopped();
    return parities;
  }

  absl::StatusOr<Bytes> AnswerQuery(BytesView query) const override {
    Bytes answer(shape_.answer_bytes());
    SHOAL_RETURN_IF_ERROR(AnswerPermuted(shape_, records(), query, answer));
    return answer;
  }

 private:
  // The buffer may have more.
  BytesView records() const { return table().first(shape_.rows * shape_.record_bytes); }

  const SinglePassShape shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> CreatePermutedServer(wire::PirSetup setup,
                                                             const Content& content,
                                                             const ServerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const SinglePassShape shape, SinglePassShapeOf(setup));
  SHOAL_ASSIGN_OR_RETURN(PageBuffer table,
                         AllocatePages(shape.rows * shape.record_bytes, "the rows of permuted"));
  PairServer::LoadRows(content, options, table);
  return std::make_unique<SinglePassServer>(std::move(setup), shape, std::move(table), options);
}

}  // namespace shoal::pir::sets
