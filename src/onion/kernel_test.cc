// Every function of every kernel against libsodium. X25519: random inputs, and every point and
// scalar where implementations are known to differ. Expected values come from libsodium while the
// test runs.
#include <algorithm>
#include <cfenv>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/testing/test_random.h"
#include "src/onion/chacha20_batch.h"
#include "src/onion/curve_batch.h"
#include "src/onion/dispatch.h"
#include "src/onion/field51.h"
#include "src/onion/field51_fma.h"
#include "src/onion/hpke.h"
#include "src/onion/key_schedule.h"
#include "src/onion/key_schedule_batch.h"
#include "src/onion/poly1305_batch.h"
#include "src/onion/testing/edge_points.h"
#include "src/onion/testing/reference_hpke.h"
#include "src/onion/testing/vec_array.h"
#include "src/onion/testing/vec_scalar.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::EdgePoints;
using ::shoal::onion::testing::EdgeScalars;
using ::shoal::onion::testing::ReferenceHpke;
using ::shoal::onion::testing::VecArray;
using ::shoal::onion::testing::VecScalar;
using ::shoal::testing::TestRandom;

// The curve on one lane, the symmetric part on as many as AVX-512 has, in plain C++.
template <typename Field, size_t kLanes>
const Kernel* PlainKernel(const char* name) {
  using Batch = CurveBatch<Field>;
  using Schedule = KeyScheduleBatch<VecArray<uint32_t, kLanes>>;
  static const Kernel kernel = {name,
                                1,
                                Batch::Multiply,
                                sizeof(typename Batch::Table),
                                Batch::BuildTable,
                                Batch::MultiplyFixed,
                                Schedule::KeySchedule,
                                Schedule::ExportNumbered,
                                ChaCha20Batch<VecArray<uint32_t, kLanes>>::StreamBlock,
                                Poly1305Batch<VecArray<uint64_t, (kLanes + 1) / 2>>::Tags};
  return &kernel;
}

// The kernels that this machine can run, and both fields in plain C++, which every machine can run.
std::vector<const Kernel*> AllKernels() {
  std::vector<const Kernel*> kernels = {PlainKernel<Field51<VecScalar>, 16>("scalar51"),
                                        PlainKernel<Field51Fma<VecScalar>, 1>("scalar51fma")};
  for (InstructionSet set : kAllInstructionSets) {
    if (KernelOf(set) != nullptr) kernels.push_back(KernelOf(set));
  }
  // Where the processor has instructions for SHA-256, KernelOf prefers the kernel that uses them.
  const Kernel* const avx2 = KernelOf(InstructionSet::kAvx2);
  if (avx2 != nullptr && avx2 != Avx2Kernel()) kernels.push_back(Avx2Kernel());
  return kernels;
}

Bytes Draw(RandomSource& random, size_t n) {
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

// All zeros where libsodium refuses.
PublicKey Sodium(const uint8_t* scalar, const uint8_t* point) {
  PublicKey product;
  if (crypto_scalarmult(product.data(), scalar, point) != 0) product.fill(0);
  return product;
}

class KernelTest : public ::testing::TestWithParam<const Kernel*> {
 protected:
  static void SetUpTestSuite() { ASSERT_GE(sodium_init(), 0); }
  const Kernel& kernel() const { return *GetParam(); }

  // One lane of plain C++ takes its time: every seventh edge is enough for the formulas.
  size_t Step() const { return std::string(kernel().name).rfind("scalar", 0) == 0 ? 7 : 1; }

  // Null for a point on the twist.
  TableMemory Table(const uint8_t* point) const {
    TableMemory table = AllocateTable(kernel());
    if (!kernel().build_table(point, table.get())) table.reset();
    return table;
  }
};

TEST_P(KernelTest, MultipliesEdgePointsByEdgeScalars) {
  const std::vector<PublicKey> points = EdgePoints(), scalars = EdgeScalars();
  for (size_t at = 0; at < scalars.size(); at += Step()) {
    const PublicKey& scalar = scalars[at];
    for (size_t begin = 0; begin < points.size(); begin += kKernelBatch) {
      const size_t n = std::min(points.size() - begin, kKernelBatch);
      Bytes products(n * 32, 0xee);
      kernel().multiply(scalar.data(), 0, points[begin].data(), 32, products.data(), n);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(Hex(BytesView(products).subspan(i * 32, 32)),
                  Hex(Sodium(scalar.data(), points[begin + i].data())))
            << "scalar " << Hex(scalar) << ", point " << Hex(points[begin + i]);
      }
    }
  }
}

