#include "src/client/client.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/device.h"
#include "src/client/rows.h"
#include "src/table/row_map.h"

namespace shoal::client {
namespace {

constexpr uint32_t kPollMs = 250;

bool RoundTakesNoMore(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

// Slots that were given are saved at every such part of all, besides at the end.
constexpr size_t kSlotSaves = 8;
// Keys that are looked up in the spool at a time, and bytes of them, and of what is found.
constexpr size_t kBlockKeys = 8192;
constexpr size_t kBlockBytes = 4 << 20;
// Answers that one task unmasks or looks up.
constexpr size_t kAnswerGrain = 64;

// Onions first.. of a device.
OnionRange Part(const HeldRound& held, size_t first, size_t count) {
  return {&held.master, static_cast<uint32_t>(first), static_cast<uint32_t>(count)};
}

std::vector<uint32_t> Sorted(std::vector<uint32_t> items) {
  std::sort(items.begin(), items.end());
  return items;
}

// Which rows (rising) a round is for, as its state keeps it: another lookup, even for some of the same
// rows, is none of its business.
Digest WantedDigest(const HeldRound& held, std::span<const uint32_t> rows) {
  return Transcript("shoal client wanted v1", held.master.view())
      .Blob(BytesView(reinterpret_cast<const uint8_t*>(rows.data()), rows.size_bytes()))
      .Finish();
}

class SpanKeys final : public Keys {
 public:
  explicit SpanKeys(std::span<const Bytes> keys) : keys_(keys) {}
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (const Bytes& key : keys_) SHOAL_RETURN_IF_ERROR(take(key));
    return absl::OkStatus();
  }

 private:
  const std::span<const Bytes> keys_;
};

class VectorResults final : public Results {
 public:
  absl::Status Add(BytesView, const Lookup& result) override {
    results.push_back(result);
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }
  std::vector<Lookup> results;
};

std::string RoundName(const HeldRound& held) { return absl::StrCat("round ", held.counter()); }

}  // namespace

Lookup ResultOf(const table::RowMap& map, const table::RowAnswer& answer, BytesView key) {
  Lookup result;
  auto value = map.Find(answer.row, answer.answer.first(map.row_bytes()), key);
  result.error = value.status();
  if (!value.ok()) return result;
  result.outcome = value->has_value() ? Lookup::Outcome::kFound : Lookup::Outcome::kAbsent;
  if (value->has_value()) result.value = **std::move(value);
  return result;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const roster::PinnedParties& pins,
                                                     ClientOptions options, Transport* transport,
                                                     StateStore* store, Environment environment) {
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad_to must be 1 to ", kMaxPadTo));
  }
  if (options.max_attempts == 0 || options.max_attempts > kMaxAttempts) {
    return absl::InvalidArgumentError(absl::StrCat("max_attempts must be 1 to ", kMaxAttempts));
  }
  if (options.connections == 0 || options.connections > kMaxClientConnections) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections must be 1 to ", kMaxClientConnections));
  }
  const uint64_t now_s = environment.clock->NowSeconds();
  auto deployment = WithRetries(environment.sleep, [&] {
    return Deployment::Fetch(*transport, pins, store->state(), now_s, options.placement_cache);
  });
  if (!deployment.ok()) return deployment.status();
  const uint32_t tolerance_s = deployment->roster().clock_tolerance_s();
  store->state().DropExpired(now_s > tolerance_s ? now_s - tolerance_s : 0);
  SHOAL_RETURN_IF_ERROR(store->Save());
  return std::unique_ptr<Client>(new Client(std::move(options), transport, store,
                                            std::move(environment), *std::move(deployment)));
}

absl::StatusOr<round::Round> Client::VerifyRound(const wire::SignedHeader& header) const {
  return round::Round::Verify(header, deployment_.roster(), deployment_.table_facts(),
                              environment_.clock->NowSeconds());
}

