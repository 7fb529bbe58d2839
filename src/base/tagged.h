// Integers that must not be mixed up get types of their own.
#ifndef SHOAL_SRC_BASE_TAGGED_H_
#define SHOAL_SRC_BASE_TAGGED_H_

#include <compare>
#include <cstdint>

namespace shoal {

template <typename Tag, typename T>
class Tagged {
 public:
  constexpr Tagged() = default;
  constexpr explicit Tagged(T value) : value_(value) {}
  constexpr T value() const { return value_; }
  friend constexpr auto operator<=>(const Tagged&, const Tagged&) = default;

 private:
  T value_ = 0;
};

// 1..m along the chain; 1 is the frontend, m the backend.
using PartyNumber = Tagged<struct PartyNumberTag, uint32_t>;
// A round's number in its deployment. The numbers of a deployment only rise.
using RoundCounter = Tagged<struct RoundCounterTag, uint64_t>;

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_TAGGED_H_