TEST_P(KernelTest, MultipliesRandomPointsInBatchesOfEverySize) {
  TestRandom random(1);
  for (size_t n = 1; n <= kKernelBatch; n += n < 20 ? 1 : 27) {
    const Bytes scalars = Draw(random, n * 40), points = Draw(random, n * 50);
    Bytes products(n * 32 + 32, 0xee);
    kernel().multiply(scalars.data(), 40, points.data(), 50, products.data(), n);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(Hex(BytesView(products).subspan(i * 32, 32)),
                Hex(Sodium(scalars.data() + i * 40, points.data() + i * 50)))
          << "item " << i << " of " << n;
    }
    EXPECT_EQ(Hex(BytesView(products).subspan(n * 32)), Hex(Bytes(32, 0xee))) << n;
  }
}

// Points of low order among others: the shared inversion must not spread their zeros.
TEST_P(KernelTest, LowOrderPointsSpoilNoNeighbour) {
  TestRandom random(2);
  const std::vector<PublicKey> edges = EdgePoints();
  for (int trial = 0; trial < 10; ++trial) {
    Bytes points = Draw(random, kKernelBatch * 32);
    for (size_t i = 0; i < kKernelBatch; ++i) {
      if (random.Below(2) == 0) continue;
      const PublicKey& edge = edges[random.Below(edges.size())];
      std::copy(edge.begin(), edge.end(), points.begin() + i * 32);
    }
    const Bytes scalars = Draw(random, kKernelBatch * 32);
    Bytes products(kKernelBatch * 32);
    kernel().multiply(scalars.data(), 32, points.data(), 32, products.data(), kKernelBatch);
    for (size_t i = 0; i < kKernelBatch; ++i) {
      ASSERT_EQ(Hex(BytesView(products).subspan(i * 32, 32)),
                Hex(Sodium(scalars.data() + i * 32, points.data() + i * 32)));
    }
  }
}

TEST_P(KernelTest, TheCombAgreesOnEveryPointThatHasATable) {
  TestRandom random(3);
  std::vector<PublicKey> points = EdgePoints();
  for (int i = 0; i < 20; ++i) {
    PublicKey point;
    random.Fill(point);
    points.push_back(point);
  }
  Bytes scalars;
  for (const PublicKey& scalar : EdgeScalars()) Append(scalars, scalar);
  Append(scalars, Draw(random, 20 * 32));
  const size_t n = scalars.size() / 32;
  ASSERT_LE(n, kKernelBatch);

  const uint8_t base[32] = {9};
  const TableMemory base_table = Table(base);
  ASSERT_NE(base_table, nullptr);
  size_t on_curve = 0, on_twist = 0;
  size_t tried = 0;
  for (size_t at = 0; at < points.size(); at += Step()) {
    const PublicKey& point = points[at];
    if (Sodium(scalars.data(), point.data()) == PublicKey{}) continue;  // low order
    ++tried;
    const TableMemory table = Table(point.data());
    if (table == nullptr) {
      ++on_twist;
      continue;
    }
    ++on_curve;
    Bytes first(n * 32), second(n * 32);
    const void* tables[2] = {base_table.get(), table.get()};
    uint8_t* products[2] = {first.data(), second.data()};
    kernel().multiply_fixed(tables, 2, scalars.data(), 32, products, n);
    for (size_t i = 0; i < n; ++i) {
      PublicKey expected;
      crypto_scalarmult_base(expected.data(), scalars.data() + i * 32);
      ASSERT_EQ(Hex(BytesView(first).subspan(i * 32, 32)), Hex(expected));
      ASSERT_EQ(Hex(BytesView(second).subspan(i * 32, 32)),
                Hex(Sodium(scalars.data() + i * 32, point.data())))
          << "point " << Hex(point);
    }
  }
  // Half of all u are on the curve.
  EXPECT_GT(on_curve, tried / 4);
  EXPECT_GT(on_twist, tried / 4);
}