absl::StatusOr<HeldRound*> Client::FindHeld(const Digest& round_id) {
  HeldRound* const held = store_->state().FindRound(round_id);
  if (held == nullptr || held->over) {
    return absl::NotFoundError("this client holds no slots in that round");
  }
  return held;
}

absl::Status Client::GiveUp(HeldRound& held) {
  held.End();
  return store_->Save();
}

// True when the client holds `slots` slots in the round; false if the round takes no more.
absl::StatusOr<bool> Client::TryObtain(const wire::RoundInfo& info, uint32_t slots,
                                       Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(info.header()));
  State& state = store_->state();
  for (const HeldRound& held : state.rounds) {
    if (held.counter() == round.counter().value() && held.id != round.id()) {
      return absl::UnauthenticatedError(
          absl::StrCat(RoundName(held), " has two headers: the parties are not to be trusted"));
    }
  }
  round_id = round.id();
  if (state.FindRound(round_id) == nullptr) {
    if (state.rounds.size() >= State::kMaxRounds) {
      // A frontend that shows header after header must not make the state too large to be read.
      return absl::ResourceExhaustedError(absl::StrCat(
          "this client keeps ", state.rounds.size(),
          " rounds that have not expired, and takes no more: ask again later, or tell the operators"));
    }
    HeldRound held;
    held.header = info.header();
    held.id = round_id;
    held.master = environment_.random->NewSeed();
    state.rounds.push_back(std::move(held));
    // The seed first: a submission that is repeated after a crash must be the same bytes.
    SHOAL_RETURN_IF_ERROR(store_->Save());
  }
  HeldRound& held = *state.FindRound(round_id);
  SHOAL_CHECK(!held.over && held.rows.empty());  // its seed is wiped, or its slots carry rows
  const size_t first = held.slots.size();
  SHOAL_CHECK(first < slots);
  Tell(absl::StrCat("obtaining ", slots - first, " slots in ", RoundName(held)));
  std::vector<uint32_t> added(slots - first);
  const size_t piece = OnionsPerPiece(round, options_.piece_bytes);
  // Pieces come in any order; what is kept is without a gap.
  std::mutex mutex;
  std::vector<bool> come((added.size() + piece - 1) / piece);
  size_t pieces_kept = 0, pieces_come = 0;
  const auto keep_at_least = [&](size_t more) -> absl::Status {
    size_t pieces = pieces_kept;
    while (pieces < come.size() && come[pieces]) ++pieces;
    if (pieces < pieces_kept + more) return absl::OkStatus();
    const size_t from = std::exchange(pieces_kept, pieces) * piece;
    return KeepSlots(held, std::span(added).subspan(
                               from, std::min(added.size(), pieces * piece) - from));
  };
  const size_t save_every = come.size() / kSlotSaves + 1;
  const absl::Status obtained = ForPieces(
      added.size(), piece, [&](Exchange& exchange, size_t from, size_t count) -> absl::Status {
        const OnionRange range = Part(held, first + from, count);
        SHOAL_RETURN_IF_ERROR(
            exchange.SubmitOnions(round, BuildOnions(round, {&range, 1}, environment_.pool),
                                  std::span(added).subspan(from, count)));
        const std::lock_guard lock(mutex);
        come[from / piece] = true;
        Count("obtaining slots", ++pieces_come, come.size());
        return keep_at_least(save_every);
      });
  if (RoundTakesNoMore(obtained)) return false;
  // After an error too: what came need not be sent again.
  const absl::Status kept = keep_at_least(1);
  SHOAL_RETURN_IF_ERROR(obtained);
  SHOAL_RETURN_IF_ERROR(kept);
  return true;
}

absl::Status Client::KeepSlots(HeldRound& held, std::span<const uint32_t> more) {
  std::vector<uint32_t> slots = held.slots;
  slots.insert(slots.end(), more.begin(), more.end());
  const std::vector<uint32_t> sorted = Sorted(slots);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return absl::DataLossError("the frontend gave a slot twice");
  }
  held.slots = std::move(slots);
  return store_->Save();
}

