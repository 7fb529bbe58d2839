// The server of `hintless` (docs/hintless.md).
//
//   set-up   the table as a matrix of bytes; rows of SimplePIR's hint under a ring's public parts,
//            by transforms; their packs, and nothing of the hint
//   answer   pass    the matrix times the words of several queries (src/pir/lwe/byte_matrix.h)
//            pack    inner products of each pack's digits with the queries' keys, read once for
//                    several queries
//            switch  to 11 bits a value, behind the pack's mask
#ifndef SHOAL_SRC_PIR_RLWE_HINTLESS_SERVER_H_
#define SHOAL_SRC_PIR_RLWE_HINTLESS_SERVER_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/rlwe/hintless_pack.h"
#include "src/pir/rlwe/hintless_shape.h"
#include "src/pir/rlwe/ring_kernel.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::rlwe {

class HintlessServer final : public Server {
 public:
  struct Kernels {
    const lwe::Kernel* pass = nullptr;  // null: the fastest
    const RingKernel* ring = nullptr;
    // The largest norms of packs that are taken; tests have others.
    PackNorms most = MaxPackNorms();
  };
  // Of a setup that ParseHintlessShape accepts. RESOURCE_EXHAUSTED, before anything is made, if
  // there is no memory for it. FAILED_PRECONDITION if a pack's norms are too large: then another
  // draw has to be tried.
  static absl::StatusOr<std::unique_ptr<HintlessServer>> Create(const Content& content,
                                                                const wire::PirSetup& setup,
                                                                const ServerOptions& options,
                                                                const Kernels& kernels);

  // The server of the first draw, from the setup's on, whose packs have norms that are taken.
  static absl::StatusOr<std::unique_ptr<HintlessServer>> CreateAtFirstDraw(
      const Content& content, wire::PirSetup setup, const ServerOptions& options,
      const Kernels& kernels);

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return kMaxQueriesPerRequest * shape_.query_bytes();
  }
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override;
  // The share of packs that have a changed row.
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override;
  // Makes these packs anew. INVALID_ARGUMENT also if their norms are too large; the server is as it
  // was then.
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override;

  // For each value, the norms of the parts that its error is made of, and the variance of the error
  // of the first stage. For tests of errors.
  struct Variances {
    std::vector<PackNorms> norms;
    std::vector<double> first_stage;
  };
  Variances VariancesOfErrors() const;
  // The values before they are rounded, modulo Q, of which the query's client has to take the mask.
  // As Answer. For tests of errors.
  absl::StatusOr<std::vector<uint64_t>> Unrounded(BytesView query) const;
  BytesView mask(size_t pack) const { return packs_[pack].mask; }

  // Processor seconds of answering, for benchmarks and plans.
  struct Phases {
    double pass = 0, pack = 0;
  };
  // Answers at most HintlessShape::kTogether queries together. Errors as Answer.
  absl::StatusOr<Phases> Measure(std::span<const BytesView> queries) const;

 private:
  struct Query;
  HintlessServer(const wire::PirSetup& setup, const HintlessShape& shape,
                 const ServerOptions& options, const Kernels& kernels);

  // Makes these packs. FAILED_PRECONDITION as Create; it takes no memory that is not there.
  absl::Status MakePacks(std::span<const size_t> packs,
                         const std::function<void(uint64_t, uint64_t)>& progress);
  uint32_t* digits(size_t pack) {
    return reinterpret_cast<uint32_t*>(digits_.data()) + pack * kPackDigitWords;
  }
  const uint32_t* digits(size_t pack) const {
    return reinterpret_cast<const uint32_t*>(digits_.data()) + pack * kPackDigitWords;
  }
  absl::StatusOr<Query> Read(BytesView query) const;
  // bodies[v][value]: modulo Q, of query v.
  absl::StatusOr<std::vector<std::vector<uint64_t>>> Bodies(std::span<const Query> queries,
                                                            Phases& phases) const;
  absl::StatusOr<std::vector<Bytes>> AnswerTogether(std::span<const Query> queries,
                                                    Phases& phases) const;
  // The packs with values of the rows, ascending.
  std::vector<size_t> PacksOf(std::span<const uint64_t> rows) const;

  wire::PirSetup setup_;
  wire::PirSetup matrix_setup_;
  Digest id_;
  const HintlessShape shape_;
  ThreadPool* const pool_;
  const lwe::Kernel& pass_kernel_;
  const RingKernel& kernel_;
  const PackNorms most_;
  const Packer packer_;
  // Of the columns' public parts, their images under X -> X^-1, transformed: [block][word].
  std::vector<uint32_t> columns_;
  std::optional<lwe::ByteMatrix> matrix_;
  std::vector<Packer::Made> packs_;
  PageBuffer digits_;  // [pack]
  // Kept, so that a refresh cannot fail for lack of memory when half of it is done.
  std::vector<Packer::Room> rooms_;
};

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_HINTLESS_SERVER_H_
