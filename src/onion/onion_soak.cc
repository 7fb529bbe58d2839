// The long tests: millions of random messages of every instruction set against the reference of
// testing/reference_hpke.h, then a timing test in the manner of dudect (Reparaz, Balasch,
// Verbauwhede 2017).
//
//   onion_soak [--boxes=1000000] [--timings=200000] [--seed=1]
//
// Boxes cost about 0.1 ms each, nearly all of it the reference's; timings 0.05 ms. Exits with 1 at
// the first difference (with what is needed to replay it) or if a timing depends on the secret.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/test_random.h"
#include "src/onion/dispatch.h"
#include "src/onion/hpke.h"
#include "src/onion/key_schedule.h"
#include "src/onion/testing/edge_points.h"
#include "src/onion/testing/reference_hpke.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::ReferenceHpke;
using ::shoal::testing::TestRandom;

struct Options {
  uint64_t boxes = 1000000;
  uint64_t timings = 200000;
  uint64_t seed = 1;
};

bool Same(const Bytes& expected, const Bytes& items, size_t i) {
  return std::equal(expected.begin(), expected.end(),
                    items.begin() + static_cast<ptrdiff_t>(i * expected.size()));
}

// Changes half of the boxes in some way.
void Spoil(RandomSource& random, const std::vector<PublicKey>& edges, size_t box_bytes,
           MutableBytes boxes) {
  for (; !boxes.empty(); boxes = boxes.subspan(box_bytes)) {
    uint8_t* const box = boxes.data();
    const PublicKey& edge = edges[random.Below(edges.size())];
    switch (random.Below(6)) {
      case 0:
        box[random.Below(box_bytes)] ^= static_cast<uint8_t>(1 << random.Below(8));
        break;
      case 1:
        std::copy(edge.begin(), edge.end(), box);
        break;
      case 2:
        random.Fill({box, box_bytes});
        break;
      default:
        break;
    }
  }
}

// Seals one batch for a recipient that may be an edge point, spoils some boxes and opens all; with
// the export-only suite the boxes are encs alone. Returns false if anything differs from the
// reference.
bool CompareBatch(RandomSource& random, const std::vector<PublicKey>& edges,
                  const std::vector<PublicKey>& scalars) {
  const bool seals = random.Below(2) == 0;
  const Aead aead = seals ? Aead::kChaCha20Poly1305 : Aead::kExportOnly;
  const size_t n = 1 + random.Below(2 * kKernelBatch), bytes = seals ? random.Below(200) : 0;
  const size_t box_bytes = seals ? bytes + kSealBytes : kEncBytes;
  Seed secret = random.NewSeed();
  const KeyPair key = KeyPairFromSecret(secret.view());
  PublicKey point = key.public_key;
  const bool strange = random.Below(8) == 0;
  if (strange) point = edges[random.Below(edges.size())];
  Bytes secrets(n * 32), messages(n * bytes), boxes(n * box_bytes), exports(n * 32);
  Bytes info_bytes(random.Below(100)), context(random.Below(kMaxExporterContext + 1));
  for (Bytes* drawn : {&secrets, &messages, &info_bytes, &context}) random.Fill(*drawn);
  if (random.Below(8) == 0) {
    const PublicKey& scalar = scalars[random.Below(scalars.size())];
    std::copy(scalar.begin(), scalar.end(), secrets.begin());
  }
  const Info info(aead, info_bytes);
  const absl::StatusOr<Recipient> recipient = Recipient::Create(point);
  const MutableItems boxes_out = {boxes.data(), box_bytes, box_bytes};
  const MutableItems exports_out = {exports.data(), 32, 32};
  if (recipient.ok() && seals) {
    SealBatch(*recipient, info, AsText(context), {secrets.data(), 32, 32},
              {messages.data(), bytes, bytes}, boxes_out, exports_out, n);
  } else if (recipient.ok()) {
    ExportBatch(*recipient, info, AsText(context), {secrets.data(), 32, 32}, boxes_out, exports_out,
                n);
  }
  for (size_t i = 0; i < n; ++i) {
    const auto reference =
        ReferenceHpke::Sender(aead, info_bytes, point, BytesView(secrets).subspan(i * 32, 32));
    if (reference.has_value() != recipient.ok()) return false;
    if (!reference) continue;
    Bytes box = ToBytes(reference->enc());
    if (seals) Append(box, reference->Seal(BytesView(messages).subspan(i * bytes, bytes)));
    if (!Same(box, boxes, i) || !Same(reference->Export(context), exports, i)) return false;
  }
  if (strange) return true;

  Spoil(random, edges, box_bytes, boxes);
  Bytes opened(n * bytes), ok(n);
  const Items boxes_in = {boxes.data(), box_bytes, box_bytes};
  if (seals) {
    OpenBatch(key, info, AsText(context), boxes_in, {opened.data(), bytes, bytes}, exports_out, ok);
  } else {
    DecapsulateBatch(key, info, AsText(context), boxes_in, exports_out, ok);
  }
  for (size_t i = 0; i < n; ++i) {
    const BytesView box = BytesView(boxes).subspan(i * box_bytes, box_bytes);
    const auto reference = ReferenceHpke::Receiver(aead, info_bytes, key, box.first(kEncBytes));
    std::optional<Bytes> message;
    if (reference) message = seals ? reference->Open(box.subspan(kEncBytes)) : Bytes();
    if ((ok[i] == 1) != message.has_value()) return false;
    if (!Same(message.value_or(Bytes(bytes, 0)), opened, i)) return false;
    if (!Same(message ? reference->Export(context) : Bytes(32, 0), exports, i)) return false;
  }
  return true;
}

