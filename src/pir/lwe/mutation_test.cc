// Any bytes from the other side are refused with a status or taken for what they say, and client
// and server keep running. Seeds are fixed. Builds with sanitizers check the memory.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::lwe {
namespace {

// Here `testing` is shoal::testing, not shoal::pir::testing.
namespace testing = shoal::testing;
using pir::testing::Records;
using pir::testing::Shape;
using testing::StatusIs;
using testing::TestRandom;

constexpr uint64_t kRows = 150;
constexpr uint32_t kRecordBytes = 1;

// Flips up to three bits, and now and then changes the length or one aligned number to an extreme.
void Mutate(TestRandom& random, Bytes& bytes) {
  for (uint64_t k = 1 + random.Below(3); k > 0 && !bytes.empty(); --k) {
    bytes[random.Below(bytes.size())] ^= static_cast<uint8_t>(1u << random.Below(8));
  }
  switch (random.Below(6)) {
    case 0:
      bytes.resize(random.Below(bytes.size() + 9));
      break;
    case 1:
      if (bytes.size() >= 8) {
        const uint64_t extremes[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 31};
        StoreLe<uint64_t>(bytes.data() + random.Below(bytes.size() / 8) * 8,
                          extremes[random.Below(5)]);
      }
      break;
    default:
      break;
  }
}

class MutationTest : public ::testing::TestWithParam<Scheme> {
 protected:
  MutationTest() {
    server_ = *CreateServer(GetParam(), records_.content(), {.shape = Shape(3)});
    client_ = NewClient();
  }
  std::unique_ptr<Client> NewClient() {
    return *CreateClient(server_->setup(), server_->hint(), {});
  }
  // DoublePIR's hint is a hundred times as large.
  int Trials(int simple) const { return GetParam() == Scheme::kSimplePir ? simple : simple / 5; }
  absl::StatusOr<Bytes> AnswerOne(BytesView query) { return server_->Answer({&query, 1})[0]; }
  void ExpectServed(const Client& client, uint64_t row) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Asked asked, client.Ask(row, random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, AnswerOne(asked.query));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client.Recover(asked, answer));
    EXPECT_EQ(record, records_.at(row));
  }

  TestRandom random_{91};
  Records records_{kRows, kRecordBytes};
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
};

INSTANTIATE_TEST_SUITE_P(Engines, MutationTest, ::testing::ValuesIn(kAllSchemes),
                         [](const auto& tested) { return std::string(SchemeName(tested.param)); });

// A setup is refused, or all sizes that follow from it are computed without overflow. No other hint
// is accepted for it.
TEST_P(MutationTest, Setups) {
  const google::protobuf::LogSilencer silence;  // protobuf logs a line for every mutation of text
  const std::string good = server_->setup().SerializeAsString();
  const uint64_t extremes[] = {0,
                               1,
                               63,
                               64,
                               uint64_t{1} << 20,
                               uint64_t{1} << 31,
                               (uint64_t{1} << 31) + 1,
                               uint64_t{1} << 42,
                               uint64_t{1} << 63,
                               ~uint64_t{0}};
  int parsed = 0, taken = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    wire::PirSetup setup = server_->setup();
    if (trial % 2 == 0) {
      Bytes bytes = ToBytes(AsBytes(good));
      Mutate(random_, bytes);
      if (!setup.ParseFromString(ToString(bytes))) continue;
    } else {
      const auto extreme = [&](uint64_t old) {
        return random_.Below(3) == 0 ? extremes[random_.Below(std::size(extremes))] : old;
      };
      setup.set_rows(extreme(setup.rows()));
      setup.set_record_bytes(static_cast<uint32_t>(extreme(setup.record_bytes())));
      setup.set_rows_per_column(extreme(setup.rows_per_column()));
      setup.set_columns(extreme(setup.columns()));
      setup.set_hint_bytes(extreme(setup.hint_bytes()));
    }
    ++parsed;
    const absl::StatusOr<Sizes> sizes = SizesOf(setup);
    if (!sizes.ok()) {
      ASSERT_EQ(sizes.status().code(), absl::StatusCode::kInvalidArgument) << sizes.status();
    } else {
      ++taken;
      // 2^42 bytes of matrix, 64 columns at least, 4 KiB for a row of the hint.
      ASSERT_EQ(sizes->hint_bytes, setup.hint_bytes());
      ASSERT_LE(sizes->hint_bytes, sizes->hint_memory_bytes);
      ASSERT_LE(sizes->hint_memory_bytes, uint64_t{1} << 48);
      ASSERT_LE(sizes->query_bytes, uint64_t{1} << 35);
      ASSERT_LE(sizes->answer_bytes, uint64_t{1} << 48);
      ASSERT_LE(sizes->server_bytes, uint64_t{1} << 50);
    }
    // Hashing a hint takes long, so only a few of the setups that may be accepted are tried.
    if (!sizes.ok() || taken % 512 == 1) {
      const auto client = CreateClient(setup, server_->hint(), {});
      ASSERT_TRUE(!client.ok() || setup.hint_digest() == server_->setup().hint_digest());
    }
  }
  EXPECT_GT(parsed, 10'000);
  EXPECT_GT(taken, 100);
}

