// The offline stage of party 1 of three on processes that mpirun has started: all machines of the
// party run this program.
//
//   offline_over_mpi DIR ONIONS once      writes DIR/list-RANK and DIR/seeds-RANK, the machine's
//                                         slices, so that joined in order they must not depend on
//                                         the number of machines
//   offline_over_mpi DIR ONIONS on        one round after the other, two at a time, until it ends
//                                         or is ended; makes DIR/began-RANK after the first one
//
// DIR/secret has the party's secret. Exit codes: those of shoald; 4 when a round has failed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/testing/test_random.h"
#include "src/machines/machines.h"
#include "src/machines/mpi/mpi_job.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/server/offline.h"
#include "src/server/synthetic_round.h"
#include "src/server/testing/some_noise.h"
#include "src/storage/spool.h"

namespace shoal::server {
namespace {

constexpr uint32_t kParty = 1, kParties = 3;
constexpr uint64_t kEach = 5;  // onions in a submission

// Equal at all machines.
struct Practice {
  explicit Practice(size_t onions)
      : random(41),
        round({.parties = kParties, .max_rows = 150, .max_slots = 100'000, .noise = SomeNoise()},
              random),
        list(round.MakeInput(onions / kEach * kEach, kEach, random, pool).list) {}

  testing::TestRandom random;
  ThreadPool pool{2};
  const SyntheticRound round;
  const Bytes list;
};

absl::StatusOr<OfflineOutput> RunStage(Practice& practice, machines::Machines& machines,
                                       const std::string& directory) {
  const size_t record_bytes = kSubmissionLengthBytes + onion::SubmissionBytes(kParties, kEach);
  SpoolPlace spools(directory, uint64_t{1} << 30);
  const Resources resources = {.pool = &practice.pool, .spools = &spools, .machines = &machines};
  const RoundContext& context = practice.round.context(kParty);
  const RoundSecrets& secrets = practice.round.secrets(kParty);
  const machines::Run run =
      machines::RunOf(practice.list.size() / record_bytes, machines.rank(), machines.count());
  const BytesView mine =
      BytesView(practice.list).subspan(run.begin * record_bytes, run.size() * record_bytes);
  SHOAL_ASSIGN_OR_RETURN(NoiseBatch noise, MakeNoise(context, secrets, resources));
  SHOAL_ASSIGN_OR_RETURN(
      OnionIntake intake,
      OnionIntake::BeginSubmissions(context, secrets, mine.size(), run.size() * kEach, resources));
  SHOAL_RETURN_IF_ERROR(intake.Take(mine));
  return RunOffline(context, ShuffleKeys(secrets), std::move(noise), std::move(intake), resources);
}

void Write(const std::string& path, BytesView bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

absl::Status RunRound(machines::MpiJob& job, uint32_t lane, BytesView secret, Practice& practice,
                      const std::string& directory, bool writes) {
  const SystemClock clock;
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<machines::Transport> transport, job.OpenLane(lane));
  const Digest round_id = {static_cast<uint8_t>(lane), static_cast<uint8_t>(lane >> 8)};
  machines::Machines machines(transport.get(), machines::RoundKey(secret, round_id, job.id()),
                              &clock, &random, {});
  SHOAL_ASSIGN_OR_RETURN(OfflineOutput out, RunStage(practice, machines, directory));
  machines.Finish();
  if (!writes) return absl::OkStatus();
  SHOAL_ASSIGN_OR_RETURN(const Bytes list, ReadAll(out.onions));
  Write(absl::StrCat(directory, "/list-", job.rank()), list);
  Write(absl::StrCat(directory, "/seeds-", job.rank()), out.material.seeds);
  return absl::OkStatus();
}

absl::Status RunAll(const std::string& directory, size_t onions, bool once) {
  std::ifstream file(directory + "/secret", std::ios::binary);
  const Bytes secret(std::istreambuf_iterator<char>(file), {});
  if (secret.size() != 32) return absl::InvalidArgumentError("the secret has 32 bytes");
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<machines::MpiJob> job,
                         machines::MpiJob::Join(random));
  Practice practice(onions);
  if (once) {
    SHOAL_RETURN_IF_ERROR(RunRound(*job, 0, secret, practice, directory, true));
    return job->Leave();
  }
  const auto rounds = [&](uint32_t first) -> absl::Status {
    Practice own(onions);
    for (uint32_t lane = first;; lane += 2) {
      SHOAL_RETURN_IF_ERROR(RunRound(*job, lane, secret, own, directory, false));
      Write(absl::StrCat(directory, "/began-", job->rank()), {});
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
  };
  absl::Status other;
  std::thread thread([&] { other = rounds(1); });
  const absl::Status status = rounds(0);
  thread.join();
  return status;
}

}  // namespace
}  // namespace shoal::server

int main(int argc, char** argv) {
  uint64_t onions = 0;
  const std::string how = argc == 4 ? argv[3] : "";
  if (!(how == "once" || how == "on") || !absl::SimpleAtoi(argv[2], &onions)) {
    std::fprintf(stderr, "usage: offline_over_mpi DIR ONIONS once|on\n");
    return 2;
  }
  const absl::Status status = shoal::server::RunAll(argv[1], onions, how == "once");
  if (status.ok()) return 0;
  std::fprintf(stderr, "offline_over_mpi: %s\n", status.ToString().c_str());
  shoal::machines::MpiJob::Die(absl::IsDataLoss(status) ? 3 : 4);
}
