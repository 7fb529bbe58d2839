#include "src/shoald/control.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/round/header.h"
#include "src/wire/frame.h"

namespace shoal::shoald {
namespace {

// How long a machine may be late for a tick because it computes. Its ticks have a thread of their
// own, so that one that comes to none hangs. Before the first tick, machines read their tables.
constexpr uint64_t kLateLimitS = 30;

// As an error's text passes: a neighbour may have made it, and text that is cut within a character
// would not be text any more, which no machine would take.
std::string ControlText(absl::string_view message) {
  return wire::Printable(message.substr(0, wire::kMostControlTextBytes));
}

absl::Status Spoiled(uint32_t rank, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("machine ", rank, " says what no machine says: ", what));
}

// Adds an entry if there is room for it.
template <typename Entry>
bool Add(const Entry& entry, wire::Control& to,
         google::protobuf::RepeatedPtrField<Entry>* (wire::Control::*list)()) {
  auto* const entries = (to.*list)();
  // A field's tag and its length take 4 bytes at most.
  if (entries->size() == wire::kMostControlEntries ||
      to.ByteSizeLong() + entry.ByteSizeLong() + 4 > wire::kMostControlMessageBytes) {
    return false;
  }
  *entries->Add() = entry;
  return true;
}

}  // namespace

Control::Control(machines::Machines* machines, Options options)
    : machines_(machines), options_(std::move(options)) {
  SHOAL_CHECK(machines->count() > 1);
  if (options_.period.count() > 0) ticks_ = std::thread([this] { TickUntilEnded(); });
}

Control::~Control() {
  bool ended;
  {
    const MutexLock lock(mutex_);
    ended = std::exchange(ended_, true);
    changed_.NotifyAll();
  }
  if (!ended) machines_->GiveUp();
  if (ticks_.joinable()) ticks_.join();
  tasks_.Wait();
}

absl::Status Control::AwaitFirstTick() {
  const MutexLock lock(mutex_);
  while (!ticked_ && !ended_) changed_.Wait(mutex_);
  return ticked_ ? absl::OkStatus() : absl::UnavailableError("the party's machines have ended");
}

std::chrono::steady_clock::duration Control::SinceTick() const {
  const MutexLock lock(mutex_);
  return std::chrono::steady_clock::now() - last_tick_;
}

void Control::AddLocked(const Digest& round_id, OrderedRound& round, wire::RoundOrder order) {
  order.set_number(++orders_);
  order.set_round(round.number);
  std::set<uint32_t>& undone = round.undone[order.number()];
  for (uint32_t rank = 1; rank < machines_->count(); ++rank) undone.insert(rank);
  ids_[round.number] = round_id;
  to_send_.push_back(std::move(order));
}

void Control::Open(uint32_t round, const wire::SignedHeader& header, const Seed& root) {
  SHOAL_CHECK(is_head());
  wire::RoundOrder order;
  *order.mutable_open()->mutable_header() = header;
  order.mutable_open()->set_root_seed(ToString(root.view()));
  const Digest id = round::RoundId(header.header());
  const MutexLock lock(mutex_);
  SHOAL_CHECK(round > rounds_);
  rounds_ = round;
  OrderedRound& added = ordered_[id];
  added.number = round;
  AddLocked(id, added, std::move(order));
  added.opening = orders_;
}

absl::Status Control::Order(const Digest& round_id, wire::RoundStep step, uint64_t attempt) {
  wire::RoundOrder order;
  order.mutable_step()->set_step(step);
  order.mutable_step()->set_attempt(attempt);
  const MutexLock lock(mutex_);
  const auto round = ordered_.find(round_id);
  if (round == ordered_.end() || round->second.ended) {
    return absl::NotFoundError("the round has ended");
  }
  AddLocked(round_id, round->second, std::move(order));
  return absl::OkStatus();
}

void Control::End(const Digest& round_id) {
  wire::RoundOrder order;
  order.set_end(true);
  const MutexLock lock(mutex_);
  const auto round = ordered_.find(round_id);
  if (round == ordered_.end() || std::exchange(round->second.ended, true)) return;
  AddLocked(round_id, round->second, std::move(order));
  changed_.NotifyAll();
}

absl::Status Control::WaitForOthers(const Digest& round_id) {
  const MutexLock lock(mutex_);
  for (;;) {
    if (ended_) return absl::UnavailableError("the party's machines have ended");
    const auto round = ordered_.find(round_id);
    if (round == ordered_.end() || round->second.ended) {
      return absl::NotFoundError("the round has ended");
    }
    if (round->second.undone.empty()) {
      const auto errors = std::exchange(round->second.errors, {});
      return errors.empty() ? absl::OkStatus() : errors.begin()->second;
    }
    changed_.Wait(mutex_);
  }
}

void Control::Stop() {
  const MutexLock lock(mutex_);
  // Another thread that has ended a round may not have said so yet.
  const auto all_ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ranges::all_of(ordered_, [](const auto& entry) { return entry.second.ended; });
  };
  while (!ended_ && !all_ended()) changed_.Wait(mutex_);
  stopping_ = true;
  while (!ended_) changed_.Wait(mutex_);
}