bool CompareBoxes(InstructionSet set, const Options& options) {
  UseInstructionSet(set);
  TestRandom random(options.seed);
  const std::vector<PublicKey> edges = testing::EdgePoints(), scalars = testing::EdgeScalars();
  const uint64_t batches = options.boxes / kKernelBatch + 1;
  for (uint64_t batch = 0; batch < batches; ++batch) {
    if (!CompareBatch(random, edges, scalars)) {
      std::printf("%s: DIFFERS from the reference in batch %llu of --seed=%llu\n",
                  std::string(NameOf(set)).c_str(), static_cast<unsigned long long>(batch),
                  static_cast<unsigned long long>(options.seed));
      return false;
    }
  }
  std::printf("%s: about %llu boxes sealed and opened as the reference does\n",
              std::string(NameOf(set)).c_str(),
              static_cast<unsigned long long>(batches * kKernelBatch));
  return true;
}

// Running mean and variance (Welford).
struct Statistics {
  double n = 0, mean = 0, sum = 0;
  void Add(double x) {
    n += 1;
    const double delta = x - mean;
    mean += delta / n;
    sum += delta * (x - mean);
  }
  double VarianceOfMean() const { return sum / (n - 1) / n; }
};

double WelchT(const Statistics& a, const Statistics& b) {
  return (a.mean - b.mean) / std::sqrt(a.VarianceOfMean() + b.VarianceOfMean());
}

// Times `run` with fixed and with random scalars, in random order, and returns the largest |t| over
// several cuts of the slow tail, which interrupts cause.
template <typename Run>
double LargestT(uint64_t timings, const PublicKey& fixed, RandomSource& random, const Run& run) {
  constexpr size_t kScalars = 8;
  struct Timing {
    double time;
    bool is_random;
  };
  std::vector<Timing> measured(timings);
  Bytes scalars(kScalars * 32);
  for (Timing& timing : measured) {
    timing.is_random = random.Below(2) == 1;
    // Both classes are drawn and copied alike.
    random.Fill(scalars);
    PublicKey copy = fixed;
    for (size_t i = 0; i < kScalars; ++i) {
      for (size_t b = 0; b < 32; ++b) {
        const uint8_t keep = timing.is_random ? 0xff : 0;
        uint8_t& byte = scalars[i * 32 + b];
        byte = static_cast<uint8_t>((byte & keep) | (copy[b] & ~keep));
      }
    }
    const Stopwatch stopwatch;
    run(scalars.data(), kScalars);
    timing.time = static_cast<double>(stopwatch.Nanoseconds());
  }
  std::vector<double> sorted;
  for (const Timing& timing : measured) sorted.push_back(timing.time);
  std::sort(sorted.begin(), sorted.end());
  double largest = 0;
  for (double quantile : {0.5, 0.75, 0.9, 0.99}) {
    const double cut = sorted[static_cast<size_t>(quantile * static_cast<double>(timings - 1))];
    Statistics classes[2];
    for (const Timing& timing : measured) {
      if (timing.time <= cut) classes[timing.is_random].Add(timing.time);
    }
    largest = std::max(largest, std::abs(WelchT(classes[0], classes[1])));
  }
  return largest;
}

