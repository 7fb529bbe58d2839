// The bytes that the engines of learning with errors put on the wire and on disk: setup, hint,
// query under a fixed seed, answer, the answers to a batch over chunks, delta. Clients keep hints
// over versions of this program, and speak to servers of other versions: these digests change only
// with a new engine name, and those of deltas with a new domain of their digest.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/hash.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::lwe {
namespace {

std::string Short(BytesView bytes) {
  return Hex(BytesView(Transcript("shoal pir wire bytes test").Blob(bytes).Finish()).first(16));
}

std::vector<std::string> DigestsOf(Scheme engine) {
  pir::testing::Records records(700, 3);
  const auto server =
      CreateServer(engine, records.content(1), {.shape = pir::testing::Shape(6)}).value();
  const auto client = CreateClient(server->setup(), server->hint(), {}).value();
  std::vector<std::string> digests;
  digests.push_back(Short(AsBytes(server->setup().SerializeAsString())));
  digests.push_back(Short(SetupId(server->setup())));
  digests.push_back(Short(server->hint()));
  shoal::testing::TestRandom random(5);
  const Asked asked = client->Ask(411, random).value();
  digests.push_back(Short(asked.query));
  const BytesView query = asked.query;
  digests.push_back(Short(server->Answer({&query, 1})[0].value()));
  const std::vector<Bytes> chunks =
      server->AnswerChunks(std::vector<BytesView>{query, query, query, query}).value();
  Bytes joined;
  for (const Bytes& chunk : chunks) Append(joined, chunk);
  digests.push_back(Short(joined));
  for (const uint64_t row : {8, 100, 699}) records.Fill(row, static_cast<uint8_t>(row));
  const Delta delta =
      server->Refresh(records.content(2), std::vector<uint64_t>{8, 100, 699}).value().value();
  digests.push_back(Short(delta.changes));
  digests.push_back(Short(DeltaDigest(delta)));
  digests.push_back(Short(server->hint()));
  return digests;
}

TEST(WireBytesTest, SimplePir) {
  EXPECT_EQ(DigestsOf(Scheme::kSimplePir),
            (std::vector<std::string>{
                "cd5865d6cf42f2bb91c210e9ff4052a1", "8a27211a00d88c8c4783d54da65e0ea6",
                "77d3d6a36e092aa5eac2ddb70ce69dc7", "387420f527d8a450bc88c11a3cbca6d7",
                "a4f527e45f24fdb96336386f04904cd6", "a4f527e45f24fdb96336386f04904cd6",
                "a4bc856ce09b1f4c16404f03005a99eb", "c61efb5cbc15d6382e384b75a6d8c2a1",
                "1feec381157dbeea2d084b61ba7bab07"}));
}

TEST(WireBytesTest, DoublePir) {
  EXPECT_EQ(DigestsOf(Scheme::kDoublePir),
            (std::vector<std::string>{
                "d4c33c4fab083c1aa6b5445aedf74740", "f2d89a29d0bb4efeed0250734d24e740",
                "6cab3a4b2701d6d2b253abc75eb81bf5", "7e11766ace01d47181a89fb51e74254e",
                "9af9fda346ba9e5ee76319565e943eb6", "e70579dca6c2f371ba59605b7095dcfe",
                "fc37e00227ccbc568662c54066e44060", "3c163b2a7f533576e274821037c6ac3a",
                "5e9dfbb77b34af9eda9f53a82d333ad6"}));
}

}  // namespace
}  // namespace shoal::pir::lwe
