// Rosters, pins, announcements of parties.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/target.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/signature/bls.h"
#include "src/storage/file.h"
#include "src/wire/roster.pb.h"
#include "src/wire/text.h"

namespace shoal::fuzz {
namespace {

using roster::testing::kNowS;

struct SignedWorld {
  testing::TestRandom random{1};
  roster::testing::Parties parties{3, random};
  roster::Roster roster = parties.roster();
  roster::PinnedParties pins = parties.pinned();
};

// Encodings of keys and signatures have no second form. The first byte says what it is.
bool ParsePoint(BytesView input) {
  Cursor cursor(input);
  const uint8_t kind = cursor.U8() % 4;
  const BytesView bytes = cursor.rest();
  const auto same = [&](const auto& parsed) {
    if (!parsed.ok()) return false;
    const auto again = parsed->bytes();
    SHOAL_CHECK(std::ranges::equal(BytesView(again), bytes));
    return true;
  };
  if (kind == 0) return same(signature::Signature::FromBytes(bytes));
  if (kind == 1) return same(signature::PublicKey::FromBytes(bytes));
  if (kind == 2) return signature::SecretKey::FromBytes(bytes).ok();
  const BytesView key = bytes.first(std::min<size_t>(signature::kPublicKeyBytes, bytes.size()));
  return signature::ProvenKey::FromBytes(key, bytes.subspan(key.size())).ok();
}

Bytes PointInput(uint8_t kind, BytesView bytes, BytesView more = {}) {
  Bytes input;
  input.reserve(1 + bytes.size() + more.size());
  input.push_back(kind);
  Append(input, bytes);
  Append(input, more);
  return input;
}

// A party's directory of keys, as blobs in this order.
constexpr const char* kKeyFiles[] = {"/announcement.textproto", "/bls.key", "/tls.key", "/tls.crt"};

Bytes KeysInput(const roster::PartyKeys& keys) {
  const std::string beside = FileOf({}, "seed-keys");
  const std::string directory = beside.substr(0, beside.rfind('/')) + "/of-seed";
  std::filesystem::remove_all(directory);
  SHOAL_CHECK(keys.Save(directory).ok());
  Bytes input;
  for (const char* file : kKeyFiles) {
    const absl::StatusOr<std::string> content = ReadFile(directory + file);
    SHOAL_CHECK(content.ok());
    AppendBlob(AsBytes(*content), input);
  }
  return input;
}

bool ParsePartyKeys(BytesView input) {
  const std::string beside = FileOf({}, "keys");
  const std::string directory = beside.substr(0, beside.rfind('/'));
  Cursor cursor(input);
  for (const char* file : kKeyFiles) WriteInput(cursor.Blob(), directory + file);
  const auto keys = roster::PartyKeys::Load(directory);
  if (!keys.ok()) return false;
  (void)keys->tls().expires_s();
  return true;
}

}  // namespace

void AddSignedTargets(std::vector<Target>& targets) {
  const auto world = std::make_shared<SignedWorld>();
  targets.push_back({.name = "roster",
                     .seeds = {InputOf(wire::PrintText(world->parties.Signed()))},
                     .parse =
                         [world](BytesView input) {
                           wire::SignedRoster roster;
                           if (!wire::ParseText(TextOf(input), "roster", roster).ok()) return false;
                           const bool taken = roster::CheckRoster(roster.roster()).ok();
                           const bool verified =
                               roster::Roster::Verify(roster, world->pins, kNowS).ok();
                           SHOAL_CHECK(taken || !verified);
                           return taken;
                         },
                     .mutations = 500});
  targets.push_back({.name = "pins",
                     .seeds = {InputOf(wire::PrintText(world->parties.PinsText()))},
                     .parse =
                         [](BytesView input) {
                           wire::PinnedParties pins;
                           return wire::ParseText(TextOf(input), "pins", pins).ok() &&
                                  roster::PinnedParties::Create(pins).ok();
                         },
                     .mutations = 500});
  targets.push_back({.name = "announcement",
                     .seeds = {InputOf(world->parties.keys(1).announcement())},
                     .parse =
                         [](BytesView input) {
                           wire::PartyAnnouncement announcement;
                           return announcement.ParseFromArray(input.data(),
                                                              static_cast<int>(input.size())) &&
                                  roster::PartyFromAnnouncement(announcement, kNowS).ok();
                         },
                     .mutations = 500});
  const roster::PartyKeys& keys = world->parties.keys(1);
  targets.push_back({.name = "points",
                     .seeds = {PointInput(0, keys.bls().Sign(Bytes(3, 1)).bytes()),
                               PointInput(1, keys.bls().public_key().bytes()),
                               PointInput(2, keys.bls().bytes().view()),
                               PointInput(3, keys.bls().public_key().bytes(),
                                          keys.bls().ProvePossession().bytes())},
                     .parse = ParsePoint,
                     .mutations = 500});
  targets.push_back({.name = "party_keys",
                     .seeds = {KeysInput(keys)},
                     .parse = ParsePartyKeys,
                     .mutations = 500});
}

}  // namespace shoal::fuzz