absl::Status Control::Tick() {
  {
    const MutexLock lock(mutex_);
    if (ended_) return absl::UnavailableError("the party's machines have ended");
  }
  const absl::Status ticked = TryTick();
  if (ticked.ok()) return ticked;
  machines_->GiveUp();
  bool first;
  {
    const MutexLock lock(mutex_);
    first = !std::exchange(ended_, true);
    changed_.NotifyAll();
  }
  if (first && options_.ended) options_.ended(ticked);
  return ticked;
}

absl::Status Control::TryTick() {
  const wire::Control mine = is_head() ? ComposeOrders() : ComposeResults();
  SHOAL_ASSIGN_OR_RETURN(
      const auto all, machines_->Gather("control", wire::EncodeControl(mine), wire::kControlBytes));
  {
    const MutexLock lock(mutex_);
    last_tick_ = std::chrono::steady_clock::now();
  }
  bool last = false;
  for (uint32_t rank = 0; rank < machines_->count(); ++rank) {
    SHOAL_ASSIGN_OR_RETURN(const wire::Control said, wire::DecodeControl(all[rank]));
    if (options_.epochs_said) {
      options_.epochs_said(rank, {said.epochs().begin(), said.epochs().end()});
    }
    if (rank == 0) {
      last = said.last();
      if (said.results_size() + said.counts_size() > 0) return Spoiled(rank, "results of the head");
      if (!is_head()) SHOAL_RETURN_IF_ERROR(TakeOrders(said));
      for (const wire::ToldRound& told : said.told()) {
        if (options_.told) options_.told(told);
      }
      if (said.told_before() && !std::exchange(before_told_, true) && options_.before_is_told) {
        options_.before_is_told();
      }
    } else {
      if (said.orders_size() + said.told_size() > 0 || said.last() || said.told_before()) {
        return Spoiled(rank, "orders of another than the head");
      }
      if (is_head()) SHOAL_RETURN_IF_ERROR(TakeResults(rank, said));
    }
  }
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(ticked_, true)) {
      machines_->LimitWork(kLateLimitS);
      changed_.NotifyAll();
    }
  }
  if (!last) return absl::OkStatus();
  machines_->Finish();
  {
    const MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return absl::OkStatus();
    changed_.NotifyAll();
  }
  if (options_.ended) options_.ended(absl::OkStatus());
  return absl::OkStatus();
}

wire::Control Control::Begin() const {
  wire::Control out;
  if (options_.epochs == nullptr) return out;
  const std::vector<uint64_t> epochs = options_.epochs();
  SHOAL_CHECK(epochs.size() <= kMostEpochs);
  out.mutable_epochs()->Add(epochs.begin(), epochs.end());
  return out;
}

wire::Control Control::ComposeOrders() {
  wire::Control out = Begin();
  {
    const MutexLock lock(mutex_);
    while (!to_send_.empty() && Add(to_send_.front(), out, &wire::Control::mutable_orders)) {
      to_send_.pop_front();
    }
    out.set_last(stopping_ && ordered_.empty());
  }
  if (options_.tell == nullptr) return out;
  out.set_told_before(true);  // counts for the room until it is known
  const size_t room = wire::kMostControlMessageBytes - out.ByteSizeLong();
  if (to_tell_.empty() && room >= wire::kMostToldBytes) {
    for (wire::ToldRound& told : options_.tell(room)) {
      SHOAL_CHECK(told.ByteSizeLong() <= wire::kMostToldBytes);
      to_tell_.push_back(std::move(told));
    }
  }
  while (!to_tell_.empty() && Add(to_tell_.front(), out, &wire::Control::mutable_told)) {
    to_tell_.pop_front();
  }
  out.set_told_before(to_tell_.empty() && options_.has_told_before && options_.has_told_before());
  return out;
}

wire::Control Control::ComposeResults() {
  wire::Control out = Begin();
  std::set<uint32_t> counted;  // rounds whose counts are in `out`
  // False if there is no room for them.
  const auto add_counts = [&](uint32_t number, const Digest& id) {
    if (options_.count == nullptr || counted.contains(number)) return true;
    wire::MachineCounts counts;
    counts.set_round(number);
    options_.count(id, counts);
    counts.set_storage_message(ControlText(counts.storage_message()));
    if (!Add(counts, out, &wire::Control::mutable_counts)) return false;
    counted.insert(number);
    return true;
  };
  for (;;) {
    Result next;
    std::optional<Digest> open;
    {
      const MutexLock lock(mutex_);
      if (results_.empty()) break;
      next = results_.front();
      const auto round = obeyed_.find(next.round);
      if (round != obeyed_.end() && round->second.open && !round->second.ending) {
        open = round->second.id;
      }
    }
    // With what the round's step has made of its counts: the head goes by them.
    if (open.has_value() && !add_counts(next.round, *open)) break;
    if (!Add(next.result, out, &wire::Control::mutable_results)) break;
    const MutexLock lock(mutex_);
    results_.pop_front();
  }
  std::vector<std::pair<uint32_t, Digest>> open;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, round] : obeyed_) {
      if (round.open && !round.ending) open.emplace_back(number, round.id);
    }
    // Those that did not fit come first.
    std::ranges::rotate(open, std::ranges::upper_bound(open, counted_, {}, [](const auto& round) {
                          return round.first;
                        }));
  }
  for (const auto& [number, id] : open) {
    if (!add_counts(number, id)) break;
    const MutexLock lock(mutex_);
    counted_ = number;
  }
  return out;
}

