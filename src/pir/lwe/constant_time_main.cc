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
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "src/base/check.h"
#include "src/base/testing/constant_time.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::lwe {
namespace {

using shoal::testing::MakePublic;
using shoal::testing::MakeSecret;
using shoal::testing::SecretRandom;

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
  std::array<uint64_t, 1> column = {77};
  MakeSecret(column);
  SecretVector<int32_t> secret;
  Bytes query;
  const PublicProduct::Wanted wanted = {column[0], &secret, &query};
  product.Encrypt({&wanted, 1}, random);
  MakePublic(query);
  SHOAL_CHECK(query.size() == 4 * kColumns);
  std::printf("%s: query\n", kernel.name);
}

void RunRecover(Scheme engine, const Kernel& kernel) {
  const pir::testing::Records records(70, 1);
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

}  // namespace
}  // namespace shoal::pir::lwe

int main(int argc, char** argv) {
  using namespace shoal::pir::lwe;  // NOLINT: a program of one page
  return shoal::testing::ConstantTimeMain(argc, argv, [] {
    for (const Kernel* kernel : SupportedKernels()) {
      RunSampler(*kernel);
      RunQuery(*kernel);
      RunRecover(Scheme::kSimplePir, *kernel);
    }
    // Its hint takes long under valgrind, so it runs once, with the fastest kernel.
    RunRecover(Scheme::kDoublePir, FastestKernel());
  });
}
