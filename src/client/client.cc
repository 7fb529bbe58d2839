#include "src/client/client.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/client/device.h"
#include "src/table/row_map.h"

namespace shoal::client {
namespace {

constexpr uint32_t kPollMs = 250;

bool RoundTakesNoMore(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

template <typename T>
void Shuffle(std::vector<T>& items, RandomSource& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.Below(i)]);
}

// The onions whose slots carry rows.
OnionRange Used(const HeldRound& held) {
  return {&held.master, 0, static_cast<uint32_t>(held.rows.size())};
}

std::string RoundName(const HeldRound& held) { return absl::StrCat("round ", held.counter()); }

}  // namespace

uint32_t PaddedCount(size_t distinct_rows, uint32_t pad_to, uint64_t table_rows) {
  const uint64_t multiples = std::max<uint64_t>(1, (distinct_rows + pad_to - 1) / pad_to);
  return static_cast<uint32_t>(std::min<uint64_t>(multiples * pad_to, table_rows));
}

std::vector<uint32_t> PadRows(std::span<const uint32_t> rows, uint32_t count, uint64_t table_rows,
                              RandomSource& random) {
  SHOAL_CHECK(rows.size() <= count && count <= table_rows);
  std::vector<uint32_t> padded(rows.begin(), rows.end());
  std::unordered_set<uint32_t> taken(rows.begin(), rows.end());
  SHOAL_CHECK(taken.size() == rows.size());
  if (count > table_rows / 2) {
    std::vector<uint32_t> others;
    for (uint32_t row = 0; row < table_rows; ++row) {
      if (!taken.contains(row)) others.push_back(row);
    }
    Shuffle(others, random);
    padded.insert(padded.end(), others.begin(), others.begin() + (count - rows.size()));
  } else {
    while (padded.size() < count) {
      const uint32_t row = static_cast<uint32_t>(random.Below(table_rows));
      if (taken.insert(row).second) padded.push_back(row);
    }
  }
  Shuffle(padded, random);
  return padded;
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
  Tell(absl::StrCat("obtaining ", slots - held.slots.size(), " slots in ", RoundName(held)));
  const uint32_t first = static_cast<uint32_t>(held.slots.size());
  const OnionRange range = {&held.master, first, slots - first};
  const auto added =
      exchange_.SubmitOnions(round, BuildOnions(round, {&range, 1}, *environment_.pool));
  if (RoundTakesNoMore(added.status())) return false;
  if (!added.ok()) return added.status();
  for (uint32_t slot : *added) {
    if (std::find(held.slots.begin(), held.slots.begin() + first, slot) !=
        held.slots.begin() + first) {
      return absl::DataLossError("the frontend gave a slot twice");
    }
    held.slots.push_back(slot);
  }
  SHOAL_RETURN_IF_ERROR(store_->Save());
  return true;
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
      const size_t have = held == nullptr ? 0 : held->slots.size();
      const uint64_t needed = slots > have ? slots - have : 0;
      if (info.onions() + needed > header.max_slots()) continue;
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
  if (rows.empty()) return std::nullopt;
  for (const HeldRound& held : store_->state().rounds) {
    const std::unordered_set<uint32_t> asked(held.rows.begin(), held.rows.end());
    if (std::all_of(rows.begin(), rows.end(), [&](uint32_t r) { return asked.contains(r); })) {
      return held.id;
    }
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
    const std::unordered_set<uint32_t> asked(held->rows.begin(), held->rows.end());
    for (uint32_t row : rows) {
      if (!asked.contains(row)) {
        return absl::FailedPreconditionError(
            absl::StrCat("the slots in ", RoundName(*held), " carry other rows"));
      }
    }
  }
  Tell(absl::StrCat("sending ", held->rows.size(), " queries"));
  const absl::Status sent = exchange_.SubmitQueries(
      round, Used(*held), std::span(held->slots).first(held->rows.size()), held->rows);
  // While the frontend cannot be reached, the same bytes can still be sent later on.
  if (!sent.ok() && !absl::IsUnavailable(sent)) SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  return Annotate(sent, "sending queries");
}

