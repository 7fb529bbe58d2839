// Small PIR from table to record.
#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::rlwe {
namespace {

using pir::testing::Records;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

wire::PirSetup SetupFor(const Content& content, const SmallShape& shape) {
  wire::PirSetup setup;
  setup.set_engine(std::string(kSmallPirName));
  setup.set_table_id(ToString(content.table_id));
  setup.set_epoch(content.epoch);
  setup.set_manifest_digest(ToString(content.manifest_digest));
  setup.set_rows(content.rows);
  setup.set_record_bytes(content.record_bytes);
  setup.set_shape(EncodeSmallShape(shape));
  return setup;
}

TEST(SmallPir, EveryGroupOfEveryShape) {
  TestRandom random(5);
  const struct {
    uint32_t record_bytes;
    SmallShape shape;
  } cases[] = {
      {700, {.group_rows = 2, .slices = 1, .terms = 1, .folds = 0}},
      {1000, {.group_rows = 2, .slices = 1, .terms = 3, .folds = 0}},
      {2048, {.group_rows = 1, .slices = 1, .terms = 2, .folds = 1}},
      {1500, {.group_rows = 4, .slices = 3, .terms = 2, .folds = 3}},
  };
  for (const auto& each : cases) {
    const uint64_t rows = each.shape.capacity() - (each.shape.capacity() > 2 ? 1 : 0);
    Records records(rows, each.record_bytes);
    const wire::PirSetup setup = SetupFor(records.content(), each.shape);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto server,
                               SmallServer::Create(records.content(), setup, {}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto client, SmallClient::Create(setup));
    for (uint64_t row = 0; row < rows; ++row) {
      const SmallAsked asked = client->Ask(row, random);
      const RequestView view = {.kind = 0, .count = 1, .body = asked.query};
      const auto answers = server->Answer(Role::kSingle, {&view, 1});
      SHOAL_ASSERT_OK(answers[0].status());
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, client->Recover(asked, *answers[0]));
      ASSERT_TRUE(std::ranges::equal(record, records.at(row)))
          << "row " << row << " of " << each.record_bytes << " bytes, terms " << each.shape.terms;
    }
  }
}

}  // namespace
}  // namespace shoal::pir::rlwe