bool TimeKernel(const Kernel& kernel, const Options& options) {
  // dudect's own thresholds: a |t| below 4.5 finds nothing, above 10 a leak is certain.
  constexpr double kCertain = 10;
  TestRandom random(options.seed);
  uint8_t products[2][8 * 32];
  const KeyPair pair = KeyPairFromSecret(random.NewSeed().view());
  const uint8_t* const point = pair.public_key.data();
  const Info info(Aead::kChaCha20Poly1305, {});
  TableMemory table = AllocateTable(kernel);
  SHOAL_CHECK(kernel.build_table(point, table.get()));
  const void* tables[2] = {BaseTable(kernel), table.get()};
  uint8_t* outputs[2] = {products[0], products[1]};
  bool constant = true;
  for (uint8_t fill : {0x00, 0xff}) {
    PublicKey fixed;
    fixed.fill(fill);
    const double ladder =
        LargestT(options.timings, fixed, random, [&](const uint8_t* scalars, size_t n) {
          kernel.multiply(scalars, 32, point, 0, products[0], n);
        });
    const double comb =
        LargestT(options.timings, fixed, random, [&](const uint8_t* scalars, size_t n) {
          kernel.multiply_fixed(tables, 2, scalars, 32, outputs, n);
        });
    // The scalars are the shared points, and their exports the keys of streams and tags.
    const KeySchedule schedule(&kernel, info, pair.public_key, "seed");
    const double symmetric =
        LargestT(options.timings, fixed, random, [&](const uint8_t* scalars, size_t n) {
          uint8_t keys[8 * kKernelStreamKeyBytes], blocks[8 * 64], tags[8 * kTagBytes];
          schedule.Run(scalars, scalars, 32, {keys, nullptr, products[0], 32}, n);
          kernel.stream_block(keys, 0, blocks, n);
          kernel.tags(blocks, 64, scalars, 32, 32, tags, n);
        });
    std::printf(
        "%s: secrets of %02x against random ones: |t| of the ladder %.1f, of the comb %.1f, of the "
        "symmetric part %.1f\n",
        kernel.name, fill, ladder, comb, symmetric);
    constant = constant && ladder < kCertain && comb < kCertain && symmetric < kCertain;
  }
  if (!constant) std::printf("%s: TIME DEPENDS ON THE SECRET\n", kernel.name);
  return constant;
}

bool Run(const Options& options) {
  bool ok = true;
  for (InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    ok = ok && CompareBoxes(set, options);
    if (KernelOf(set) != nullptr) ok = TimeKernel(*KernelOf(set), options) && ok;
    std::fflush(stdout);
  }
  return ok;
}

}  // namespace
}  // namespace shoal::onion

int main(int argc, char** argv) {
  SHOAL_CHECK(sodium_init() >= 0);
  shoal::onion::Options options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool ok = false;
    if (absl::ConsumePrefix(&argument, "--boxes=")) ok = absl::SimpleAtoi(argument, &options.boxes);
    if (absl::ConsumePrefix(&argument, "--timings=")) {
      ok = absl::SimpleAtoi(argument, &options.timings) && options.timings >= 1000;
    }
    if (absl::ConsumePrefix(&argument, "--seed=")) ok = absl::SimpleAtoi(argument, &options.seed);
    if (!ok) {
      std::fprintf(stderr, "usage: onion_soak [--boxes=1000000] [--timings=200000] [--seed=1]\n");
      return 2;
    }
  }
  return shoal::onion::Run(options) ? 0 : 1;
}