// Every digit in every row of the comb: scalars of one repeated digit reach all entries.
TEST_P(KernelTest, TheCombUsesEveryTableEntry) {
  TestRandom random(4);
  PublicKey point;
  crypto_scalarmult_base(point.data(), Draw(random, 32).data());
  const TableMemory table = Table(point.data());
  ASSERT_NE(table, nullptr);
  Bytes scalars(64 * 32);
  for (size_t digit = 0; digit < 64; ++digit) {
    for (size_t bit = 3; bit < 254; ++bit) {
      const size_t set = digit >> (bit - 3) % 6 & 1;
      scalars[digit * 32 + bit / 8] |= static_cast<uint8_t>(set << bit % 8);
    }
  }
  Bytes out(64 * 32);
  const void* tables[1] = {table.get()};
  uint8_t* products[1] = {out.data()};
  kernel().multiply_fixed(tables, 1, scalars.data(), 32, products, 64);
  for (size_t i = 0; i < 64; ++i) {
    ASSERT_EQ(Hex(BytesView(out).subspan(i * 32, 32)),
              Hex(Sodium(scalars.data() + i * 32, point.data())))
        << "digit " << i;
  }
}

// Neither the rounding mode of the caller nor a trap on inexact results may matter: one field
// computes with doubles, rounds on purpose, and its bounds are proved for rounding to nearest.
TEST_P(KernelTest, TheFloatingPointModeOfTheCallerDoesNotMatter) {
  TestRandom random(7);
  const Bytes scalars = Draw(random, 4 * 32), secret = Draw(random, 32);
  const uint8_t base[32] = {9};
  const PublicKey point = Sodium(secret.data(), base);
  for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    Bytes ladder(4 * 32), comb(4 * 32);
    ASSERT_EQ(std::fesetround(mode), 0);
    ASSERT_EQ(feenableexcept(FE_INEXACT), 0);
    kernel().multiply(scalars.data(), 32, point.data(), 0, ladder.data(), 4);
    const TableMemory table = Table(point.data());
    const void* tables[1] = {table.get()};
    uint8_t* products[1] = {comb.data()};
    kernel().multiply_fixed(tables, 1, scalars.data(), 32, products, 4);
    EXPECT_EQ(fedisableexcept(FE_INEXACT), FE_INEXACT);
    EXPECT_EQ(std::fegetround(), mode);
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    for (size_t i = 0; i < 4; ++i) {
      const std::string expected = Hex(Sodium(scalars.data() + i * 32, point.data()));
      EXPECT_EQ(Hex(BytesView(ladder).subspan(i * 32, 32)), expected);
      EXPECT_EQ(Hex(BytesView(comb).subspan(i * 32, 32)), expected);
    }
  }
}