absl::StatusOr<Digest> Client::ObtainNew(uint32_t slots, bool only_new_rounds) {
  const uint64_t deadline_s = environment_.clock->NowSeconds() + options_.timeout_s;
  bool told = false;
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list,
                           exchange_.ListRounds());
    const uint64_t now_s = environment_.clock->NowSeconds();
    std::vector<const wire::RoundInfo*> candidates;
    for (const wire::RoundInfo& info : list.rounds()) {
      const wire::RoundHeader& header = info.header().header();
      if (info.state() != wire::OPEN_FOR_ONIONS) continue;
      // Rounds of the table before this one run out beside those of the new one.
      if (header.manifest_digest() != AsText(deployment_.manifest().digest())) continue;
      const HeldRound* const held = store_->state().FindRound(round::RoundId(header));
      if (held != nullptr && (only_new_rounds || held->over || !held->rows.empty())) continue;
      // Where this client was interrupted, the frontend has onions of it whose slots are not known
      // here yet: it says itself whether there is room.
      if (held == nullptr && info.onions() + slots > header.max_slots()) continue;
      candidates.push_back(&info);
    }
    std::sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
      return a->header().header().counter() < b->header().header().counter();
    });
    absl::Status refused;
    for (const wire::RoundInfo* info : candidates) {
      Digest round_id;
      const auto obtained = TryObtain(*info, slots, round_id);
      if (obtained.ok() && *obtained) return round_id;
      if (!obtained.ok()) {
        if (!absl::IsUnauthenticated(obtained.status()) &&
            !absl::IsInvalidArgument(obtained.status())) {
          return obtained.status();
        }
        refused = obtained.status();  // perhaps another round is a good one
      }
    }
    if (!refused.ok()) return refused;
    if (now_s >= deadline_s) {
      return absl::DeadlineExceededError(absl::StrCat("no round took ", slots, " onions within ",
                                                      options_.timeout_s, " seconds"));
    }
    if (!std::exchange(told, true)) Tell("waiting for a round that takes onions");
    environment_.sleep(kPollMs);
  }
}

absl::Status Client::DropUnusable() {
  for (HeldRound& held : store_->state().rounds) {
    // Another table or roster by now, or out of its time: its slots are lost.
    if (!held.over && !VerifyRound(held.header).ok()) SHOAL_RETURN_IF_ERROR(GiveUp(held));
  }
  return absl::OkStatus();
}

std::optional<Digest> Client::FindBegun(std::span<const uint32_t> rows) {
  for (const HeldRound& held : store_->state().rounds) {
    if (!held.rows.empty() && held.wanted == WantedDigest(held, rows)) return held.id;
  }
  return std::nullopt;
}

absl::StatusOr<Digest> Client::Obtain(uint32_t queries) {
  SHOAL_RETURN_IF_ERROR(DropUnusable());
  std::vector<HeldRound*> unused;
  for (HeldRound& held : store_->state().rounds) {
    if (!held.over && held.rows.empty() && held.slots.size() >= queries) unused.push_back(&held);
  }
  std::sort(unused.begin(), unused.end(),
            [](const auto* a, const auto* b) { return a->counter() < b->counter(); });
  for (HeldRound* held : unused) {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundState state, exchange_.StateOf(held->id));
    if (state <= wire::OPEN_FOR_QUERIES) return held->id;
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  }
  return ObtainNew(queries, /*only_new_rounds=*/false);
}

absl::StatusOr<Digest> Client::ObtainAhead(uint32_t slots) {
  if (slots == 0) return absl::InvalidArgumentError("no slots asked for");
  return ObtainNew(slots, /*only_new_rounds=*/true);
}

