// Parities of hints, backups or places, by their numbers: all of them in memory, or those alone
// that a query needs, which its session reads from its state before.
#ifndef SHOAL_SRC_PIR_SETS_PARITIES_H_
#define SHOAL_SRC_PIR_SETS_PARITIES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/secret.h"

namespace shoal::pir::sets {

// Thread-compatible.
class Parities {
 public:
  // `count` parities of `bytes` each, none of which is in memory.
  Parities(uint64_t count, uint64_t bytes) : count_(count), bytes_(bytes) {}

  // From now on all of them are in memory: zeros at first.
  void MakeWhole() {
    some_.clear();
    all_.assign(count_ * bytes_, 0);
  }
  bool whole() const { return all_.size() == count_ * bytes_; }
  // All of them, one after the other (checked that they are in memory).
  BytesView all() const {
    SHOAL_CHECK(whole());
    return all_;
  }
  MutableBytes all() {
    SHOAL_CHECK(whole());
    return all_;
  }

  // While they are not whole (checked): puts one into memory, and forgets those that are there.
  void Put(uint64_t number, BytesView parity) {
    SHOAL_CHECK(!whole() && number < count_ && parity.size() == bytes_);
    some_[number].assign(parity.begin(), parity.end());
  }
  void Forget() { some_.clear(); }

  // Checked that it is in memory.
  MutableBytes At(uint64_t number) {
    if (whole()) return MutableBytes(all_).subspan(number * bytes_, bytes_);
    const auto found = some_.find(number);
    SHOAL_CHECK(found != some_.end());
    return found->second;
  }
  BytesView At(uint64_t number) const {
    if (whole()) return BytesView(all_).subspan(number * bytes_, bytes_);
    const auto found = some_.find(number);
    SHOAL_CHECK(found != some_.end());
    return found->second;
  }

 private:
  uint64_t count_, bytes_;
  SecretVector<uint8_t> all_;
  std::map<uint64_t, SecretVector<uint8_t>> some_;
};

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_PARITIES_H_
