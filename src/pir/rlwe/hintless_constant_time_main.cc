// Makes a query and recovers its record with row, secret and errors that are marked as
// uninitialised for valgrind: memcheck then reports every branch and every address that depends on
// them.
// //src/pir/rlwe:hintless_constant_time_test runs it.
//
//   hintless_constant_time_main            everything; silence is success
//   hintless_constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered is what HintlessClient does with row and secret, by the fastest kernel that valgrind can
// execute (it cannot execute AVX-512). Not covered is its caller, which looks whether there is such
// a row. Divisions of the row by public numbers are no branches, and memcheck does not report them.
#include <cstdio>
#include <cstring>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/pir/rlwe/hintless.h"
#include "src/pir/rlwe/hintless_server.h"
#include "src/pir/rlwe/hintless_session.h"
#include "src/pir/testing/records.h"
#include "valgrind/memcheck.h"

namespace shoal::pir::rlwe {
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

void Run() {
  const testing::Records records(20, 300);
  const wire::PirSetup setup = *Hintless().ShapeOf(records.content(), {});
  const auto server = HintlessServer::Create(records.content(), setup, {}, {});
  SHOAL_CHECK(server.ok());
  const auto client = HintlessClient::Create(setup);
  SHOAL_CHECK(client.ok());
  SecretRandom random;
  uint64_t row = 13;
  VALGRIND_MAKE_MEM_UNDEFINED(&row, sizeof row);
  HintlessAsked asked = (*client)->Ask(row, random);
  MakePublic(asked.query);  // public from here on, as it is sent
  const RequestView view = {.kind = 0, .count = 1, .body = asked.query};
  const auto answer = (*server)->Answer(Role::kSingle, {&view, 1});
  SHOAL_CHECK(answer[0].ok());
  auto record = (*client)->Recover(asked, *answer[0]);
  SHOAL_CHECK(record.ok());
  MakePublic(*record);
  SHOAL_CHECK(ToBytes(*record) == records.at(13));
  std::printf("a query, and its record\n");
}

int Leak() {
  SecretRandom random;
  if (random.U64() % 2 == 0) std::printf("leaked\n");
  return 0;
}

}  // namespace
}  // namespace shoal::pir::rlwe

int main(int argc, char** argv) {
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc > 1 && std::strcmp(argv[1], "--leak") == 0) return shoal::pir::rlwe::Leak();
  shoal::pir::rlwe::Run();
  return 0;
}