absl::Status Client::Submit(const Digest& round_id, std::span<const uint32_t> rows) {
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, FindHeld(round_id));
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(held->header));
  const uint32_t tolerance_s = deployment_.roster().clock_tolerance_s();
  Tell(absl::StrCat("waiting for ", RoundName(*held), " to take queries"));
  SHOAL_ASSIGN_OR_RETURN(const wire::RoundState state,
                         exchange_.WaitFor(round_id, wire::OPEN_FOR_QUERIES,
                                           round.header().queries_close_s() + tolerance_s));
  const bool begun = !held->rows.empty();
  if (state == wire::ABORTED) {
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
    return absl::AbortedError("the round was aborted before it took queries");
  }
  if (state != wire::OPEN_FOR_QUERIES) {
    if (begun) return absl::OkStatus();  // Collect finds out whether they were in
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
    // Nothing was sent, so that nothing is lost but the slots.
    return absl::AbortedError("the round closed before this client could send its queries");
  }
  if (!begun) {
    const uint32_t count =
        PaddedCount(rows.size(), options_.pad_to, deployment_.manifest().rows());
    if (count > held->slots.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          count, " queries, but only ", held->slots.size(), " slots in ", RoundName(*held)));
    }
    held->rows = PadRows(rows, count, deployment_.manifest().rows(), *environment_.random);
    held->wanted = WantedDigest(*held, Sorted({rows.begin(), rows.end()}));
    store_->state().ledger.Add({.sent_s = environment_.clock->NowSeconds(),
                                .round_counter = held->counter(),
                                .queries = count,
                                .epsilon = round.header().noise().epsilon(),
                                .delta = round.header().noise().delta(),
                                .phi = round.header().noise().phi()});
    // The rows and the charge first: after this, these slots carry these rows for ever.
    if (absl::Status saved = store_->Save(); !saved.ok()) {
      held->End();  // what is on disk is unknown, so the slots must not be used
      return saved;
    }
  } else {
    const std::vector<uint32_t> asked = Sorted(held->rows);
    const std::vector<uint32_t> wanted = Sorted({rows.begin(), rows.end()});
    if (!std::includes(asked.begin(), asked.end(), wanted.begin(), wanted.end())) {
      return absl::FailedPreconditionError(
          absl::StrCat("the slots in ", RoundName(*held), " carry other rows"));
    }
  }
  Tell(absl::StrCat("sending ", held->rows.size(), " queries"));
  const size_t total = held->rows.size();
  std::atomic<size_t> done = 0;
  const absl::Status sent =
      ForPieces(total, QueriesPerPiece(options_.piece_bytes),
                [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
                  const OnionRange range = Part(*held, first, count);
                  SHOAL_RETURN_IF_ERROR(exchange.SubmitQueries(
                      round, {&range, 1}, std::span(held->slots).subspan(first, count),
                      std::span(held->rows).subspan(first, count)));
                  Count("sending queries", done += count, total);
                  return absl::OkStatus();
                });
  // While the frontend cannot be reached, the same bytes can still be sent later on.
  if (!sent.ok() && !absl::IsUnavailable(sent)) SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  return Annotate(sent, "sending queries");
}

absl::StatusOr<std::unique_ptr<AnswerSpool>> Client::OpenSpool(const HeldRound& held) {
  return AnswerSpool::Open(store_->AnswersPath(held.counter()), held.id, held.rows.size(),
                           held.header.header().answer_bytes(), options_.piece_bytes);
}

