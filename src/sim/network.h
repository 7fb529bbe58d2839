// The network between simulated processes: requests and answers of src/wire/frame.h, as TLS brings
// them (whole, in order, or the connection breaks), and what can go wrong with it.
#ifndef SHOAL_SRC_SIM_NETWORK_H_
#define SHOAL_SRC_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/net/server.h"
#include "src/sim/scheduler.h"
#include "src/wire/frame.h"

namespace shoal::sim {

// Parties have their numbers, which are also the addresses of their heads; other machines of a
// party have numbers that end in the same digit. Clients have numbers from kFirstClient on.
using Address = int;
inline constexpr Address kFirstClient = 100;
inline Address MachineAddress(uint32_t party, uint32_t rank) {
  return static_cast<Address>(party + 10 * rank);
}
inline uint32_t PartyAt(Address machine) { return static_cast<uint32_t>(machine % 10); }
inline uint32_t RankAt(Address machine) { return static_cast<uint32_t>(machine / 10); }

class Network {
 public:
  // How likely each is, for one call.
  struct Faults {
    double lost = 0;      // the request, or the answer: the connection breaks some time later
    double slow = 0;      // seconds instead of milliseconds, so that calls overtake each other
    double repeated = 0;  // the request arrives again later; the second answer is dropped
    double cut = 0;       // the connection breaks in the middle of the request or of the answer
  };
  struct Listener {
    Process* process = nullptr;
    std::function<absl::StatusOr<wire::FrameLimits>(wire::FrameType)> limits = nullptr;
    std::function<absl::StatusOr<std::unique_ptr<net::BulkSink>>(const wire::Frame& request,
                                                                 uint64_t bulk_bytes)>
        sink = nullptr;
    net::Handler handler = nullptr;
    bool closed = false;
  };
  struct Answer {
    wire::Frame frame;  // with its bulk
    // Whether the connection broke before all of the bulk was there.
    bool cut = false;
  };

  Network(Scheduler* scheduler, uint64_t seed) : scheduler_(scheduler), rng_(seed) {}

  Faults& faults() { return faults_; }
  // Nothing gets from one to the other, either way, until it is unblocked.
  void Block(Address a, Address b) { blocked_.insert(std::minmax(a, b)); }
  void Unblock(Address a, Address b) { blocked_.erase(std::minmax(a, b)); }
  void UnblockAll() { blocked_.clear(); }
  // Called with each request as it is sent, and each answer; may change them.
  std::function<void(Address from, Address to, wire::Frame& request)> on_request;
  std::function<void(Address from, Address to, const wire::Frame& request, Answer& answer)>
      on_answer;
  // Called when a source of what a program sends was asked for its next piece: whether it gave one.
  std::function<void(bool given)> on_next;

  void Listen(Address address, Listener listener) {
    listeners_[address] = std::make_shared<Listener>(std::move(listener));
  }
  // All connections of the listener's process break, and new ones are refused. On a fiber; returns
  // when nothing calls the listener any more.
  void Close(Address address);
  // Its process has ended. `silently`: the machine lost its power, and nobody is told.
  void Died(const Process* process, bool silently);

  // On a fiber. An ERROR frame comes back as its status. UNAVAILABLE: the connection broke or was
  // refused; DEADLINE_EXCEEDED; CANCELLED.
  absl::StatusOr<Answer> Call(Address from, Address to, wire::Frame request, Time timeout,
                              const std::function<bool()>& cancelled = nullptr);
  // Appends what the source gives until it fails, or gives an empty piece, as a connection does.
  absl::Status Drain(ByteSource& source, Bytes& all) const;
  // The connections of all that the process is answering break; answers that come later are lost.
  void BreakCalls(const Process* server);
  // A request whose answer nobody waits for.
  void Send(Address from, Address to, wire::Frame request, Time delay);

 private:
  struct Pending;
  using PendingPointer = std::shared_ptr<Pending>;
  void Deliver(PendingPointer pending, Address from, Address to, wire::Frame request);
  void Serve(const Listener& listener, PendingPointer pending, Address from, Address to,
             wire::Frame request);
  void Complete(const PendingPointer& pending, absl::StatusOr<Answer> answer, Time delay);
  Time Latency();

  Scheduler* const scheduler_;
  Rng rng_;
  Faults faults_;
  std::set<std::pair<Address, Address>> blocked_;
  std::map<Address, std::shared_ptr<Listener>> listeners_;
  // Machines that lost their power: nobody refuses a connection there.
  std::set<const Process*> silent_;
  std::vector<PendingPointer> served_;  // being answered
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_NETWORK_H_
