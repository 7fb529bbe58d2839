// What lanes of Open MPI promise, on two machines or more, all of which run this program. Prints
// what is wrong; exit code 0 if nothing is.
//
//   check_lanes lanes      a lane whose chunks nobody takes delays no other lane, and one that ends
//                          ends no other
//   check_lanes idle S     machine 0 computes for S seconds; prints how much of a core the machines
//                          take meanwhile
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/machines/machines.h"
#include "src/machines/mpi/mpi_job.h"

namespace shoal::machines {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A lane and the machines over it.
class Round {
 public:
  Round(MpiJob& job, uint32_t number) : number_(number) {
    absl::StatusOr<std::unique_ptr<Transport>> lane = job.OpenLane(number);
    SHOAL_CHECK(lane.ok());
    lane_ = *std::move(lane);
    machines_.emplace(lane_.get(), RoundKey(Bytes(32, 1), {}, job.id()), &clock_, &random_,
                      Machines::Options());
  }
  Machines& machines() { return *machines_; }

  // Everybody sends everybody `bytes` bytes that say who and which lane.
  absl::Status Pass(uint64_t bytes) {
    std::vector<BytesSource> sources;
    std::vector<Machines::Outgoing> outgoing;
    sources.reserve(machines_->count());
    for (uint32_t to = 0; to < machines_->count(); ++to) {
      sources.emplace_back(Bytes(bytes, Mark(machines_->rank())));
      outgoing.push_back({&sources.back(), bytes});
    }
    std::vector<uint64_t> came(machines_->count());
    SHOAL_RETURN_IF_ERROR(
        machines_->Exchange("pass", outgoing, std::vector<uint64_t>(machines_->count(), bytes),
                            [&](uint32_t from, BytesView piece) {
                              for (const uint8_t byte : piece) {
                                if (byte != Mark(from))
                                  return absl::DataLossError("another lane's bytes");
                              }
                              came[from] += piece.size();
                              return absl::OkStatus();
                            }));
    for (uint32_t from = 0; from < machines_->count(); ++from) {
      if (from != machines_->rank() && came[from] != bytes)
        return absl::DataLossError("bytes lack");
    }
    return absl::OkStatus();
  }

 private:
  uint8_t Mark(uint32_t rank) const { return static_cast<uint8_t>(16 * number_ + rank); }

  const uint32_t number_;
  const SystemClock clock_;
  SystemRandom random_;
  std::unique_ptr<Transport> lane_;
  std::optional<Machines> machines_;
};

absl::Status CheckLanes(MpiJob& job) {
  // Machine 0 takes nothing on lane 1 until much has passed on lane 2.
  auto first = std::make_unique<Round>(job, 1);
  Round second(job, 2);
  absl::Status first_status;
  std::thread waiting;
  if (job.rank() != 0) waiting = std::thread([&] { first_status = first->Pass(8 * kMiB); });
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = second.Pass(kMiB);
  if (job.rank() == 0) first_status = first->Pass(8 * kMiB);
  if (waiting.joinable()) waiting.join();
  SHOAL_RETURN_IF_ERROR(status);
  SHOAL_RETURN_IF_ERROR(first_status);
  if (job.OpenLane(2).ok()) return absl::InternalError("a lane is open twice");

  // Machine 0 gives lane 3 up while the others send; lane 2 goes on.
  auto third = std::make_unique<Round>(job, 3);
  if (job.rank() == 0) {
    third->machines().GiveUp();
  } else if (third->Pass(8 * kMiB).code() != absl::StatusCode::kUnavailable) {
    return absl::InternalError("a lane that was given up did not end");
  }
  third.reset();
  SHOAL_RETURN_IF_ERROR(second.Pass(kMiB));
  first->machines().Finish();
  second.machines().Finish();
  return absl::OkStatus();
}

double CpuSeconds() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// Machine 0 computes for so long; the others wait for it.
absl::Status CheckIdle(MpiJob& job, std::chrono::seconds time) {
  Round round(job, 1);
  SHOAL_RETURN_IF_ERROR(round.Pass(kMiB));
  const double begun_cpu_s = CpuSeconds();
  const auto begun = std::chrono::steady_clock::now();
  if (job.rank() == 0) std::this_thread::sleep_for(time);
  const absl::Status status = round.Pass(1);
  const std::chrono::duration<double> took_s = std::chrono::steady_clock::now() - begun;
  std::printf("machine %u: %.2f %% of a core\n", job.rank(),
              100 * (CpuSeconds() - begun_cpu_s) / took_s.count());
  round.machines().Finish();
  return status;
}

absl::Status Check(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  uint32_t idle_s = 0;
  const bool idle = what == "idle" && argc == 3 && absl::SimpleAtoi(argv[2], &idle_s);
  if (!idle && what != "lanes") return absl::InvalidArgumentError("lanes, or idle SECONDS");

  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<MpiJob> job, MpiJob::Join(random));
  SHOAL_RETURN_IF_ERROR(idle ? CheckIdle(*job, std::chrono::seconds(idle_s)) : CheckLanes(*job));
  return job->Leave();
}

}  // namespace
}  // namespace shoal::machines

int main(int argc, char** argv) {
  const absl::Status status = shoal::machines::Check(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "check_lanes: %s\n", status.ToString().c_str());
  std::fflush(stdout);
  shoal::machines::MpiJob::Die(1);
}
