// A session as version 0.2 left it, with what queries changed in a journal, for tests.
#ifndef SHOAL_SRC_PIR_SETS_TWO_VERSIONS_H_
#define SHOAL_SRC_PIR_SETS_TWO_VERSIONS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/pir/engine.h"
#include "src/pir/testing/memory_store.h"

namespace shoal::pir::sets::testing {

// The same session: with a query and its answers as the last two records of the journal; as it is
// now, while the query waits for its answers; and when it has them.
struct TwoVersions {
  pir::testing::MemoryStore::Disk first, asked, now;
};

// The first use of a session of version 0.2 makes it a state of this version, whether the query had
// its answers or not, and what was spent stays spent.
inline void ExpectReadAndWithoutQueries(
    TwoVersions versions,
    const std::function<absl::StatusOr<std::unique_ptr<Session>>(SessionStore&)>& open) {
  {
    pir::testing::MemoryStore store(versions.first);
    SHOAL_ASSERT_OK(open(store).status());
    EXPECT_EQ(store.disk(), versions.now);
  }
  versions.first.records.pop_back();
  pir::testing::MemoryStore store(versions.first);
  SHOAL_ASSERT_OK(open(store).status());
  EXPECT_EQ(store.disk(), versions.asked);
  pir::testing::MemoryStore again(store.disk());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, open(again));
  EXPECT_EQ(session->needed(0), Session::Need::kRequests) << "the same query is sent again";
  EXPECT_EQ(again.writes(), 0u);
}

}  // namespace shoal::pir::sets::testing

#endif  // SHOAL_SRC_PIR_SETS_TWO_VERSIONS_H_