TEST_P(KernelTest, ComputesTheKeyScheduleInBatchesOfEverySize) {
  TestRandom random(8);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  for (Aead aead : {Aead::kChaCha20Poly1305, Aead::kExportOnly}) {
    const bool seals = aead != Aead::kExportOnly;
    for (size_t n = 0; n <= kKernelBatch; n += n < 34 ? 1 : 47) {
      const std::string context(random.Below(kMaxExporterContext + 1), 'c');
      const Bytes info_bytes = Draw(random, random.Below(100));
      const Info info(aead, info_bytes);
      const KeySchedule schedule(&kernel(), info, key.public_key, context);
      const Bytes shared = Draw(random, n * 32), encs = Draw(random, n * 40 + 1);
      Bytes keys(n * kKernelStreamKeyBytes + 32, 0xee), secrets(n * 32 + 32, 0xee);
      Bytes exports(n * 50 + 32, 0xee);
      schedule.Run(shared.data(), encs.data() + 1, 40,
                   {seals ? keys.data() : nullptr, secrets.data(), exports.data(), 50}, n);
      for (size_t i = 0; i < n; ++i) {
        const BytesView enc = BytesView(encs).subspan(1 + i * 40, 32);
        const ReferenceHpke reference(aead, info_bytes, BytesView(shared).subspan(i * 32, 32), enc,
                                      key.public_key);
        if (seals) {
          Bytes expected = reference.key();
          Append(expected, reference.base_nonce());
          ASSERT_EQ(Hex(BytesView(keys).subspan(i * kKernelStreamKeyBytes, kKernelStreamKeyBytes)),
                    Hex(expected))
              << "item " << i << " of " << n;
        }
        ASSERT_EQ(Hex(BytesView(secrets).subspan(i * 32, 32)), Hex(reference.exporter_secret()));
        Bytes expected = reference.Export(AsBytes(context));
        expected.resize(50, 0xee);  // what is between the exports stays
        ASSERT_EQ(Hex(BytesView(exports).subspan(i * 50, 50)), Hex(expected));
      }
      EXPECT_EQ(Hex(BytesView(keys).last(32)), Hex(Bytes(32, 0xee))) << n;
      EXPECT_EQ(Hex(BytesView(secrets).last(32)), Hex(Bytes(32, 0xee))) << n;
      // What is not wanted is not written, and changes nothing else.
      Bytes again(n * 32);
      schedule.Run(shared.data(), encs.data() + 1, 40, {nullptr, nullptr, again.data(), 32}, n);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(Hex(BytesView(again).subspan(i * 32, 32)),
                  Hex(BytesView(exports).subspan(i * 50, 32)));
      }
    }
  }
}

TEST_P(KernelTest, NumbersExports) {
  TestRandom random(9);
  for (uint32_t first : {0u, 250u, 0xfffffffau}) {
    for (size_t n : {0, 1, 2, 15, 16, 17, 33, 1000}) {
      const Bytes secret = Draw(random, 32);
      Bytes exports(n * 32 + 1, 0xee), expected(n * 32);
      const std::string prefix(random.Below(kMaxExporterContext - 3), 'p');
      NumberedExports(&kernel(), Aead::kChaCha20Poly1305, secret.data(), prefix, first,
                      exports.data(), n);
      NumberedExports(nullptr, Aead::kChaCha20Poly1305, secret.data(), prefix, first,
                      expected.data(), n);
      EXPECT_EQ(exports.back(), 0xee);
      exports.pop_back();
      ASSERT_EQ(Hex(exports), Hex(expected)) << n;
    }
  }
}

TEST_P(KernelTest, ComputesBlocksOfTheStream) {
  TestRandom random(10);
  for (size_t n = 0; n <= kKernelBatch; n += n < 34 ? 1 : 47) {
    for (uint32_t counter : {0u, 1u, 0xffffffffu}) {
      const Bytes keys = Draw(random, n * kKernelStreamKeyBytes);
      Bytes blocks(n * 64 + 32, 0xee);
      kernel().stream_block(keys.data(), counter, blocks.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const uint8_t* key = keys.data() + i * kKernelStreamKeyBytes;
        Bytes expected(64);
        crypto_stream_chacha20_ietf_xor_ic(expected.data(), expected.data(), 64, key + 32, counter,
                                           key);
        ASSERT_EQ(Hex(BytesView(blocks).subspan(i * 64, 64)), Hex(expected));
      }
      EXPECT_EQ(Hex(BytesView(blocks).last(32)), Hex(Bytes(32, 0xee))) << n;
    }
  }
}

