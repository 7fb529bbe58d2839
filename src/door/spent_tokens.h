// Which tokens were spent, for as long as their issuer's key is taken. A token is spent once: also
// when it comes twice at the same time, after a crash, and after the files were lost or put back.
//
// A file for each key, named by its digest:
//
//   "shoal spent tokens 1\0\0\0"   24 bytes
//   digest of the key              32
//   inode and time of birth of this very file, 8 bytes each
//   identities of tokens, 16 bytes each, in the order in which they were spent
//
// A file that is missing, or is a copy of an earlier one, says less than was spent. So the door
// makes no file by itself: an operator begins a key, once, and a key without its file is not taken.
#ifndef SHOAL_SRC_DOOR_SPENT_TOKENS_H_
#define SHOAL_SRC_DOOR_SPENT_TOKENS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/door/tokens.h"
#include "src/parallel/mutex.h"

namespace shoal::door {

// Thread-safe. Has a thread of its own, which makes all tokens durable that wait with one sync.
class SpentTokens {
 public:
  // Makes the file of a key whose tokens were never taken anywhere. ALREADY_EXISTS: the key was
  // begun before, and its file stays as it is. Errors of the storage.
  static absl::Status Begin(const std::string& directory, const Digest& key_id);

  // Reads the files of these keys, at most `most` tokens of each. FAILED_PRECONDITION: a key has no
  // file, or one that is a copy, or another process has them open; the message says what to do.
  // DATA_LOSS: no such file. RESOURCE_EXHAUSTED: more tokens than `most`. A last record that is not
  // complete was never acknowledged, and is cut off.
  static absl::StatusOr<std::unique_ptr<SpentTokens>> Open(const std::string& directory,
                                                           const std::vector<Digest>& key_ids,
                                                           size_t most);
  // Calls that wait get UNAVAILABLE.
  ~SpentTokens();
  SpentTokens(const SpentTokens&) = delete;
  SpentTokens& operator=(const SpentTokens&) = delete;

  // Spends a token of the key with this place in `key_ids`. `done` is called once, on any thread,
  // without a lock: OK once it is durable; ALREADY_EXISTS: it was spent; RESOURCE_EXHAUSTED: the
  // key has spent all that may be remembered; UNAVAILABLE: the storage fails, which it then does
  // for all tokens until the process is started again.
  void Spend(size_t key, const TokenId& id, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  size_t count(size_t key) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Key {
    std::string path;
    absl::flat_hash_set<TokenId> spent;
    uint64_t file_bytes = 0;  // of the thread alone
  };
  struct Waiting {
    size_t key;
    TokenId id;
    std::function<void(const absl::Status&)> done;
  };

  explicit SpentTokens(size_t most) : most_(most) {}
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t most_;
  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Key> keys_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  int lock_fd_ = -1;
  std::thread thread_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_SPENT_TOKENS_H_