absl::StatusOr<Client::Collected> Client::Collect(const Digest& round_id) {
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
  Tell(absl::StrCat("fetching ", held->rows.size(), " answers"));
  Collected collected;
  collected.rows = held->rows;
  collected.answers.resize(held->rows.size() * round.answer_bytes());
  const absl::Status fetched =
      exchange_.FetchAnswers(round, Used(*held),
                             std::span(held->slots).first(held->rows.size()), collected.answers);
  if (absl::IsUnavailable(fetched)) return Annotate(fetched, "fetching answers");
  SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  SHOAL_RETURN_IF_ERROR(Annotate(fetched, "fetching answers"));
  return collected;
}

absl::StatusOr<std::vector<Lookup>> Client::LookUp(std::span<const Bytes> keys) {
  const table::RowMap& map = deployment_.map();
  // Which row each key is in; kNoRow where the manifest alone says that there is none.
  constexpr uint32_t kNoRow = ~0u;
  std::vector<uint32_t> row_of(keys.size(), kNoRow);
  std::vector<uint32_t> rows;
  std::unordered_set<uint32_t> seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = map.RowOf(keys[i]);
    if (absl::IsOutOfRange(row.status())) continue;
    if (!row.ok()) return Annotate(row.status(), absl::StrCat("key ", i + 1));
    row_of[i] = static_cast<uint32_t>(*row);
    if (seen.insert(row_of[i]).second) rows.push_back(row_of[i]);
  }
  const uint32_t count = PaddedCount(rows.size(), options_.pad_to, map.rows());

  std::optional<Collected> collected;
  absl::Status aborted;
  for (uint32_t attempt = 1; !collected && attempt <= options_.max_attempts; ++attempt) {
    SHOAL_RETURN_IF_ERROR(DropUnusable());
    std::optional<Digest> round_id = FindBegun(rows);  // before a crash, perhaps
    if (!round_id) {
      SHOAL_ASSIGN_OR_RETURN(round_id, Obtain(count));
    }
    aborted = Submit(*round_id, rows);
    if (aborted.ok()) {
      auto answers = Collect(*round_id);
      if (answers.ok()) collected = *std::move(answers);
      aborted = answers.status();
    }
    if (aborted.ok()) break;
    if (!absl::IsAborted(aborted)) return aborted;
    Tell(aborted.message());
  }
  if (!collected) return Annotate(aborted, "giving up");

  // Everything was sent, and the connection ends: from here on it may matter what the answers are.
  exchange_.HangUp();
  std::unordered_map<uint32_t, size_t> index;
  for (size_t i = 0; i < collected->rows.size(); ++i) index[collected->rows[i]] = i;
  const size_t answer_bytes = deployment_.manifest().answer_bytes();
  std::vector<table::RowAnswer> answers;
  std::unordered_map<uint32_t, size_t> answer_of;
  for (uint32_t row : rows) {
    answer_of[row] = answers.size();
    answers.push_back(
        {row, BytesView(collected->answers).subspan(index.at(row) * answer_bytes, answer_bytes)});
  }
  Tell(absl::StrCat("verifying ", answers.size(), " rows"));
  std::vector<absl::Status> verified =
      map.VerifyAnswers(deployment_.roster(), answers, *environment_.random, environment_.pool);
  // It may have expired while the answers were on their way.
  const absl::Status current =
      deployment_.manifest().CheckTime(deployment_.roster(), environment_.clock->NowSeconds());

  std::vector<Lookup> results(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    Lookup& result = results[i];
    result.error = current;
    if (!current.ok()) continue;
    if (row_of[i] == kNoRow) {
      result.outcome = Lookup::Outcome::kAbsent;
      continue;
    }
    const size_t answer = answer_of.at(row_of[i]);
    result.error = verified[answer];
    if (!result.error.ok()) continue;
    auto value = map.Find(row_of[i], answers[answer].answer.first(map.row_bytes()), keys[i]);
    result.error = value.status();
    if (!value.ok()) continue;
    result.outcome = value->has_value() ? Lookup::Outcome::kFound : Lookup::Outcome::kAbsent;
    if (value->has_value()) result.value = **std::move(value);
  }
  return results;
}

}  // namespace shoal::client