absl::Status Client::Collect(const Digest& round_id, AnswerSpool& spool) {
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, FindHeld(round_id));
  if (held->rows.empty()) return absl::FailedPreconditionError("no queries were sent");
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(held->header));
  Tell(absl::StrCat("waiting for the answers of ", RoundName(*held)));
  const uint32_t tolerance_s = deployment_.roster().clock_tolerance_s();
  SHOAL_ASSIGN_OR_RETURN(
      const wire::RoundState state,
      exchange_.WaitFor(round_id, wire::ANSWERED, round.header().expires_s() + tolerance_s));
  if (state != wire::ANSWERED) {
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
    if (state == wire::ABORTED) return absl::AbortedError("the round was aborted");
    return absl::FailedPreconditionError("the round was closed before its answers were fetched");
  }
  const size_t total = held->rows.size();
  Tell(absl::StrCat("fetching ", total, " answers"));
  std::atomic<size_t> done = 0;
  std::atomic<bool> disk_failed = false;
  const absl::Status fetched = ForPieces(
      total, spool.per_piece(),
      [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
        const size_t piece = first / spool.per_piece();
        if (!spool.Has(piece)) {
          const OnionRange range = Part(*held, first, count);
          Bytes answers(count * round.answer_bytes());
          SHOAL_RETURN_IF_ERROR(exchange.FetchAnswers(
              round, {&range, 1}, std::span(held->slots).subspan(first, count), answers));
          if (absl::Status put = spool.Put(piece, answers); !put.ok()) {
            disk_failed = true;
            return put;
          }
        }
        Count("fetching answers", done += count, total);
        return absl::OkStatus();
      });
  // What is missing can still be fetched when the frontend, or the disk, is there again.
  if (!fetched.ok() && !absl::IsUnavailable(fetched) && !disk_failed) {
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  }
  return Annotate(fetched, "fetching answers");
}

absl::StatusOr<std::vector<uint32_t>> Client::RowsOf(Keys& keys) {
  RowSet rows;
  uint64_t number = 0;
  SHOAL_RETURN_IF_ERROR(keys.ForEach([&](BytesView key) -> absl::Status {
    ++number;
    const auto row = deployment_.map().RowOf(key);
    // The manifest alone says that there is none: it costs no row, and must not show.
    if (absl::IsOutOfRange(row.status())) return absl::OkStatus();
    if (!row.ok()) return Annotate(row.status(), absl::StrCat("key ", number));
    rows.Add(static_cast<uint32_t>(*row));
    return absl::OkStatus();
  }));
  return rows.Take();
}

struct Client::Asked {
  HeldRound* held;
  round::Round round;
  std::unique_ptr<AnswerSpool> spool;  // complete
};

absl::StatusOr<Client::Asked> Client::Ask(std::span<const uint32_t> rows) {
  const uint32_t count = PaddedCount(rows.size(), options_.pad_to, deployment_.manifest().rows());
  absl::Status aborted;
  for (uint32_t attempt = 1; attempt <= options_.max_attempts; ++attempt) {
    SHOAL_RETURN_IF_ERROR(DropUnusable());
    std::optional<Digest> round_id = FindBegun(rows);  // before an interruption, perhaps
    if (!round_id) {
      // A submission whose answers have no room would be paid for in vain.
      SHOAL_RETURN_IF_ERROR(AnswerSpool::CheckRoom(
          store_->AnswersPath(0), uint64_t{count} * deployment_.manifest().answer_bytes()));
      SHOAL_ASSIGN_OR_RETURN(round_id, Obtain(count));
    }
    HeldRound* const held = store_->state().FindRound(*round_id);
    SHOAL_ASSIGN_OR_RETURN(round::Round round, VerifyRound(held->header));
    std::unique_ptr<AnswerSpool> spool;
    const auto ask = [&]() -> absl::Status {
      if (!held->rows.empty()) {
        SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(*held));
        if (spool->complete()) return absl::OkStatus();
      }
      SHOAL_RETURN_IF_ERROR(Submit(*round_id, rows));
      if (spool == nullptr) {
        SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(*held));
      }
      return Collect(*round_id, *spool);
    };
    aborted = ask();
    if (aborted.ok()) return Asked{held, std::move(round), std::move(spool)};
    if (!absl::IsAborted(aborted)) return aborted;
    Tell(aborted.message());
  }
  return Annotate(aborted, "giving up");
}

