// Clients that wait for a round: one request to the frontend for all that wait for the same.
#ifndef SHOAL_SRC_DOOR_ROUND_WAITS_H_
#define SHOAL_SRC_DOOR_ROUND_WAITS_H_

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "src/base/bytes.h"
#include "src/door/frontend_links.h"
#include "src/parallel/mutex.h"
#include "src/wire/round.pb.h"

namespace shoal::door {

// What a client waits for: that a round is in `state`, or in a later one.
struct RoundWish {
  std::string round_id;  // 32 bytes
  wire::RoundState state;
  std::chrono::milliseconds timeout;  // at most a minute, as at the frontend

  // What a WaitRound asks. Nothing if the frontend answers it at once: if the client does not wait,
  // and if it is malformed.
  static std::optional<RoundWish> Of(BytesView frame);
  // The frame that asks it. Without a timeout it is answered at once, with the round as it is.
  Bytes Request() const;
};

// A wait holds no connection to the frontend: there is one subscription for each state of a round
// that somebody waits for, which is asked again until nobody does.
//
//   client A --- WaitRound(r, ANSWERED) ---.
//   client B --- WaitRound(r, ANSWERED) ---+--- one WaitRound(r, ANSWERED) --- frontend
//   client C --- WaitRound(r, ANSWERED) ---'
//
// Thread-safe. To be owned by shared pointers, one of them for as long as somebody waits.
class RoundWaits : public std::enable_shared_from_this<RoundWaits> {
 public:
  // One client's wait.
  class Waiter {
   public:
    explicit Waiter(boost::asio::any_io_executor executor) : wake_(std::move(executor)) {}
    // The wait ends soon. To be called on the executor.
    void Cancel() {
      cancelled_ = true;
      wake_.cancel();
    }

   private:
    friend class RoundWaits;
    boost::asio::steady_timer wake_;
    bool cancelled_ = false;
    std::shared_ptr<const absl::StatusOr<Bytes>> answer_;
  };

  // At most `most` subscriptions at a time.
  RoundWaits(std::shared_ptr<FrontendLinks> links, boost::asio::io_context* io, size_t most)
      : links_(std::move(links)), io_(io), most_(most) {}

  // Waits on the waiter's executor. Returns the answer to WaitRound, a whole frame, or its error as
  // FrontendLinks::Forward. If the wish's time is up before, that is how the round is then: all
  // whose time is up together share that request, too. UNAVAILABLE also if too much is waited for,
  // and after Cancel.
  boost::asio::awaitable<absl::StatusOr<Bytes>> Wait(RoundWish wish,
                                                     std::shared_ptr<Waiter> waiter);

 private:
  using Key = std::pair<std::string, wire::RoundState>;
  struct Subscription;

  // As Wait, without what follows when the time is up: then nothing.
  boost::asio::awaitable<std::optional<absl::StatusOr<Bytes>>> WaitFor(
      const RoundWish& wish, std::shared_ptr<Waiter> waiter, std::chrono::milliseconds longest);
  // Null if there are too many.
  std::shared_ptr<Subscription> Join(const RoundWish& wish, const std::shared_ptr<Waiter>& waiter)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave(const std::shared_ptr<Subscription>& subscription,
             const std::shared_ptr<Waiter>& waiter) ABSL_LOCKS_EXCLUDED(mutex_);
  static boost::asio::awaitable<void> Run(std::shared_ptr<RoundWaits> self,
                                          std::shared_ptr<Subscription> subscription);
  void Answer(const std::shared_ptr<Subscription>& subscription, absl::StatusOr<Bytes> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<FrontendLinks> links_;
  boost::asio::io_context* const io_;
  const size_t most_;
  Mutex mutex_;
  std::map<Key, std::shared_ptr<Subscription>> subscriptions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_ROUND_WAITS_H_
