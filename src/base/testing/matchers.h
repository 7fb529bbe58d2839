// Status assertions for GoogleTest.
#ifndef SHOAL_SRC_BASE_TESTING_MATCHERS_H_
#define SHOAL_SRC_BASE_TESTING_MATCHERS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"

namespace shoal::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// Code and a part of the message: StatusIs(absl::StatusCode::kNotFound, "slot").
MATCHER_P2(StatusIs, code, part, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         std::string(StatusOf(arg).message()).find(part) != std::string::npos;
}

}  // namespace shoal::testing

#define SHOAL_ASSERT_OK(expression) ASSERT_THAT((expression), ::shoal::testing::IsOk())
#define SHOAL_EXPECT_OK(expression) EXPECT_THAT((expression), ::shoal::testing::IsOk())
#define SHOAL_ASSERT_OK_AND_ASSIGN(target, expression) \
  SHOAL_ASSERT_OK_AND_ASSIGN_IMPL(SHOAL_CONCAT(shoal_test_, __LINE__), target, expression)
#define SHOAL_ASSERT_OK_AND_ASSIGN_IMPL(temporary, target, expression) \
  auto temporary = (expression);                                       \
  ASSERT_THAT(temporary, ::shoal::testing::IsOk());                    \
  target = *std::move(temporary)

#endif  // SHOAL_SRC_BASE_TESTING_MATCHERS_H_