struct Client::Answers {
  enum State : uint8_t { kPadding, kFailed, kVerified };
  // Places in HeldRound::rows, the smallest row's first.
  std::vector<uint32_t> order;
  std::vector<State> states;  // by place
};

absl::StatusOr<Client::Answers> Client::Verify(const Asked& asked,
                                               std::span<const uint32_t> rows) {
  const HeldRound& held = *asked.held;
  const AnswerSpool& spool = *asked.spool;
  Answers answers = {std::vector<uint32_t>(held.rows.size()),
                     std::vector<Answers::State>(held.rows.size(), Answers::kPadding)};
  std::iota(answers.order.begin(), answers.order.end(), 0);
  std::sort(answers.order.begin(), answers.order.end(),
            [&](uint32_t a, uint32_t b) { return held.rows[a] < held.rows[b]; });
  auto wanted = rows.begin();
  for (const uint32_t place : answers.order) {
    if (wanted == rows.end()) break;
    if (held.rows[place] != *wanted) continue;
    answers.states[place] = Answers::kFailed;
    ++wanted;
  }
  Tell(absl::StrCat("verifying ", rows.size(), " rows"));
  const size_t answer_bytes = asked.round.answer_bytes();
  Bytes unmasked;
  for (size_t piece = 0; piece < spool.pieces(); ++piece) {
    const size_t first = spool.FirstOf(piece), count = spool.CountOf(piece);
    unmasked.resize(count * answer_bytes);
    SHOAL_RETURN_IF_ERROR(spool.Read(first, unmasked));
    environment_.pool->ParallelFor(count, kAnswerGrain, [&](size_t begin, size_t end) {
      Unmask(asked.round, Part(held, first + begin, end - begin),
             MutableBytes(unmasked).subspan(begin * answer_bytes, (end - begin) * answer_bytes));
    });
    std::vector<table::RowAnswer> row_answers;
    std::vector<uint32_t> places;
    for (size_t i = 0; i < count; ++i) {
      if (answers.states[first + i] == Answers::kPadding) continue;
      row_answers.push_back({held.rows[first + i],
                             BytesView(unmasked).subspan(i * answer_bytes, answer_bytes)});
      places.push_back(static_cast<uint32_t>(first + i));
    }
    const std::vector<absl::Status> verified = deployment_.map().VerifyAnswers(
        deployment_.roster(), row_answers, *environment_.random, environment_.pool);
    for (size_t i = 0; i < places.size(); ++i) {
      if (verified[i].ok()) answers.states[places[i]] = Answers::kVerified;
    }
    Count("verifying", first + count, spool.count());
  }
  return answers;
}

