// What a client reads: its state and session files, its configuration, keys, and what a frontend
// says of the deployment.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/printable.h"
#include "src/base/testing/test_random.h"
#include "src/client/answer_spool.h"
#include "src/client/config.h"
#include "src/client/deployment.h"
#include "src/client/refresh.h"
#include "src/client/rollback_anchor.h"
#include "src/client/session_file.h"
#include "src/client/state.h"
#include "src/client/testing/fake_frontend.h"
#include "src/fuzz/target.h"
#include "src/pir/engine.h"
#include "src/roster/testing/parties.h"
#include "src/round/header.h"
#include "src/shoal/key_lines.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::fuzz {
namespace {

Bytes FileContent(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  SHOAL_CHECK(content.ok());
  return InputOf(*content);
}

// No place for anchors: with one, every input would leave a file there.
client::AnchorDirectory NoAnchors() { return {}; }

// A state with a round in it, as a client has it that has sent its queries.
Bytes StateSeed() {
  testing::TestRandom random(1);
  const std::string path = FileOf({}, "seed-state");
  std::filesystem::remove(path);
  auto store = client::FileStateStore::Open(path, NoAnchors(), random);
  SHOAL_CHECK(store.ok());
  client::State& state = (*store)->state();
  state.deployment = "test";
  client::HeldRound round;
  round.header.mutable_header()->set_counter(7);
  round.header.mutable_header()->set_expires_s(2000);
  round.id = round::RoundId(round.header.header());
  round.master = random.NewSeed();
  round.submissions.push_back({.first = 0, .count = 2, .plaintext = {3}, .first_slot = 5});
  round.rows = {70, 71};
  state.rounds.push_back(std::move(round));
  state.AddLookup({4}, 1000, random).submissions = 1;
  SHOAL_CHECK((*store)->Save().ok());
  return FileContent(path);
}

// An answer of two parties as a frontend sends it (docs/protocol.md, "Answers"): the bytes 0 to 79
// under the seeds of ones and of twos.
Bytes TaggedAnswer() {
  return ToBytes(
      AsBytes(absl::HexStringToBytes("9cfff6bda398be064cd2406041e97d9a11434bdf83b0278fe358ede03f7a6"
                                     "c13e76d07a7f849f3170be5505631993b9"
                                     "57367fe3bf08ed981f265ef76ce0b518d2eb1c8624af4ad8ea517ca7feddf"
                                     "11d796466963a3e7ae97fb65e71d139056"
                                     "ab")));
}
bool ParseTaggedAnswer(BytesView input) {
  static const Bytes genuine = TaggedAnswer();
  if (input.size() != genuine.size()) return false;  // as Exchange::FetchAnswers
  std::array<uint8_t, 64> seeds;
  std::fill_n(seeds.begin(), 32, 1);
  std::fill_n(seeds.begin() + 32, 32, 2);
  std::array<Digest, 2> ids;
  for (Digest& id : ids) id.fill(9);
  Bytes answer(80);
  client::UnmaskRefresh(ids, seeds.data(), answer.size(), input, answer);
  const bool taken = std::ranges::any_of(answer, [](uint8_t byte) { return byte != 0; });
  // Every other answer is altered, or forged.
  SHOAL_CHECK(taken == std::ranges::equal(input, genuine));
  for (size_t i = 0; taken && i < answer.size(); ++i) SHOAL_CHECK(answer[i] == i);
  return taken;
}

// A session's file behind its magic and the digest of its head.
constexpr absl::string_view kSessionMagic = "SHOALSF4", kMagicWithoutDigests = "SHOALSF3";
constexpr absl::string_view kSessionState = "hints and secrets of a session";
constexpr size_t kSessionNumbersBytes = 32 + sizeof(client::AnchorId) + 6 * 8;
constexpr size_t kSessionHeadBytes = kSessionNumbersBytes + 8 + 32;
Bytes SessionSeed(bool changed, RandomSource& random) {
  const std::string path = FileOf({}, "seed-session");
  std::filesystem::remove(path);
  auto file = client::SessionFile::Open(path, {1}, NoAnchors(), random);
  SHOAL_CHECK(file.ok());
  SHOAL_CHECK((*file)->Save(AsBytes(kSessionState)).ok());
  const pir::StatePatch patch = {.at = 4, .bytes = AsBytes("more")};
  if (changed) SHOAL_CHECK((*file)->Change(std::span(&patch, 1)).ok());
  const Bytes content = FileContent(path);
  return ToBytes(BytesView(content).subspan(kSessionMagic.size() + sizeof(Digest)));
}
// As version 0.2 had it, with room for its digest.
Bytes FirstSessionSeed(RandomSource& random) {
  const Bytes now = SessionSeed(/*changed=*/false, random);
  Bytes first(sizeof(Digest));
  Append(first, BytesView(now).first(kSessionNumbersBytes));
  Append(first, AsBytes(kSessionState));
  return first;
}
// As it was before 0.3.0: without the digest of the one block.
Bytes SessionSeedWithoutDigests(RandomSource& random) {
  Bytes seed = SessionSeed(/*changed=*/false, random);
  const auto at = seed.begin() + static_cast<ptrdiff_t>(kSessionHeadBytes + kSessionState.size());
  seed.erase(at, at + sizeof(Digest));
  return seed;
}
Bytes SessionWithDigest(BytesView input, bool has_digests) {
  const BytesView head = input.first(std::min(input.size(), kSessionHeadBytes));
  Bytes file = ToBytes(AsBytes(has_digests ? kSessionMagic : kMagicWithoutDigests));
  Append(file, Transcript(has_digests ? "shoal client session v4" : "shoal client session v3")
                   .Blob(head)
                   .Finish());
  Append(file, input);
  return file;
}
// Whether the file opens; then what it has can be read, or is refused.
bool ReadSession(const std::string& path, RandomSource& random) {
  const auto file = client::SessionFile::Open(path, {1}, NoAnchors(), random);
  if (!file.ok()) return false;
  Bytes state((*file)->state_bytes());
  (void)(*file)->Read(0, state);
  for (uint64_t i = 0; i < (*file)->records(); ++i) (void)(*file)->ReadRecord(i);
  return true;
}

// A place for anchors of its own, with one in it.
constexpr client::AnchorId kAnchor = {5};
const client::AnchorDirectory& OwnPlace() {
  static const auto place = [] {
    const std::string beside = FileOf({}, "anchors");
    return client::AnchorDirectory::Below(beside.substr(0, beside.rfind('/')));
  }();
  SHOAL_CHECK(!place.directory().empty());
  return place;
}
std::string AnchorPath() {
  return absl::StrCat(OwnPlace().directory(), "/", Hex(BytesView(kAnchor)));
}

Bytes AnchorSeed() {
  std::filesystem::remove(AnchorPath());
  const auto anchor = OwnPlace().Make(kAnchor, "client.state");
  SHOAL_CHECK(anchor.ok());
  client::AnchorRecord anchor_record{.generation = 3, .content = {9}, .remains = {}};
  anchor_record.remains.assign(20, 7);
  SHOAL_CHECK((*anchor)->Write(anchor_record).ok());
  return FileContent(AnchorPath());
}

bool ParseAnchor(BytesView input) {
  WriteInput(WithDigest("shoal client anchor v1", input), AnchorPath());
  const std::optional<client::AnchorRecord> anchor_record = OwnPlace().Peek(kAnchor);
  const auto found = OwnPlace().Find(kAnchor, "client.state");
  SHOAL_CHECK(found.ok());
  const auto read = (*found)->Read();
  SHOAL_CHECK(read.ok() && read->has_value() == anchor_record.has_value());
  return anchor_record.has_value();
}

// Five answers of 20 bytes, two in a piece.
absl::StatusOr<std::unique_ptr<client::AnswerSpool>> OpenAnswers(const std::string& path) {
  return client::AnswerSpool::Open(path, Digest{1}, 5, 20, 40);
}

Bytes AnswersSeed() {
  const std::string path = FileOf({}, "seed-answers");
  const auto spool = OpenAnswers(path);
  SHOAL_CHECK(spool.ok());
  for (size_t piece = 0; piece < (*spool)->pieces(); ++piece) {
    SHOAL_CHECK((*spool)->Put(piece, Bytes((*spool)->CountOf(piece) * 20, 3)).ok());
  }
  return FileContent(path);
}

// What is there can be read, whatever the file was.
bool ParseAnswers(BytesView input) {
  const auto spool = OpenAnswers(FileOf(input, "answers"));
  if (!spool.ok()) return false;
  for (size_t piece = 0; piece < (*spool)->pieces(); ++piece) {
    Bytes answers((*spool)->CountOf(piece) * 20);
    const bool has = (*spool)->Has(piece);
    SHOAL_CHECK(!has || (*spool)->Read((*spool)->FirstOf(piece), answers).ok());
  }
  return (*spool)->complete();
}

bool ParseKeys(BytesView input) {
  bool bad = false;
  const commands::KeyLines::Take take = [&](absl::string_view line) {
    // What comes out can be shown, but for the joiners that scripts need.
    bad |= line.empty() || line.front() == ' ' || line.back() == ' ' || !IsUtf8(AsBytes(line)) ||
           absl::StrContains(line, '\0') || absl::StrContains(line, '\t');
    return absl::OkStatus();
  };
  commands::KeyLines lines("keys", take);
  // In pieces, as they come from a pipe.
  const std::string text = TextOf(input);
  absl::Status status;
  for (size_t i = 0; i < text.size() && status.ok(); i += 7) status = lines.Feed(text.substr(i, 7));
  if (status.ok()) status = lines.Finish();
  (void)lines.Note();
  SHOAL_CHECK(!bad);
  return status.ok();
}

// Everything else that a frontend says is checked against what follows from this message.
void AddDeploymentTarget(std::vector<Target>& targets) {
  const auto frontend = std::make_shared<client::testing::FakeFrontend>();
  const auto genuine = std::make_shared<wire::GetDeploymentResponse>(frontend->deployment);
  targets.push_back({.name = "deployment",
                     .seeds = {InputOf(*genuine)},
                     .parse =
                         [frontend](BytesView input) {
                           if (!frontend->deployment.ParseFromArray(
                                   input.data(), static_cast<int>(input.size()))) {
                             return false;
                           }
                           client::State state;
                           return client::Deployment::Fetch(*frontend, frontend->pins(), state,
                                                            frontend->clock().NowSeconds())
                               .ok();
                         },
                     .mutations = 200});
}

void AddSessionFileTargets(std::vector<Target>& targets) {
  const auto random = std::make_shared<testing::TestRandom>(2);
  targets.push_back({.name = "session_file",
                     .seeds = {SessionSeed(false, *random), SessionSeed(true, *random)},
                     .parse =
                         [random](BytesView input) {
                           const Bytes file = SessionWithDigest(input, /*has_digests=*/true);
                           return ReadSession(FileOf(file, "session"), *random);
                         },
                     .mutations = 300});
  targets.push_back({.name = "session_file_without_digests",
                     .seeds = {SessionSeedWithoutDigests(*random)},
                     .parse =
                         [random](BytesView input) {
                           const Bytes file = SessionWithDigest(input, /*has_digests=*/false);
                           return ReadSession(FileOf(file, "session"), *random);
                         },
                     .mutations = 300});
  targets.push_back({.name = "session_file_of_version_2",
                     .seeds = {DigestInput(FirstSessionSeed(*random))},
                     .parse =
                         [random](BytesView input) {
                           const Bytes file = WithDigest("shoal client session v2", input);
                           return ReadSession(FileOf(file, "session"), *random);
                         },
                     .mutations = 300});
}

}  // namespace

