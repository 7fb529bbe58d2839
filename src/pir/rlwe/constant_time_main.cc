// Makes a query and recovers its record with row, secret and errors that are marked as
// uninitialised for valgrind: memcheck then reports every branch and every address that depends on
// them. //src/pir/rlwe:constant_time_test runs it.
//
//   constant_time_main            both engines; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered is what SmallClient and HintlessClient do with row and secret, by the fastest kernel that
// valgrind can execute (it cannot execute AVX-512). Not covered is their caller, which looks
// whether there is such a row. Divisions of the row by public numbers are no branches, and memcheck
// does not report them.
#include <array>
#include <cstdio>
#include <string>

#include "src/base/check.h"
#include "src/base/testing/constant_time.h"
#include "src/pir/rlwe/hintless.h"
#include "src/pir/rlwe/hintless_session.h"
#include "src/pir/rlwe/small_pir.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::rlwe {
namespace {

using shoal::testing::MakePublic;
using shoal::testing::MakeSecret;

template <typename Client>
void Run(const Engine& engine) {
  const pir::testing::Records records(20, 300);
  const auto server = engine.CreateServer(records.content(), {});
  SHOAL_CHECK(server.ok());
  const auto client = Client::Create((*server)->setup());
  SHOAL_CHECK(client.ok());
  shoal::testing::SecretRandom random;
  std::array<uint64_t, 1> row = {13};
  MakeSecret(row);
  auto asked = (*client)->Ask(row[0], random);
  MakePublic(asked.query);  // public from here on, as it is sent
  const RequestView view = {.kind = 0, .count = 1, .body = asked.query};
  const auto answer = (*server)->Answer(Role::kSingle, {&view, 1});
  SHOAL_CHECK(answer[0].ok());
  auto record = (*client)->Recover(asked, *answer[0]);
  SHOAL_CHECK(record.ok());
  MakePublic(*record);
  SHOAL_CHECK(ToBytes(*record) == records.at(13));
  std::printf("%s: a query, and its record\n", std::string(engine.name()).c_str());
}

}  // namespace
}  // namespace shoal::pir::rlwe

int main(int argc, char** argv) {
  using namespace shoal::pir::rlwe;  // NOLINT: a program of one page
  return shoal::testing::ConstantTimeMain(argc, argv, [] {
    Run<SmallClient>(SmallPir());
    Run<HintlessClient>(Hintless());
  });
}
