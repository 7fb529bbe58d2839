// shoald-machines: one machine of a party of several, in a job of Open MPI
// (scripts/party-machines).
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/cli/command.h"
#include "src/machines/mpi/mpi_job.h"
#include "src/machines/transport.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/program.h"
#include "src/storage/wiping_heap.h"

namespace shoal::shoald {
namespace {

class OverMpi final : public MachineJob {
 public:
  explicit OverMpi(std::unique_ptr<machines::MpiJob> job) : job_(std::move(job)) {}
  uint32_t rank() const override { return job_->rank(); }
  uint32_t count() const override { return job_->count(); }
  const Digest& id() const override { return job_->id(); }
  absl::StatusOr<std::unique_ptr<machines::Transport>> OpenLane(uint32_t number) override {
    return job_->OpenLane(number);
  }
  absl::Status Leave() override { return job_->Leave(); }

 private:
  const std::unique_ptr<machines::MpiJob> job_;
};

absl::StatusOr<std::unique_ptr<MachineJob>> Join(RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<machines::MpiJob> job, machines::MpiJob::Join(random));
  return std::make_unique<OverMpi>(std::move(job));
}

}  // namespace
}  // namespace shoal::shoald

int main(int argc, char** argv) {
  shoal::WipeWhatIsFreed();
  const int code =
      shoal::cli::MainOfOne(shoal::shoald::PartyCommand(shoal::shoald::Join), argc, argv);
  // A thread may be inside MPI, which main's end would take down beneath it.
  if (code != 0) shoal::machines::MpiJob::Die(code);
  return 0;
}