absl::Status Control::TakeResults(uint32_t rank, const wire::Control& said) {
  // Before the results: whoever waits for a step goes by what a machine counts after it.
  for (const wire::MachineCounts& counts : said.counts()) {
    Digest id;
    {
      const MutexLock lock(mutex_);
      const auto found = ids_.find(counts.round());
      if (found == ids_.end()) continue;  // it has ended meanwhile
      id = found->second;
    }
    if (options_.counted) options_.counted(rank, id, counts);
  }
  for (const wire::OrderResult& result : said.results()) {
    const absl::Status status(static_cast<absl::StatusCode>(result.code()), result.message());
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find_if(ordered_, [&](const auto& entry) {
      const auto order = entry.second.undone.find(result.number());
      return order != entry.second.undone.end() && order->second.contains(rank);
    });
    if (found == ordered_.end()) return Spoiled(rank, "a result of no order");
    OrderedRound& round = found->second;
    const auto order = round.undone.find(result.number());
    order->second.erase(rank);
    if (order->second.empty()) round.undone.erase(order);
    if (!status.ok()) {
      round.errors[{result.number(), rank}] = status;
      if (result.number() == round.opening && !round.ended && options_.failed) {
        tasks_.Spawn([this, id = found->first, status] { options_.failed(id, status); });
      }
    }
    if (round.ended && round.undone.empty()) {
      ids_.erase(round.number);
      ordered_.erase(found);
    }
    changed_.NotifyAll();
  }
  return absl::OkStatus();
}

absl::Status Control::TakeOrders(const wire::Control& said) {
  const MutexLock lock(mutex_);
  for (const wire::RoundOrder& order : said.orders()) {
    if (order.number() != orders_ + 1) return Spoiled(0, "an order out of turn");
    orders_ = order.number();
    if (order.has_open()) {
      if (order.round() <= rounds_) return Spoiled(0, "a round that was there");
      rounds_ = order.round();
      obeyed_[rounds_].id = round::RoundId(order.open().header().header());
    }
    const auto round = obeyed_.find(order.round());
    if (round == obeyed_.end()) return Spoiled(0, "an order for a round that is not there");
    round->second.orders.push_back(order);
    BeginLocked(order.round(), round->second);
  }
  return absl::OkStatus();
}

void Control::BeginLocked(uint32_t number, ObeyedRound& round) {
  if (round.ending || round.orders.empty()) return;
  // An end goes before all steps, but not before the round is open.
  auto next = round.orders.begin();
  if (round.open) {
    const auto end =
        std::ranges::find_if(round.orders, [](const auto& order) { return order.end(); });
    if (end != round.orders.end()) next = end;
  }
  if (round.at_work && !(round.open && next->end())) return;
  wire::RoundOrder order = std::move(*next);
  round.orders.erase(next);
  (order.end() ? round.ending : round.at_work) = true;
  tasks_.Spawn(
      [this, number, id = round.id, order = std::move(order)] { Obey(number, id, order); });
}

void Control::Obey(uint32_t number, const Digest& round_id, const wire::RoundOrder& order) {
  const absl::Status done =
      options_.obey ? options_.obey(round_id, order) : absl::UnimplementedError("takes no orders");
  const MutexLock lock(mutex_);
  AddResultLocked(number, order.number(), done);
  ObeyedRound& round = obeyed_.at(number);
  if (order.end()) {
    for (const wire::RoundOrder& left : round.orders) {
      AddResultLocked(number, left.number(), absl::CancelledError("the round has ended"));
    }
    round.orders.clear();
    round.ended = true;
  } else {
    round.at_work = false;
    round.open = true;
  }
  if (round.ended && !round.at_work) {
    obeyed_.erase(number);
  } else {
    BeginLocked(number, round);
  }
}

void Control::AddResultLocked(uint32_t round, uint64_t order, const absl::Status& status) {
  wire::OrderResult& result = results_.emplace_back(Result{.round = round, .result = {}}).result;
  result.set_number(order);
  result.set_code(static_cast<uint32_t>(status.code()));
  result.set_message(ControlText(status.message()));
}

void Control::TickUntilEnded() {
  auto next = std::chrono::steady_clock::now();
  while (Tick().ok()) {
    // Whoever is late does not make up for it: ticks have a pace, and no number in a second.
    next = std::max(next + options_.period, std::chrono::steady_clock::now());
    const MutexLock lock(mutex_);
    while (!ended_ && changed_.WaitUntil(mutex_, next)) {
    }
    if (ended_) return;
  }
}

}  // namespace shoal::shoald
