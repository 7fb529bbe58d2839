#include "src/pir/sets/tree_server.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/pir/kit/table_server.h"
#include "src/pir/pages.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/sets/tree_pir.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {
namespace {

class TreeServer final : public PairServer {
 public:
  TreeServer(wire::PirSetup setup, const TreeSetup& parsed, PageBuffer table,
             std::unique_ptr<rlwe::SmallServer> reader, const ServerOptions& options)
      : PairServer(std::move(setup),
                   {.query = parsed.shape.query_bytes() + parsed.reader_query_bytes,
                    .hints = kTreeSeedBytes + sizeof(uint32_t),
                    .client = parsed.shape.parity_bytes()},
                   std::move(table), options),
        shape_(parsed.shape),
        reader_query_bytes_(parsed.reader_query_bytes),
        reader_(std::move(reader)) {}

  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override {
    std::vector<absl::StatusOr<Bytes>> answers = PairServer::Answer(role, requests);
    if (reader_ == nullptr) return answers;
    // One after the other, each on all threads.
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!answers[i].ok() || requests[i].kind != kTreeQuery) continue;
      answers[i] = Read(*answers[i], requests[i].body.last(reader_query_bytes_));
    }
    return answers;
  }

 protected:
  absl::StatusOr<Bytes> MakeHints(BytesView body) const override {
    const SecretArray<kTreeSeedBytes> seed(body.first(kTreeSeedBytes));
    const auto first = LoadLe<uint32_t>(body.data() + kTreeSeedBytes);
    if (first >= shape_.hints) {
      return absl::InvalidArgumentError(
          absl::StrCat("treepir: hints from ", first, " on, of ", shape_.hints));
    }
    const uint64_t count = std::min(TreeHintsOf(shape_), shape_.hints - first);
    Bytes parities(count * shape_.record_bytes);
    if (!MakeTreeParities(shape_, table(), seed, first, parities, heavy_pool(), stop_heavy())) {
      return Stopped();
    }
    return parities;
  }

  // The reader's part is behind the query.
  absl::StatusOr<Bytes> AnswerQuery(BytesView body) const override {
    std::vector<uint32_t> offsets(shape_.query_offsets());
    SHOAL_RETURN_IF_ERROR(ExpandTreeQuery(shape_, body.first(shape_.query_bytes()), offsets));
    Bytes answer(shape_.answer_bytes());
    AnswerTreeQuery(shape_, table(), offsets, answer);
    return answer;
  }

 private:
  // What a query of Small PIR says to the answer of a tree.
  absl::StatusOr<Bytes> Read(BytesView answer, BytesView query) const {
    const uint32_t record = shape_.record_bytes;
    const RequestView request = {.kind = 0, .count = 1, .body = query};
    const MutexLock lock(reader_mutex_);
    Content content;
    content.rows = shape_.chunks;
    content.record_bytes = record;
    content.copy = [&](uint64_t chunk, MutableBytes out) {
      std::ranges::copy(answer.subspan(chunk * record, record), out.begin());
    };
    reader_->Replace(content);
    return std::move(reader_->Answer(Role::kSingle, std::span(&request, 1))[0]);
  }

  const TreeShape shape_;
  const uint64_t reader_query_bytes_;
  // Of the answer to one query at a time, or null. The pointer does not change.
  mutable Mutex reader_mutex_;
  const std::unique_ptr<rlwe::SmallServer> reader_ ABSL_PT_GUARDED_BY(reader_mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> CreateTreeServer(wire::PirSetup setup,
                                                         const Content& content,
                                                         const ServerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const TreeSetup parsed, ParseTreeSetup(setup));
  const TreeShape& shape = parsed.shape;
  SHOAL_ASSIGN_OR_RETURN(PageBuffer table,
                         AllocatePages(shape.table_bytes(), "the rows of treepir"));
  // Zeros stay behind the rows.
  PairServer::LoadRows(content, options, table);
  std::unique_ptr<rlwe::SmallServer> reader;
  if (parsed.reader.has_value()) {
    Content zeros;
    zeros.rows = shape.chunks;
    zeros.record_bytes = shape.record_bytes;
    zeros.copy = [](uint64_t, MutableBytes out) { std::ranges::fill(out, uint8_t{0}); };
    SHOAL_ASSIGN_OR_RETURN(
        reader, rlwe::SmallServer::Create(zeros, *parsed.reader, {.pool = options.pool}));
  }
  return std::make_unique<TreeServer>(std::move(setup), parsed, std::move(table), std::move(reader),
                                      options);
}

}  // namespace shoal::pir::sets
