// Clients that wait for a round: one request to the frontend for all that wait for the same.
#ifndef SHOAL_SRC_DOOR_ROUND_WAITS_H_
#define SHOAL_SRC_DOOR_ROUND_WAITS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "src/base/address_block.h"
#include "src/base/bytes.h"
#include "src/door/frontend_links.h"
#include "src/net/admission.h"
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
// Each question to the frontend is short (Options::step). A subscription that nobody waits for any
// more takes the answer to the one that is under way and ends then: its connection serves the next
// request, and whoever asks for the same meanwhile finds it. So a client that waits for a moment,
// many times over, costs the frontend no handshake.
//
// A subscription counts for each payer (see Waiter) whose clients wait for it, and one that nobody
// waits for counts for those who left it last. No payer takes more than its share of them.
//
// Thread-safe. To be owned by shared pointers, one of them for as long as somebody waits.
class RoundWaits : public std::enable_shared_from_this<RoundWaits> {
 public:
  // Who is to have no more than a share. None: all that comes over shoal-ohttp, which is one group.
  using Payer = Origin;

  // One client's wait.
  class Waiter {
   public:
    // What it waits for counts for each of the payers.
    Waiter(boost::asio::any_io_executor executor, std::vector<Payer> payers)
        : wake_(std::move(executor)), payers_(std::move(payers)) {}
    // The wait ends soon. To be called on the executor.
    void Cancel() {
      cancelled_ = true;
      wake_.cancel();
    }

   private:
    friend class RoundWaits;
    boost::asio::steady_timer wake_;
    const std::vector<Payer> payers_;
    bool cancelled_ = false;
    std::shared_ptr<const absl::StatusOr<Bytes>> answer_;
  };

  struct Options {
    size_t most;  // subscriptions at a time
    // The shares of connections are those of subscriptions.
    net::BlockShares shares;
    net::BlockShares group_shares;
    // How long the frontend is asked to wait at a time. One that has not answered after three times
    // as long does not answer.
    std::chrono::milliseconds step;
  };
  RoundWaits(std::shared_ptr<FrontendLinks> links, boost::asio::io_context* io,
             const Options& options)
      : links_(std::move(links)), io_(io), options_(options) {}

  // Waits on the waiter's executor. Returns the answer to WaitRound, a whole frame, or its error as
  // FrontendLinks::Forward. If the wish's time is up before, that is how the round is then: all
  // whose time is up together share that request, too. RESOURCE_EXHAUSTED: too much is waited for.
  // UNAVAILABLE also after Cancel.
  boost::asio::awaitable<absl::StatusOr<Bytes>> Wait(RoundWish wish,
                                                     std::shared_ptr<Waiter> waiter);

  // From now on a subscription that nobody waits for ends at once.
  void Retire() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Key = std::pair<std::string, wire::RoundState>;
  struct Subscription;
  using SubscriptionPointer = std::shared_ptr<Subscription>;

  // As Wait, without what follows when the time is up: then nothing.
  boost::asio::awaitable<std::optional<absl::StatusOr<Bytes>>> WaitFor(
      const RoundWish& wish, std::shared_ptr<Waiter> waiter, std::chrono::milliseconds longest);
  // Null if there are too many.
  SubscriptionPointer Join(const RoundWish& wish, const std::shared_ptr<Waiter>& waiter)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave(const SubscriptionPointer& subscription, const std::shared_ptr<Waiter>& waiter)
      ABSL_LOCKS_EXCLUDED(mutex_);
  static boost::asio::awaitable<void> Run(std::shared_ptr<RoundWaits> self,
                                          SubscriptionPointer subscription);
  // True if it has ended, as nobody waits for it.
  bool EndIfUnwanted(Subscription& subscription) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(Subscription& subscription, absl::StatusOr<Bytes> answer) ABSL_LOCKS_EXCLUDED(mutex_);

  // How many subscriptions there are for which this is so. Questions how a round is, which follow a
  // wait, are none.
  size_t CountLocked(const std::function<bool(const Subscription&)>& counts) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether this payer may have one more.
  bool HasRoomLocked(const Payer& payer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False, and nothing changes, if one of the payers has its share.
  bool AddLocked(Subscription& subscription, const std::shared_ptr<Waiter>& waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whoever comes from now on subscribes anew.
  void EndLocked(Subscription& subscription) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the call to the frontend up.
  static void Cancel(const SubscriptionPointer& subscription);

  const std::shared_ptr<FrontendLinks> links_;
  boost::asio::io_context* const io_;
  const Options options_;
  Mutex mutex_;
  bool retired_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Key, SubscriptionPointer> subscriptions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_ROUND_WAITS_H_
