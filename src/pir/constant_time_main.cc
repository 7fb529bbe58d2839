// Columns, secrets and errors of queries that valgrind believes to be uninitialised: memcheck then
// reports every branch and every address that depends on them. //src/pir:constant_time_test runs it.
//
//   constant_time_main            everything; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered: the sampler, a query's words for a secret column, and what a client computes of an answer
// with its secret, by every kernel that valgrind can execute (not AVX-512's, nor vector AES: AES-NI
// stands for that, the same template). Which rows of its own hint a client reads depends on the row
// that it asked for: that is public here (docs/engines.md).
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/pir/dispatch.h"
#include "src/pir/engine.h"
#include "src/pir/gaussian.h"
#include "src/pir/lwe.h"
#include "src/pir/shape.h"
#include "src/pir/testing/records.h"
#include "valgrind/memcheck.h"

namespace shoal::pir {
namespace {

// The system's randomness, all of it secret.
class SecretRandom final : public RandomSource {
 public:
  void Fill(MutableBytes out) override {
    system_.Fill(out);
    VALGRIND_MAKE_MEM_UNDEFINED(out.data(), out.size());
  }

 private:
  SystemRandom system_;
};

template <typename T>
void MakePublic(T& values) {
  VALGRIND_MAKE_MEM_DEFINED(values.data(), values.size() * sizeof(values[0]));
}

void RunSampler(const Kernel& kernel) {
  SecretRandom random;
  std::vector<int32_t> samples(300);  // whole blocks of the sampler, and a remainder
  GaussianSampler::Get().Sample(kernel, random, samples);
  MakePublic(samples);
  for (int32_t sample : samples) {
    SHOAL_CHECK(std::abs(sample) <= static_cast<int32_t>(GaussianSampler::Get().max()));
  }
  std::printf("%s: sampler\n", kernel.name);
}

void RunQuery(const Kernel& kernel) {
  constexpr uint64_t kColumns = 192;
  const PublicProduct product({1}, kColumns, {.kernel = &kernel});
  SecretRandom random;
  uint64_t column = 77;
  VALGRIND_MAKE_MEM_UNDEFINED(&column, sizeof column);
  SecretVector<int32_t> secret;
  Bytes query;
  const PublicProduct::Wanted wanted = {column, &secret, &query};
  product.Encrypt({&wanted, 1}, random);
  MakePublic(query);
  SHOAL_CHECK(query.size() == 4 * kColumns);
  std::printf("%s: query\n", kernel.name);
}

void RunRecover(Engine engine, const Kernel& kernel) {
  const testing::Records records(70, 1);
  const auto server = CreateServer(engine, records.content(), {.kernel = &kernel});
  SHOAL_CHECK(server.ok());
  const auto client = CreateClient((*server)->setup(), (*server)->hint(), {.kernel = &kernel});
  SHOAL_CHECK(client.ok());
  SecretRandom random;
  absl::StatusOr<Asked> asked = (*client)->Ask(66, random);
  SHOAL_CHECK(asked.ok());
  MakePublic(asked->query);  // as it is sent
  const BytesView query = asked->query;
  const auto answer = (*server)->Answer({&query, 1})[0];
  SHOAL_CHECK(answer.ok());
  absl::StatusOr<Bytes> record = (*client)->Recover(*asked, *answer);
  SHOAL_CHECK(record.ok());
  MakePublic(*record);
  SHOAL_CHECK(*record == records.at(66));
  std::printf("%s: %s\n", kernel.name, std::string(EngineName(engine)).c_str());
}

int Leak() {
  SecretRandom random;
  if (random.U64() % 2 == 0) std::printf("leaked\n");
  return 0;
}

}  // namespace
}  // namespace shoal::pir

int main(int argc, char** argv) {
  using namespace shoal::pir;  // NOLINT: a program of one page
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc > 1 && std::strcmp(argv[1], "--leak") == 0) return Leak();
  for (const Kernel* kernel : SupportedKernels()) {
    RunSampler(*kernel);
    RunQuery(*kernel);
    RunRecover(Engine::kSimplePir, *kernel);
  }
  // Its hint takes valgrind a while: once, with the fastest.
  RunRecover(Engine::kDoublePir, FastestKernel());
  return 0;
}