// Tags of libsodium's one-time authenticator over what RFC 8439, section 2.8, puts together.
TEST_P(KernelTest, ComputesTags) {
  TestRandom random(11);
  // 0xff everywhere gives the largest carries, and keys of zeros a tag that is the pad alone.
  const auto fill = [&](size_t n, size_t kind) {
    Bytes bytes(n, kind == 1 ? 0xff : 0);
    if (kind == 0) random.Fill(bytes);
    return bytes;
  };
  for (size_t bytes : {0, 1, 15, 16, 17, 31, 32, 33, 80, 96, 128, 1000}) {
    for (size_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 128}) {
      for (size_t kind : {0, 1, 2}) {
        const Bytes keys = fill(n * 64, kind), texts = fill(n * (bytes + 3), kind == 2 ? 1 : kind);
        Bytes tags(n * 16 + 1, 0xee);
        kernel().tags(keys.data(), 64, texts.data(), bytes + 3, bytes, tags.data(), n);
        for (size_t i = 0; i < n; ++i) {
          Bytes padded = ToBytes(BytesView(texts).subspan(i * (bytes + 3), bytes));
          padded.resize((bytes + 15) / 16 * 16 + 8);
          AppendLe<uint64_t>(padded, bytes);
          Bytes expected(16);
          crypto_onetimeauth_poly1305(expected.data(), padded.data(), padded.size(),
                                      keys.data() + i * 64);
          ASSERT_EQ(Hex(BytesView(tags).subspan(i * 16, 16)), Hex(expected))
              << bytes << " bytes, item " << i << " of " << n;
        }
        EXPECT_EQ(tags.back(), 0xee);
      }
    }
  }
}

// Results near 2^130 - 5, where the last reduction matters, and near 2^128, where the pad carries:
// with r = 1 the sum of blocks is the result.
TEST_P(KernelTest, ReducesTagsFully) {
  Bytes keys, texts;
  constexpr size_t kBytes = 64;
  for (size_t pad = 0; pad < 2; ++pad) {
    for (size_t i = 0; i < 16; ++i) {
      Bytes key(32);
      key[0] = 1;
      std::fill(key.begin() + 16, key.end(), pad == 0 ? 0 : 0xff);
      Append(keys, key);
      // Four blocks of 2^129 and some, less the length's block: around 2^130 - 5 modulo p.
      Bytes text(kBytes, 0xff);
      text[0] = static_cast<uint8_t>(0xff - i);
      text[16] = static_cast<uint8_t>(0xc0 - i);
      Append(texts, text);
    }
  }
  // And every value of the lowest byte around p: one block of ones is 2^129 - 1.
  for (size_t low = 0; low < 64; ++low) {
    Bytes key(32);
    key[0] = 1;
    Append(keys, key);
    Bytes text(kBytes, 0);
    std::fill_n(text.begin(), 16, 0xff);
    text[0] = static_cast<uint8_t>(0xff - low);
    std::fill_n(text.begin() + 16, 16, 0xff);
    Append(texts, text);
  }
  const size_t n = keys.size() / 32;
  ASSERT_LE(n, kKernelBatch);
  Bytes tags(n * 16);
  kernel().tags(keys.data(), 32, texts.data(), kBytes, kBytes, tags.data(), n);
  for (size_t i = 0; i < n; ++i) {
    Bytes padded = ToBytes(BytesView(texts).subspan(i * kBytes, kBytes));
    padded.resize(kBytes + 8);
    AppendLe<uint64_t>(padded, kBytes);
    Bytes expected(16);
    crypto_onetimeauth_poly1305(expected.data(), padded.data(), padded.size(),
                                keys.data() + i * 32);
    EXPECT_EQ(Hex(BytesView(tags).subspan(i * 16, 16)), Hex(expected)) << i;
  }
}

TEST_P(KernelTest, DoesNothingForNothing) {
  kernel().multiply(nullptr, 0, nullptr, 0, nullptr, 0);
  kernel().multiply_fixed(nullptr, 0, nullptr, 0, nullptr, 0);
  kernel().key_schedule({}, nullptr, nullptr, 0, {}, 0);
  kernel().export_numbered({}, 0, nullptr, nullptr, 0);
  kernel().stream_block(nullptr, 0, nullptr, 0);
  kernel().tags(nullptr, 0, nullptr, 0, 0, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelTest, ::testing::ValuesIn(AllKernels()),
                         [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace
}  // namespace shoal::onion
