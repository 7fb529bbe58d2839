// bazel run -c opt //src/signature:bls_benchmark
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "src/base/testing/test_random.h"
#include "src/signature/bls.h"

namespace shoal::signature {
namespace {

using ::shoal::testing::TestRandom;

void BM_Sign(benchmark::State& state) {
  TestRandom random(1);
  const SecretKey key = SecretKey::Generate(random);
  const Bytes message(32, 7);
  for (auto _ : state) benchmark::DoNotOptimize(key.Sign(message).bytes());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Sign)->Unit(benchmark::kMicrosecond);

void BM_Verify(benchmark::State& state) {
  TestRandom random(1);
  const SecretKey key = SecretKey::Generate(random);
  const PublicKey public_key = key.public_key();
  const Bytes message(32, 7);
  const Signature::Encoded encoded = key.Sign(message).bytes();
  for (auto _ : state) {
    const absl::StatusOr<Signature> signature = Signature::FromBytes(encoded);
    benchmark::DoNotOptimize(Verify(public_key, message, *signature).ok());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Verify)->Unit(benchmark::kMicrosecond);

// On one thread: the cost of a pair as batches grow, including decoding the signature.
void BM_VerifyBatch(benchmark::State& state) {
  TestRandom random(1);
  const SecretKey key = SecretKey::Generate(random);
  const PublicKey public_key = key.public_key();
  const auto n = static_cast<size_t>(state.range(0));
  std::vector<std::string> texts;
  std::vector<Signature::Encoded> encoded;
  for (size_t i = 0; i < n; ++i) {
    texts.push_back(absl::StrCat("row ", i));
    encoded.push_back(key.Sign(AsBytes(texts[i])).bytes());
  }
  for (auto _ : state) {
    std::vector<BytesView> messages;
    std::vector<Signature> signatures;
    for (size_t i = 0; i < n; ++i) {
      messages.push_back(AsBytes(texts[i]));
      signatures.push_back(*Signature::FromBytes(encoded[i]));
    }
    if (!VerifyBatch(public_key, messages, signatures, random).ok()) state.SkipWithError("wrong");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_VerifyBatch)
    ->Arg(2)
    ->Arg(16)
    ->Arg(128)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shoal::signature