// Any bytes under a query's header are a query; anything else is refused.
TEST_P(MutationTest, Queries) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, SizesOf(server_->setup()));
  const Asked asked = client_->Ask(8, random_).value();
  int answered = 0;
  for (int trial = 0; trial < Trials(200); ++trial) {
    Bytes query = asked.query;
    if (trial % 4 == 0) {
      random_.Fill(MutableBytes(query).subspan(kQueryHeaderBytes));
    } else if (trial % 4 == 1) {
      random_.Fill(query);
      query.resize(random_.Below(2 * query.size()));
    } else {
      Mutate(random_, query);
    }
    const bool whole =
        query.size() == sizes.query_bytes &&
        std::equal(query.begin(), query.begin() + kQueryHeaderBytes, asked.query.begin());
    const absl::StatusOr<Bytes> answer = AnswerOne(query);
    ASSERT_EQ(answer.ok(), whole) << answer.status();
    if (!answer.ok()) continue;
    ++answered;
    ASSERT_EQ(answer->size(), sizes.answer_bytes);
  }
  EXPECT_GE(answered, Trials(50));
  ExpectServed(*client_, 8);
}

// An answer can be refused only for its length and its padding, which anyone can see.
TEST_P(MutationTest, Answers) {
  const Asked asked = client_->Ask(149, random_).value();
  const Bytes good = AnswerOne(asked.query).value();
  int taken = 0;
  for (int trial = 0; trial < Trials(200); ++trial) {
    Bytes answer = good;
    if (trial % 4 == 0) {
      random_.Fill(MutableBytes(answer).first(answer.size() - 1));
    } else {
      Mutate(random_, answer);
    }
    const absl::StatusOr<Bytes> record = client_->Recover(asked, answer);
    if (record.ok()) {
      ASSERT_EQ(record->size(), kRecordBytes);
      ASSERT_EQ(answer.size(), good.size());
      ++taken;
    } else {
      ASSERT_THAT(record, StatusIs(absl::StatusCode::kInvalidArgument, "pir"));
    }
  }
  EXPECT_GT(taken, 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client_->Recover(asked, good));
  EXPECT_EQ(record, records_.at(149));
}

// A server names the digest of its hint itself, so any bytes of the right length may be a hint.
TEST_P(MutationTest, Hints) {
  const Bytes good = ToBytes(server_->hint());
  for (int trial = 0; trial < Trials(30); ++trial) {
    Bytes hint = good;
    wire::PirSetup setup = server_->setup();
    if (trial % 3 == 0) {
      random_.Fill(MutableBytes(hint).first(hint.size() - 1));
    } else {
      Mutate(random_, hint);
      EXPECT_THAT(CreateClient(setup, hint, {}), StatusIs(absl::StatusCode::kDataLoss, "hint"));
    }
    setup.set_hint_digest(ToString(HintDigest(hint)));
    const auto client = CreateClient(setup, hint, {});
    ASSERT_EQ(client.ok(), hint.size() == good.size()) << client.status();
    if (!client.ok()) continue;
    const Asked asked = (*client)->Ask(3, random_).value();
    // The digest is in the query's header: this server does not know that hint.
    EXPECT_THAT(AnswerOne(asked.query), StatusIs(absl::StatusCode::kFailedPrecondition, ""));
    Bytes query = asked.query;
    const Asked known = client_->Ask(3, random_).value();
    std::copy_n(known.query.begin(), kQueryHeaderBytes, query.begin());
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, AnswerOne(query));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, (*client)->Recover(asked, answer));
    EXPECT_EQ(record.size(), kRecordBytes);
  }
}

// A delta is refused and leaves the client as it was, or it is applied: a wrong delta is found only
// when signatures are checked.
TEST_P(MutationTest, Deltas) {
  const wire::PirSetup setup = server_->setup();
  const Bytes hint = ToBytes(server_->hint());
  const Asked before = client_->Ask(12, random_).value();
  const Bytes answer = AnswerOne(before.query).value();
  const Bytes record_before = records_.at(12);
  const std::vector<uint64_t> changed = {12, 13, 140};
  for (uint64_t row : changed) records_.Fill(row, static_cast<uint8_t>(row));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refreshed, server_->Refresh(records_.content(2), changed));
  ASSERT_TRUE(refreshed.has_value());
  const Delta& delta = *refreshed;
  int applied = 0, refused = 0;
  for (int trial = 0; trial < Trials(200); ++trial) {
    Delta bad = delta;
    ASSERT_EQ(DeltaDigest(bad), DeltaDigest(delta));
    if (trial % 4 == 0) {
      random_.Fill(bad.changes);
      StoreLe<uint64_t>(bad.changes.data(), random_.Below(4));  // the rest is read as runs
    } else {
      Mutate(random_, bad.changes);
    }
    ASSERT_EQ(DeltaDigest(bad) == DeltaDigest(delta), bad.changes == delta.changes);
    const absl::Status status = client_->Advance(bad);
    if (status.ok()) {
      ++applied;
      client_ = *CreateClient(setup, hint, {});
      continue;
    }
    ++refused;
    ASSERT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "pir"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client_->Recover(before, answer));
    ASSERT_EQ(record, record_before);
  }
  EXPECT_GT(applied, 0);
  EXPECT_GT(refused, 0);
  SHOAL_ASSERT_OK(client_->Advance(delta));
  ExpectServed(*client_, 12);
  ExpectServed(*client_, 140);
}

}  // namespace
}  // namespace shoal::pir::lwe
