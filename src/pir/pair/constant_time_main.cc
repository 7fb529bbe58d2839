// Makes queries of a secret row, expands keys and scans a table by them, with all that is secret
// marked as uninitialised for valgrind: memcheck then reports every branch and every address that
// depends on it. //src/pir/pair:constant_time_test runs it.
//
//   constant_time_main            everything; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered are a client's Ask and Recover in both forms, and a server's work on keys, by one stream
// of AES: the fastest that there is under valgrind, which cannot execute AVX-512 and vector AES.
// The scan itself is covered by //src/select:constant_time_test. Not covered is the check of a
// key's encoding, which looks at bits that are the same in all keys.
#include <array>
#include <cstdio>

#include "src/base/check.h"
#include "src/base/testing/constant_time.h"
#include "src/pir/engine.h"
#include "src/pir/pair/pair_client.h"
#include "src/pir/pair/pair_shape.h"
#include "src/pir/pair/point_keys.h"

namespace shoal::pir::pair {
namespace {

using shoal::testing::MakePublic;
using shoal::testing::MakeSecret;
using shoal::testing::SecretRandom;

constexpr uint64_t kRows = 5000;
constexpr uint32_t kRecordBytes = 77;

void RunClient(Form form) {
  wire::PirSetup setup;
  setup.set_engine("pair");
  setup.set_table_id(std::string(32, 't'));
  setup.set_manifest_digest(std::string(32, 'm'));
  setup.set_rows(kRows);
  setup.set_record_bytes(kRecordBytes);
  setup.set_shape(EncodePairShape(form));
  const auto client = *PairClient::Create(setup);
  std::array<uint64_t, 1> row = {4321};
  MakeSecret(row);
  SecretRandom random;
  PairAsked asked = client->Ask(row[0], random);
  Bytes first(kRecordBytes, 1), second(kRecordBytes, 2);
  MakeSecret(first);
  MakeSecret(second);
  const std::array<BytesView, 2> answers = {first, second};
  auto record = client->Recover(asked, answers);
  SHOAL_CHECK(record.ok());
  MakePublic(*record);
  SHOAL_CHECK((*record)[0] == 3);

  if (form == Form::kVector) return;
  SecretVector<uint8_t> sum;
  for (const auto& query : asked.queries) {
    const PointTree tree(client->shape().levels(), BytesView(query).subspan(kQueryHeaderBytes));
    SecretVector<Node> nodes = {tree.root()}, scratch;
    const uint32_t levels = client->shape().levels();
    tree.Grow(0, levels, LeavesFor(kRows), nodes, scratch);
    tree.ToBits(nodes, scratch);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(nodes.data());
    sum.resize(nodes.size() * sizeof(Node));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] ^= bytes[i];
  }
  MakePublic(sum);
  for (size_t i = 0; i < sum.size(); ++i) {
    SHOAL_CHECK(sum[i] == (i == 4321 / 8 ? 1u << 4321 % 8 : 0));
  }
}

}  // namespace
}  // namespace shoal::pir::pair

int main(int argc, char** argv) {
  return shoal::testing::ConstantTimeMain(argc, argv, [] {
    for (const auto form : {shoal::pir::pair::Form::kVector, shoal::pir::pair::Form::kKey}) {
      shoal::pir::pair::RunClient(form);
      std::printf("form %d\n", static_cast<int>(form));
    }
  });
}