absl::Status Client::Deliver(const Asked& asked, const Answers& answers, Keys& keys,
                             Results& results) {
  const HeldRound& held = *asked.held;
  const table::RowMap& map = deployment_.map();
  // It may have expired while the answers were on their way.
  const absl::Status current =
      deployment_.manifest().CheckTime(deployment_.roster(), environment_.clock->NowSeconds());
  const size_t answer_bytes = asked.round.answer_bytes();

  const auto find = [&](BytesView key, Lookup& result) -> absl::Status {
    result.error = current;
    if (!current.ok()) return absl::OkStatus();
    const auto row = map.RowOf(key);
    if (absl::IsOutOfRange(row.status())) {
      result.outcome = Lookup::Outcome::kAbsent;
      return absl::OkStatus();
    }
    const auto at = std::lower_bound(
        answers.order.begin(), answers.order.end(), row.ok() ? *row : 0,
        [&](uint32_t place, uint64_t wanted) { return held.rows[place] < wanted; });
    if (!row.ok() || at == answers.order.end() || held.rows[*at] != *row ||
        answers.states[*at] == Answers::kPadding) {
      return absl::FailedPreconditionError(
          "was not among the keys when they were read for the first time: they must not change "
          "meanwhile");
    }
    if (answers.states[*at] == Answers::kFailed) {
      result.error = absl::UnauthenticatedError(
          absl::StrCat("row ", *row, ": the answer is not signed by all parties"));
      return absl::OkStatus();
    }
    Bytes answer(answer_bytes);
    SHOAL_RETURN_IF_ERROR(asked.spool->Read(*at, answer));
    Unmask(asked.round, Part(held, *at, 1), answer);
    result = ResultOf(map, {*row, answer}, key);
    return absl::OkStatus();
  };

  // A block of keys at a time, on all threads. A value is no longer than an answer.
  const size_t most = std::clamp<size_t>(kBlockBytes / answer_bytes, 1, kBlockKeys);
  Bytes text;
  std::vector<size_t> ends;
  uint64_t delivered = 0;
  const auto flush = [&]() -> absl::Status {
    const auto key = [&](size_t i) {
      const size_t begin = i == 0 ? 0 : ends[i - 1];
      return BytesView(text).subspan(begin, ends[i] - begin);
    };
    std::vector<Lookup> found(ends.size());
    std::vector<absl::Status> errors(ends.size());
    environment_.pool->ParallelFor(ends.size(), kAnswerGrain, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) errors[i] = find(key(i), found[i]);
    });
    for (size_t i = 0; i < ends.size(); ++i) {
      ++delivered;
      if (!errors[i].ok()) return Annotate(errors[i], absl::StrCat("key ", delivered));
      SHOAL_RETURN_IF_ERROR(results.Add(key(i), found[i]));
    }
    text.clear();
    ends.clear();
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(keys.ForEach([&](BytesView key) -> absl::Status {
    Append(text, key);
    ends.push_back(text.size());
    return ends.size() < most && text.size() < kBlockBytes ? absl::OkStatus() : flush();
  }));
  return flush();
}

absl::Status Client::LookUp(Keys& keys, Results& results) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> rows, RowsOf(keys));
  SHOAL_ASSIGN_OR_RETURN(const Asked asked, Ask(rows));
  // Everything was sent, and the connections end: from here on it may matter what the answers are.
  HangUp();
  SHOAL_ASSIGN_OR_RETURN(const Answers answers, Verify(asked, rows));
  SHOAL_RETURN_IF_ERROR(Deliver(asked, answers, keys, results));
  SHOAL_RETURN_IF_ERROR(results.Finish());
  return GiveUp(*asked.held);
}

absl::StatusOr<std::vector<Lookup>> Client::LookUp(std::span<const Bytes> keys) {
  SpanKeys source(keys);
  VectorResults sink;
  SHOAL_RETURN_IF_ERROR(LookUp(source, sink));
  return std::move(sink.results);
}

absl::Status Client::ForPieces(
    size_t total, size_t piece,
    const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work) {
  if (total <= piece || options_.connections == 1 || !environment_.connect) {
    for (size_t first = 0; first < total; first += piece) {
      SHOAL_RETURN_IF_ERROR(work(exchange_, first, std::min(piece, total - first)));
    }
    return absl::OkStatus();
  }
  if (lanes_ == nullptr) lanes_ = std::make_unique<ThreadPool>(options_.connections - 1);
  const absl::Status status = client::ForPieces(
      total, piece, lanes_.get(), [&](size_t first, size_t count) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, connections_.Take());
        Exchange exchange(transport.get(), environment_.sleep, environment_.clock);
        const absl::Status done = work(exchange, first, count);
        connections_.Give(std::move(transport));
        return done;
      });
  // None waits idle for the round's next state.
  connections_.HangUp();
  return status;
}

void Client::HangUp() {
  exchange_.HangUp();
  connections_.HangUp();
}

Traffic Client::traffic() const {
  const Traffic one = transport_->traffic(), others = connections_.traffic();
  return {one.sent + others.sent, one.received + others.received};
}

}  // namespace shoal::client
