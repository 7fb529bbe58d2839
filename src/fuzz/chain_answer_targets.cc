// What the next party answers to one in the middle, for itself and for all after it.
#include <algorithm>
#include <cmath>
#include <string>

#include "src/base/check.h"
#include "src/fuzz/target.h"
#include "src/roster/roster.h"
#include "src/round/refresh.h"
#include "src/server/chain_answers.h"
#include "src/wire/peer.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::fuzz {
namespace {

// Party 2 of four asks.
constexpr server::Asker kAsker = {PartyNumber(2), 4};

template <typename Message>
bool Parsed(BytesView input, Message& message) {
  return message.ParseFromArray(input.data(), static_cast<int>(input.size()));
}

// Reports of party 3, which forwards queries and returns answers, and of party 4.
wire::RoundReportsResponse GenuineReports() {
  wire::RoundReportsResponse response;
  const auto add = [&](uint32_t party, const char* stage) {
    wire::StageReport& report = *response.add_stages();
    report.set_party(party);
    report.set_stage(stage);
    report.set_seconds(0.25);
    report.set_cpu_seconds(0.5);
    report.set_positions_in(1000);
    report.set_positions_out(1200);
    report.set_noise_queries(200);
    report.set_bytes_in(80'000);
    report.set_bytes_out(96'000);
  };
  for (const char* stage : {"noise", "offline", "online", "answers"}) add(3, stage);
  for (const char* stage : {"offline", "online"}) add(4, stage);
  return response;
}

bool ParseReports(BytesView input) {
  wire::RoundReportsResponse response;
  if (!Parsed(input, response)) return false;
  const auto reports = server::CheckReports(kAsker, server::StageReportsOf(response));
  if (!reports.ok()) return false;
  SHOAL_CHECK(reports->size() <= 2 * 4);
  for (const wire::StageReport& report : *reports) {
    SHOAL_CHECK(report.party() == 3 || report.party() == 4);
    SHOAL_CHECK(report.seconds() >= 0 && std::isfinite(report.seconds()));
    SHOAL_CHECK(report.cpu_seconds() >= 0 && std::isfinite(report.cpu_seconds()));
    SHOAL_CHECK(report.GetReflection()->GetUnknownFields(report).empty());
  }
  return true;
}

wire::LiveRoundsResponse GenuineAnswer(uint32_t reached) {
  wire::LiveRoundsResponse response;
  response.set_reached(reached);
  for (const uint64_t counter : {5, 9}) {
    wire::LackedRound& lack = *response.add_lacked();
    lack.set_party(3);
    lack.set_counter(counter);
  }
  return response;
}

bool ParseListAnswer(const wire::LiveRounds& list, BytesView input) {
  wire::LiveRoundsResponse response;
  if (!Parsed(input, response)) return false;
  const auto answer = server::CheckListAnswer(kAsker, list, server::ListAnswerOf(response));
  if (!answer.ok()) return false;
  SHOAL_CHECK(answer->reached == 3 || answer->reached == 4);
  SHOAL_CHECK(answer->lacked.size() <= 2 * static_cast<size_t>(list.rounds_size()));
  for (const server::LackedRound& lack : answer->lacked) {
    SHOAL_CHECK(lack.party.value() == 3 || lack.party.value() == answer->reached);
    SHOAL_CHECK(std::ranges::find(list.rounds(), lack.counter.value()) != list.rounds().end());
  }
  return true;
}

wire::RefreshResponse GenuineTags(size_t parties) {
  wire::RefreshResponse response;
  response.set_tags(std::string(parties * sizeof(round::RefreshTag), 't'));
  return response;
}

bool ParseTags(BytesView input) {
  wire::RefreshResponse response;
  if (!Parsed(input, response)) return false;
  const auto tags = server::TagsOf(response);
  if (!tags.ok()) return false;
  SHOAL_CHECK(tags->size() <= roster::kMaxParties);
  SHOAL_CHECK(tags->size() * sizeof(round::RefreshTag) == response.tags().size());
  return true;
}

}  // namespace

void AddChainAnswerTargets(std::vector<Target>& targets) {
  targets.push_back(
      {.name = "stage_reports", .seeds = {InputOf(GenuineReports())}, .parse = ParseReports});
  wire::LiveRounds list;
  for (const uint64_t counter : {5, 7, 9}) list.add_rounds(counter);
  targets.push_back({.name = "list_answer",
                     .seeds = {InputOf(GenuineAnswer(3)), InputOf(GenuineAnswer(4))},
                     .parse = [list](BytesView input) { return ParseListAnswer(list, input); }});
  targets.push_back({.name = "refresh_tags",
                     .seeds = {InputOf(GenuineTags(1)), InputOf(GenuineTags(7))},
                     .parse = ParseTags});
}

}  // namespace shoal::fuzz