void AddClientTargets(std::vector<Target>& targets) {
  targets.push_back(
      {.name = "client_state", .seeds = {DigestInput(StateSeed())}, .parse = [](BytesView input) {
         const Bytes file = WithDigest("shoal client state v4", input);
         return client::ReadState(FileOf(file, "state"), NoAnchors()).ok();
       }});
  AddSessionFileTargets(targets);
  targets.push_back({.name = "anchor", .seeds = {DigestInput(AnchorSeed())}, .parse = ParseAnchor});
  targets.push_back(
      {.name = "tagged_answer", .seeds = {TaggedAnswer()}, .parse = ParseTaggedAnswer});
  targets.push_back({.name = "answer_spool", .seeds = {AnswersSeed()}, .parse = ParseAnswers});
  targets.push_back({.name = "client_config",
                     .seeds = {InputOf("frontend: \"127.0.0.1:7300\"\n"
                                       "pinned_parties_file: \"pinned.textproto\"\n"
                                       "state: \"client.state\"\npad_to: 64\nmax_attempts: 3\n"
                                       "timeout_s: 600\nmax_epsilon: 5\n")},
                     .parse = [](BytesView input) {
                       const std::string path = FileOf(input, "config");
                       static const bool pinned = [&path] {
                         testing::TestRandom keys(1);
                         return wire::WriteTextFile(
                                    path.substr(0, path.rfind('/')) + "/pinned.textproto",
                                    roster::testing::Parties(2, keys).PinsText())
                             .ok();
                       }();
                       SHOAL_CHECK(pinned);
                       return client::ReadConfig(path).ok();
                     }});
  targets.push_back({.name = "key_lines",
                     .seeds = {InputOf("one\ntwo\nthree"), InputOf("\xef\xbb\xbfone\r\ntwo\r\n")},
                     .parse = ParseKeys});
  AddDeploymentTarget(targets);
}

}  // namespace shoal::fuzz
