// Makes queries and recovers records with columns, secrets and errors that are marked as
// uninitialised for valgrind: memcheck then reports every branch and every address that depends on
// them. //src/pir/lwe:constant_time_test runs it.
//
//   constant_time_main            everything; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered are the sampler, a query's words for a secret column, and what a client computes from an
// answer with its secret, by every kernel that valgrind can execute. It cannot execute AVX-512 and
// vector AES; AES-NI stands for the latter, with the same template. The rows of its own hint that a
// client reads depend on the row that it asked for: the test treats that row as public
// (docs/engines.md).
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/testing/records.h"
#include "valgrind/memcheck.h"

namespace shoal::pir::lwe {
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
  std::vector<int32_t> samples(300);  // several blocks of the sampler, and a remainder
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

void RunRecover(Scheme engine, const Kernel& kernel) {
  const testing::Records records(70, 1);
  const auto server = CreateServer(engine, records.content(), {}, &kernel);
  SHOAL_CHECK(server.ok());
  const auto client = CreateClient((*server)->setup(), (*server)->hint(), {.kernel = &kernel});
  SHOAL_CHECK(client.ok());
  SecretRandom random;
  absl::StatusOr<Asked> asked = (*client)->Ask(66, random);
  SHOAL_CHECK(asked.ok());
  MakePublic(asked->query);  // public from here on, as it is sent
  const BytesView query = asked->query;
  const auto answer = (*server)->Answer({&query, 1})[0];
  SHOAL_CHECK(answer.ok());
  absl::StatusOr<Bytes> record = (*client)->Recover(*asked, *answer);
  SHOAL_CHECK(record.ok());
  MakePublic(*record);
  SHOAL_CHECK(*record == records.at(66));
  std::printf("%s: %s\n", kernel.name, std::string(SchemeName(engine)).c_str());
}

int Leak() {
  SecretRandom random;
  if (random.U64() % 2 == 0) std::printf("leaked\n");
  return 0;
}

}  // namespace
}  // namespace shoal::pir::lwe

int main(int argc, char** argv) {
  using namespace shoal::pir;       // NOLINT: a program of one page
  using namespace shoal::pir::lwe;  // NOLINT
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc > 1 && std::strcmp(argv[1], "--leak") == 0) return Leak();
  for (const Kernel* kernel : SupportedKernels()) {
    RunSampler(*kernel);
    RunQuery(*kernel);
    RunRecover(Scheme::kSimplePir, *kernel);
  }
  // Its hint takes long under valgrind, so it runs once, with the fastest kernel.
  RunRecover(Scheme::kDoublePir, FastestKernel());
  return 0;
}
