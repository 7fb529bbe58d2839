#include "src/plan/calibrate.h"

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/content_mac.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/permutation.h"
#include "src/wire/query_batch.h"
#include "src/wire/text.h"

namespace shoal::plan {
namespace {

double CpuNs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Processor time of `body`, the least of some runs: what else runs here can only add to it.
template <typename Body>
double Measure(const Body& body) {
  double least = 1e300;
  for (int run = 0; run < 5; ++run) {
    const double start = CpuNs();
    body();
    least = std::min(least, CpuNs() - start);
  }
  return least;
}

constexpr size_t kChunk = 1024;

double BuildNs(size_t n, const std::vector<onion::Recipient>& all, size_t layers,
               RandomSource& random, ThreadPool& pool, Bytes& onions) {
  const std::vector<onion::Recipient> recipients(all.begin(), all.begin() + layers);
  Bytes seeds(n * layers * 32), ephemeral(n * layers * 32);
  random.Fill(seeds);
  random.Fill(ephemeral);
  const size_t bytes = onion::OnionBytes(layers);
  onions.resize(n * bytes);
  return Measure([&] {
           pool.ParallelFor(n, kChunk, [&](size_t begin, size_t end) {
             const size_t k = end - begin;
             onion::BuildOnions(
                 {}, recipients, BytesView(seeds).subspan(begin * layers * 32, k * layers * 32),
                 BytesView(ephemeral).subspan(begin * layers * 32, k * layers * 32),
                 MutableBytes(onions).subspan(begin * bytes, k * bytes));
           });
         }) /
         static_cast<double>(n);
}

double PeelNs(size_t n, const onion::KeyPair& key, size_t layers, const Bytes& onions,
              ThreadPool& pool) {
  const size_t bytes = onion::OnionBytes(layers), inner_bytes = onion::OnionBytes(layers - 1);
  Bytes seeds(n * 32), inner(n * inner_bytes);
  std::vector<uint8_t> valid(n);
  const double ns = Measure([&] {
    pool.ParallelFor(n, kChunk, [&](size_t begin, size_t end) {
      const size_t k = end - begin;
      onion::PeelOnions(key, {}, layers, BytesView(onions).subspan(begin * bytes, k * bytes),
                        MutableBytes(seeds).subspan(begin * 32, k * 32),
                        MutableBytes(inner).subspan(begin * inner_bytes, k * inner_bytes),
                        std::span<uint8_t>(valid).subspan(begin, k));
    });
  });
  SHOAL_CHECK(std::all_of(valid.begin(), valid.end(), [](uint8_t v) { return v == 1; }));
  return ns / static_cast<double>(n);
}

void MeasureOnions(size_t n, RandomSource& random, ThreadPool& pool, UnitCosts& costs) {
  constexpr size_t kFew = 1, kMany = 5;
  std::vector<onion::Recipient> recipients;
  Seed secret = random.NewSeed();
  const onion::KeyPair key = onion::KeyPairFromSecret(secret.view());
  for (size_t i = 0; i < kMany; ++i) {
    recipients.push_back(*onion::Recipient::Create(key.public_key));
  }
  Bytes few, many;
  const double build_few = BuildNs(n, recipients, kFew, random, pool, few);
  const double build_many = BuildNs(n / 2, recipients, kMany, random, pool, many);
  const double open_few = PeelNs(n, key, kFew, few, pool);
  const double open_many = PeelNs(n / 2, key, kMany, many, pool);
  constexpr double kFewBytes = onion::OnionBytes(kFew) - onion::kSealBytes;
  constexpr double kManyBytes = onion::OnionBytes(kMany) - onion::kSealBytes;
  const double byte = std::max(0.01, (open_many - open_few) / (kManyBytes - kFewBytes));
  costs.set_box_byte_ns(byte);
  costs.set_open_ns(open_few - byte * kFewBytes);
  double bytes_of_all = kFewBytes;
  for (size_t l = 1; l <= kMany; ++l) bytes_of_all += onion::OnionBytes(l) - onion::kSealBytes;
  // All the layers of both, without what their bytes cost.
  costs.set_seal_ns((build_few + build_many - byte * bytes_of_all) / (kFew + kMany));
}

void MeasureShuffle(size_t n, RandomSource& random, ThreadPool& pool, UnitCosts& costs) {
  struct Print {
    uint64_t value;
    uint32_t position;
    bool operator<(const Print& other) const { return value < other.value; }
  };
  Bytes seeds(32 * n);
  random.Fill(seeds);
  const Seed key = random.NewSeed();
  std::vector<Print> prints(n);
  PageArray<uint32_t> place;
  const double place_ns = Measure([&] {
    for (size_t i = 0; i < n; ++i) {
      uint8_t print[8];
      crypto_shorthash(print, seeds.data() + 32 * i, 32, key.view().data());
      prints[i] = {LoadLe<uint64_t>(print), static_cast<uint32_t>(i)};
    }
    std::sort(prints.begin(), prints.end());
    place = *shuffle::RandomPermutation(n, key.view(), pool);
  });
  costs.set_place_ns(place_ns / static_cast<double>(n));
  constexpr size_t kItem = 2 * onion::kLayerBytes;
  Bytes from(n * kItem);
  const double gather = Measure([&] {
    Bytes to(n * kItem);  // fresh memory, as in a round
    for (size_t i = 0; i < n; ++i) {
      std::copy_n(from.data() + i * kItem, kItem, to.data() + place[i] * kItem);
    }
  });
  costs.set_gather_byte_ns(gather / static_cast<double>(n * kItem));
}

noise::Distribution SomeNoise() {
  return *noise::Distribution::Create({.mechanism = noise::Mechanism::kGeometric,
                                       .epsilon = 1,
                                       .delta = 1e-6,
                                       .phi = 1,
                                       .mode = 15,
                                       .left_scale = 1.25,
                                       .right_scale = 5});
}

// Reads all of a source, as a sender does.
void Exhaust(ByteSource& source) {
  while (!source.Next()->empty()) {
  }
}

// A round's online stage over n positions of a state that is made up: its cost depends on no value.
void MeasureOnline(size_t n, RandomSource& random, ThreadPool& pool, UnitCosts& costs) {
  const double dn = static_cast<double>(n);
  SpoolPlace spools("/tmp", uint64_t{1} << 40);  // in memory
  const server::Resources resources = {.pool = &pool, .spools = &spools};
  const server::RoundSecrets secrets(random.NewSeed());
  const onion::KeyPair key = onion::KeyPairFromSecret(random.NewSeed().view());
  server::RoundContext context{.counter = RoundCounter(1),
                               .round_id = {},
                               .party = PartyNumber(1),
                               .parties = 2,
                               .answer_bytes = 0,
                               .max_rows = 1,
                               .max_slots = static_cast<uint32_t>(2 * n),
                               .noise = SomeNoise(),
                               .next_recipients = {*onion::Recipient::Create(key.public_key)}};
  wire::QueryBatch queries;
  queries.positions.resize(n);
  std::iota(queries.positions.begin(), queries.positions.end(), 0u);
  queries.tallies.assign(n, 12345);
  // Once without noise, once with as much as there are queries.
  const auto state_of = [&](size_t noise) {
    server::RoundState state;
    state.positions = static_cast<uint32_t>(n);
    state.next_positions = static_cast<uint32_t>(n + noise);
    constexpr auto kSecret = PageBuffer::Content::kSecret;
    state.seeds = *PageBuffer::Create(32 * n, kSecret);
    random.Fill(state.seeds);
    const Seed shuffle_key = random.NewSeed();
    const PageArray<uint32_t> place =
        *shuffle::RandomPermutation(n + noise, shuffle_key.view(), pool);
    state.target = *PageArray<uint32_t>::Create(n, kSecret);
    std::copy_n(place.begin(), n, state.target.begin());
    for (size_t k = 0; k < noise; ++k) state.noise.push_back({place[n + k], 1});
    SHOAL_CHECK(MakeReady(context, resources, state).ok());
    return state;
  };
  server::Forwarding forwarding;
  const auto forward = [&](const server::RoundState& state) {
    const Bytes encoded = wire::EncodeQueryBatch(queries, state.positions);
    return Measure([&] {
             const wire::QueryBatch in = *wire::DecodeQueryBatch(encoded, state.positions);
             forwarding = *ForwardQueries(context, state, in, pool);
             (void)wire::EncodeQueryBatch(forwarding.queries, state.next_positions);
           }) / dn;
  };
  server::RoundState noisy = state_of(n), plain = state_of(0);
  const double with_noise = forward(noisy);
  costs.set_forward_ns(forward(plain));
  costs.set_forward_noise_ns(std::max(1.0, with_noise - costs.forward_ns()));

  server::RoundContext backend = context;
  backend.party = PartyNumber(2);
  backend.next_recipients.clear();
  constexpr size_t kShort = 112, kLong = 1072;
  double answer[2], back[2];
  for (const size_t bytes : {kShort, kLong}) {
    const size_t k = bytes == kShort ? 0 : 1;
    backend.answer_bytes = context.answer_bytes = bytes;
    SHOAL_CHECK(MakeReady(context, resources, plain).ok());
    const uint64_t rows = 1000;
    const Bytes table(rows * bytes);
    answer[k] = Measure([&] {
                  Exhaust(**AnswerQueries(backend, secrets, plain, queries, {table, rows}, pool));
                }) / dn;
    const Bytes answers(n * bytes);
    back[k] = Measure([&] {
                server::AnswerIntake intake = *server::AnswerIntake::Begin(
                    context, queries, forwarding, answers.size(), resources);
                SHOAL_CHECK(intake.Take(answers).ok());
                Exhaust(**ReturnAnswers(context, secrets, plain, queries, std::move(intake),
                                        resources));
              }) / dn;
  }
  const auto line = [](const double (&at)[2], double& constant, double& slope) {
    slope = std::max(0.01, (at[1] - at[0]) / static_cast<double>(kLong - kShort));
    constant = std::max(1.0, at[0] - slope * static_cast<double>(kShort));
  };
  double constant = 0, slope = 0;
  line(answer, constant, slope);
  costs.set_answer_ns(constant);
  costs.set_answer_byte_ns(slope);
  line(back, constant, slope);
  costs.set_return_ns(constant);
  costs.set_return_byte_ns(slope);

  constexpr size_t kExpansions = 50'000;
  uint32_t sink = 0;
  costs.set_expand_ns(Measure([&] {
                        for (size_t i = 0; i < kExpansions; ++i) {
                          const sharing::QueryShare share =
                              sharing::Expand(plain.seed(static_cast<uint32_t>(i % n)), {}).share;
                          sink ^= sharing::FirstTally({&share, 1}, 1);
                        }
                      }) /
                      kExpansions);
  SHOAL_CHECK(sink < (1u << 31));
}

void MeasureBytes(size_t n, RandomSource& random, UnitCosts& costs) {
  Bytes bytes(n);
  random.Fill(std::span(bytes).first(std::min<size_t>(n, 1 << 16)));
  const ContentMac mac(random.NewSeed().view(), "shoal calibrate");
  costs.set_digest_byte_ns(Measure([&] {
                             ContentMac::Stream digest(mac);
                             digest.Update(bytes);
                             (void)digest.Finish();
                           }) /
                           static_cast<double>(n));
  // One end of a link: a TLS record's AES-256-GCM, and half of a local socket's two copies.
  constexpr size_t kRecord = 16384;
  double cipher = 1;
  if (crypto_aead_aes256gcm_is_available()) {
    const uint8_t key[crypto_aead_aes256gcm_KEYBYTES] = {}, nonce[12] = {};
    Bytes record(kRecord + crypto_aead_aes256gcm_ABYTES);
    cipher = Measure([&] {
               for (size_t at = 0; at + kRecord <= n; at += kRecord) {
                 crypto_aead_aes256gcm_encrypt(record.data(), nullptr, bytes.data() + at, kRecord,
                                               nullptr, 0, nullptr, nonce, key);
               }
             }) /
             static_cast<double>(n);
  }
  double copies = 0.5;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0) {
    Bytes record(kRecord);
    copies = Measure([&] {
               for (size_t at = 0; at + kRecord <= n; at += kRecord) {
                 if (write(ends[0], bytes.data() + at, kRecord) != kRecord) break;
                 for (size_t got = 0; got < kRecord;) {
                   const ssize_t more = read(ends[1], record.data(), kRecord - got);
                   if (more <= 0) return;
                   got += static_cast<size_t>(more);
                 }
               }
             }) /
             static_cast<double>(2 * n);
    close(ends[0]);
    close(ends[1]);
  }
  costs.set_link_byte_ns(cipher + copies);
}

std::string MachineName() {
  std::string model = "unknown processor", line;
  bool avx2 = false, ifma = false;
  std::ifstream info("/proc/cpuinfo");
  while (std::getline(info, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.rfind("model name", 0) == 0) model = line.substr(colon + 2);
    if (line.rfind("flags", 0) == 0) {
      avx2 = line.find(" avx2") != std::string::npos;
      ifma = line.find(" avx512ifma") != std::string::npos;
      break;
    }
  }
  return absl::StrCat(model, ", ", std::thread::hardware_concurrency(), " cores",
                      ifma ? ", AVX-512 IFMA" : avx2 ? ", AVX2" : "");
}

}  // namespace

UnitCosts Calibrate(RandomSource& random, ThreadPool& pool, double effort) {
  const auto size = [&](double full) {
    return std::max<size_t>(2048, static_cast<size_t>(full * effort));
  };
  UnitCosts costs;
  costs.set_machine(MachineName());
  MeasureOnions(size(16'384), random, pool, costs);
  MeasureShuffle(size(300'000), random, pool, costs);
  MeasureOnline(size(200'000), random, pool, costs);
  MeasureBytes(size(1 << 26), random, costs);
  return costs;
}

std::string DefaultCostsPath() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != 0) {
    return absl::StrCat(config, "/shoal/costs.textproto");
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == 0) return "";
  return absl::StrCat(home, "/.config/shoal/costs.textproto");
}

absl::StatusOr<UnitCosts> ReadCosts(const std::string& path) {
  UnitCosts costs;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, costs));
  const google::protobuf::Descriptor& fields = *UnitCosts::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *fields.field(i);
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) continue;
    const double value = UnitCosts::GetReflection()->GetDouble(costs, &field);
    if (!(value > 0 && value < 1e9)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", field.name(), " must be above 0 and below 1e9, got ", value));
    }
  }
  return costs;
}

}  // namespace shoal::plan
