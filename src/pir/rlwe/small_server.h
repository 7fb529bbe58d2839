// The server of Small PIR (docs/small-pir.md; "Lower Communication Stateless RLWE PIR", sections 3
// and 4).
//
//   set-up   the table's ring elements in the domain of the transforms; of the public parts of
//            queries: their digits at every automorphism, and their product with the table
//   answer   unpack      bodies of positions and values: inner products with those digits, which
//                        are read once for several queries
//            first stage sums over positions: one pass over the table for several queries
//            fold        2^folds sums become one, half of them by each bit of the place
//            switch      to 24 and 11 bits a coefficient
#ifndef SHOAL_SRC_PIR_RLWE_SMALL_SERVER_H_
#define SHOAL_SRC_PIR_RLWE_SMALL_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/parallel/mutex.h"
#include "src/pir/engine.h"
#include "src/pir/rlwe/ring_kernel.h"
#include "src/pir/rlwe/small_shape.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::rlwe {

class SmallServer final : public Server {
 public:
  ~SmallServer() override;
  // Of a setup that ParseSmallShape accepts. RESOURCE_EXHAUSTED, before anything is made, if there
  // is no memory for it. A null kernel is the fastest.
  static absl::StatusOr<std::unique_ptr<SmallServer>> Create(const Content& content,
                                                             const wire::PirSetup& setup,
                                                             const ServerOptions& options,
                                                             const RingKernel* kernel = nullptr);

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return kMaxQueriesPerRequest * shape_.query_bytes();
  }
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override;
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override;
  // Encodes the groups of changed rows, and adds what changed to the masks.
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override;

  // Makes this the server of other content with as many rows of the same size, under the setup that
  // it has: for tables that are made for one query. Costs the set-up without its public parts. Not
  // while answers are made.
  void Replace(const Content& content);

  // What an answer is before it is rounded: for each slice the coefficients of mask and body. For
  // tests of errors. As Answer.
  absl::StatusOr<std::vector<uint32_t>> Unrounded(BytesView query) const;

  // Processor seconds of answering, for benchmarks and plans.
  struct Phases {
    double unpack = 0, first_stage = 0, fold = 0;
  };
  // Answers at most SmallShape::kTogether queries in one pass. Errors as Answer.
  absl::StatusOr<Phases> Measure(std::span<const BytesView> queries) const;

 private:
  struct Room;
  class Loan;
  SmallServer(const wire::PirSetup& setup, const SmallShape& shape, const ServerOptions& options,
              const RingKernel& kernel);

  // On the pool's threads: body of every number below n, or of ranges of them.
  void For(size_t n, const std::function<void(size_t)>& body) const;
  void ForRanges(size_t n, const std::function<void(size_t, size_t)>& body) const;
  void MakePublicParts();
  void Encode(const Content& content, const std::function<void(uint64_t, uint64_t)>& progress);
  // The ring elements of `count` groups, [group][slice], transformed.
  void EncodeGroups(const Content& content, uint64_t first, uint64_t count,
                    std::vector<uint32_t>& out) const;
  // Where the words of a block of a ring element are in the table.
  uint32_t* Place(uint64_t slice, uint32_t k, uint64_t block, uint64_t group);
  void MakeMasks();
  // sums[v][slice][output] of the table with `count` vectors, transformed back to coefficients.
  void FirstStage(std::span<const uint32_t* const> vectors, std::span<uint32_t* const> sums) const;
  absl::Status ReadElements(BytesView query, Room& room) const;
  void Unpack(std::span<const Loan> rooms) const;
  // The first sum and mask of each slice become what the query chooses among all.
  void Fold(Room& room) const;
  Bytes Round(const Room& room) const;
  Phases AnswerTogether(std::span<const Loan> rooms, std::span<Bytes> out) const;

  wire::PirSetup setup_;
  Digest id_;
  const SmallShape shape_;
  ThreadPool* const pool_;
  const RingKernel& kernel_;
  // Working memory that earlier answers have left.
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<Room>> rooms_ ABSL_GUARDED_BY(mutex_);

  // [slice][prime][block][tile of outputs][term][row of the tile][word]
  PageBuffer table_;
  // [packed element][prime][orbit][automorphism][digit][place], automorphisms in UnpackTree's order
  PageBuffer digits_;
  std::vector<uint64_t> first_automorphism_;  // of each packed element
  std::vector<uint32_t> position_masks_;      // laid out as the kernel's vectors
  std::vector<uint32_t> value_masks_;         // [value]: of its encryption
  std::vector<uint32_t> value_digits_;        // [value][digit]: of that mask, for the square's key
  std::vector<uint32_t> product_masks_;       // [value]: of the mask, under the square's key
  std::vector<uint32_t> masks_;               // [slice][output]: coefficients of the sums' masks
};

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_SMALL_SERVER_H_
