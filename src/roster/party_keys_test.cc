#include "src/roster/party_keys.h"

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/testing/matchers.h"
#include "src/base/testing/test_clock.h"
#include "src/base/testing/test_random.h"
#include "src/roster/signing_record.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace {

// When not null: the paths that this program makes durable, in their order.
std::vector<std::string>* synced = nullptr;

}  // namespace

// In place of the C library's, for the whole program.
extern "C" int fsync(int fd) {
  if (synced != nullptr) {
    synced->push_back(
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string());
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace shoal::roster {
namespace {

using ::shoal::testing::kNowS;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class PartyKeysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::string(::getenv("TEST_TMPDIR")) + "/keys.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern + "/alice";
  }
  static uint32_t ModeOf(const std::string& path) {
    struct stat info;
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }
  std::string directory_;
};

TEST_F(PartyKeysTest, SavesForItsOwnerAloneAndLoads) {
  TestRandom random(1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  SHOAL_ASSERT_OK(keys.Save(directory_));
  EXPECT_EQ(ModeOf(directory_), 0700u);
  EXPECT_EQ(ModeOf(directory_ + "/bls.key"), 0600u);
  EXPECT_EQ(ModeOf(directory_ + "/tls.key"), 0600u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys loaded, PartyKeys::Load(directory_));
  EXPECT_EQ(loaded.name(), "alice");
  EXPECT_TRUE(EqualSecret(loaded.bls().bytes().view(), keys.bls().bytes().view()));
  EXPECT_EQ(loaded.tls().certificate_der, keys.tls().certificate_der);
  EXPECT_EQ(loaded.announcement().SerializeAsString(), keys.announcement().SerializeAsString());
}

TEST_F(PartyKeysTest, ACertificateSaysWhenItExpires) {
  TestRandom random(3);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  EXPECT_EQ(keys.tls().expires_s(), kNowS + uint64_t{20} * 365 * 24 * 3600);
  EXPECT_EQ(TlsIdentity{}.expires_s(), 0u);
}

TEST_F(PartyKeysTest, NeverOverwrites) {
  TestRandom random(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  SHOAL_ASSERT_OK(keys.Save(directory_));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys others, PartyKeys::Generate("alice", kNowS, random));
  EXPECT_THAT(others.Save(directory_), StatusIs(absl::StatusCode::kAlreadyExists, "bls.key"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys loaded, PartyKeys::Load(directory_));
  EXPECT_TRUE(EqualSecret(loaded.bls().bytes().view(), keys.bls().bytes().view()));
}

TEST_F(PartyKeysTest, RefusesSecretsThatOthersMayRead) {
  TestRandom random(3);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  SHOAL_ASSERT_OK(keys.Save(directory_));
  for (const char* file : {"/bls.key", "/tls.key"}) {
    ASSERT_EQ(::chmod((directory_ + file).c_str(), 0640), 0);
    EXPECT_THAT(PartyKeys::Load(directory_),
                StatusIs(absl::StatusCode::kPermissionDenied, file + 1));
    ASSERT_EQ(::chmod((directory_ + file).c_str(), 0600), 0);
  }
}

TEST_F(PartyKeysTest, RefusesFilesThatDoNotBelongTogether) {
  TestRandom random(4);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys alice, PartyKeys::Generate("alice", kNowS, random));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys bob, PartyKeys::Generate("bob", kNowS, random));
  const std::string other = directory_ + "-bob";
  SHOAL_ASSERT_OK(alice.Save(directory_));
  SHOAL_ASSERT_OK(bob.Save(other));
  for (const char* file : {"/bls.key", "/tls.key", "/tls.crt", "/announcement.textproto"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string mine, ReadFile(directory_ + file));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string theirs, ReadFile(other + file));
    SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + file, AsBytes(theirs), FileMode::kPrivate));
    EXPECT_THAT(PartyKeys::Load(directory_), StatusIs(kInvalid, "is not the")) << file;
    SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + file, AsBytes("garbage"), FileMode::kPrivate));
    EXPECT_THAT(PartyKeys::Load(directory_), StatusIs(kInvalid, file + 1)) << file;
    SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + file, AsBytes(mine), FileMode::kPrivate));
  }
  SHOAL_EXPECT_OK(PartyKeys::Load(directory_));
  std::filesystem::remove(directory_ + "/tls.key");
  EXPECT_THAT(PartyKeys::Load(directory_), StatusIs(absl::StatusCode::kNotFound, "tls.key"));
}

// All machines of a party have one TLS identity and one secret; the head alone can sign.
TEST_F(PartyKeysTest, OtherMachinesGetTheSecretAndNoSigningKey) {
  TestRandom random(8);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  SHOAL_ASSERT_OK(keys.Save(directory_));
  const std::string other = directory_ + "-other", another = directory_ + "-another";
  EXPECT_THAT(MachineKeys::Load(directory_), StatusIs(absl::StatusCode::kNotFound, "machines.key"));
  SHOAL_ASSERT_OK(MachineKeys::HandOut(directory_, other, random));
  SHOAL_ASSERT_OK(MachineKeys::HandOut(directory_, another, random));
  SHOAL_ASSERT_OK_AND_ASSIGN(const MachineKeys head, MachineKeys::Load(directory_));
  for (const std::string& directory : {other, another}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const MachineKeys loaded, MachineKeys::Load(directory));
    EXPECT_TRUE(EqualSecret(loaded.secret.view(), head.secret.view()));
    EXPECT_EQ(loaded.tls.certificate_der, keys.tls().certificate_der);
    EXPECT_THAT(PartyKeys::Load(directory), StatusIs(absl::StatusCode::kNotFound, "bls.key"));
    EXPECT_EQ(ModeOf(directory), 0700u);
    EXPECT_EQ(ModeOf(directory + "/machines.key"), 0600u);
  }
  EXPECT_FALSE(EqualSecret(head.secret.view(), keys.bls().bytes().view()));
  EXPECT_FALSE(EqualSecret(head.secret.view(), Seed().view()));
  // Neither over other keys, nor from what is none.
  for (const std::string& there : {directory_, other}) {
    EXPECT_THAT(MachineKeys::HandOut(directory_, there, random),
                StatusIs(absl::StatusCode::kAlreadyExists, "never overwritten"));
  }
  EXPECT_THAT(MachineKeys::HandOut(directory_ + "-none", directory_ + "-new", random),
              StatusIs(absl::StatusCode::kNotFound, "announcement.textproto"));
  ASSERT_EQ(::chmod((other + "/machines.key").c_str(), 0640), 0);
  EXPECT_THAT(MachineKeys::Load(other),
              StatusIs(absl::StatusCode::kPermissionDenied, "machines.key"));
  SHOAL_ASSERT_OK(WriteFileAtomically(another + "/machines.key", AsBytes("7"), FileMode::kPrivate));
  EXPECT_THAT(MachineKeys::Load(another), StatusIs(kInvalid, "machines.key"));
}

TEST_F(PartyKeysTest, CertificateIsSelfSigned) {
  TestRandom random(5);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TlsIdentity tls, GenerateTlsIdentity("alice", kNowS, random));
  const uint8_t* in = tls.certificate_der.data();
  X509* certificate = d2i_X509(nullptr, &in, static_cast<long>(tls.certificate_der.size()));
  ASSERT_NE(certificate, nullptr);
  EVP_PKEY* key = X509_get0_pubkey(certificate);
  EXPECT_EQ(EVP_PKEY_id(key), EVP_PKEY_ED25519);
  EXPECT_EQ(X509_verify(certificate, key), 1);
  X509_free(certificate);
}

TEST_F(PartyKeysTest, AnnouncementsAreChecked) {
  TestRandom random(6);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::Party party,
                             PartyFromAnnouncement(keys.announcement(), kNowS));
  EXPECT_EQ(party.name(), "alice");
  wire::PartyAnnouncement bad = keys.announcement();
  bad.mutable_tls_certificate()->push_back('x');
  EXPECT_THAT(PartyFromAnnouncement(bad, kNowS), StatusIs(kInvalid, "TLS certificate"));
  bad = keys.announcement();
  bad.set_proof_of_possession(ToString(keys.bls().Sign(AsBytes("x")).bytes()));
  EXPECT_THAT(PartyFromAnnouncement(bad, kNowS),
              StatusIs(absl::StatusCode::kUnauthenticated, "alice"));
  EXPECT_THAT(PartyKeys::Generate("no/slash", kNowS, random), StatusIs(kInvalid, "party"));
}

TEST_F(PartyKeysTest, SignsOneContentForAnEpoch) {
  SHOAL_ASSERT_OK(MakeDirectory(directory_, FileMode::kPrivate));
  const Digest one = {1}, two = {2};
  SHOAL_EXPECT_OK(RecordSigning(directory_, "table ab", 7, one));
  SHOAL_EXPECT_OK(RecordSigning(directory_, "table ab", 7, one));
  EXPECT_THAT(RecordSigning(directory_, "table ab", 7, two),
              StatusIs(absl::StatusCode::kUnauthenticated, "second content for epoch 7"));
  EXPECT_THAT(RecordSigning(directory_, "table ab", 6, two),
              StatusIs(absl::StatusCode::kUnauthenticated, "after epoch 7"));
  SHOAL_EXPECT_OK(RecordSigning(directory_, "table cd", 1, two));
  SHOAL_EXPECT_OK(RecordSigning(directory_, "table ab", 8, two));
  // A record that cannot be read stops signing: it must not be treated as if there were none.
  SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + "/signed/table-ab.textproto",
                                      AsBytes("epoch: 8"), FileMode::kPrivate));
  EXPECT_THAT(RecordSigning(directory_, "table ab", 9, one),
              StatusIs(absl::StatusCode::kDataLoss, "damaged"));
}

TEST_F(PartyKeysTest, RenewedKeysAreOfTheSameParty) {
  TestRandom random(7);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  for (const bool only_tls : {false, true}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys renewed, keys.Renew(only_tls, kNowS + 5, random));
    EXPECT_EQ(renewed.name(), "alice");
    EXPECT_NE(renewed.tls().certificate_sha256(), keys.tls().certificate_sha256());
    EXPECT_EQ(renewed.bls().public_key() == keys.bls().public_key(), only_tls);
    EXPECT_EQ(renewed.announcement().renewals_size(), only_tls ? 0 : 1);
    const std::string directory = directory_ + (only_tls ? "-tls" : "-new");
    SHOAL_ASSERT_OK(renewed.Save(directory));
    SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys loaded, PartyKeys::Load(directory));
    EXPECT_EQ(loaded.announcement().SerializeAsString(),
              renewed.announcement().SerializeAsString());
    SHOAL_EXPECT_OK(PartyFromAnnouncement(loaded.announcement(), kNowS));
  }
  // A renewal of somebody else's key.
  const std::string path = directory_ + "-new/announcement.textproto";
  wire::PartyAnnouncement foreign;
  SHOAL_ASSERT_OK(wire::ReadTextFile(path, foreign));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys bob, PartyKeys::Generate("bob", kNowS, random));
  foreign.mutable_renewals(0)->set_old_key(ToString(bob.bls().public_key().bytes()));
  SHOAL_ASSERT_OK(wire::WriteTextFile(path, foreign));
  EXPECT_THAT(PartyKeys::Load(directory_ + "-new"),
              StatusIs(absl::StatusCode::kUnauthenticated, "not signed by the key before"));
  EXPECT_THAT(PartyFromAnnouncement(foreign, kNowS),
              StatusIs(absl::StatusCode::kUnauthenticated, "not signed by the key before"));
}

TEST_F(PartyKeysTest, AnExpiredCertificateIsNotAnnounced) {
  TestRandom random(8);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PartyKeys keys, PartyKeys::Generate("alice", kNowS, random));
  const uint64_t until_s = keys.tls().expires_s();
  SHOAL_EXPECT_OK(PartyFromAnnouncement(keys.announcement(), until_s - 1));
  EXPECT_THAT(PartyFromAnnouncement(keys.announcement(), until_s),
              StatusIs(absl::StatusCode::kFailedPrecondition, "has expired"));
}

// One record for both keys: otherwise the new key would sign what the old one has signed otherwise.
TEST_F(PartyKeysTest, TheRecordGoesOnToRenewedKeys) {
  const Digest one = {1}, two = {2};
  const std::string renewed = directory_ + "-new";
  SHOAL_EXPECT_OK(RecordSigning(directory_, "table ab", 7, one));
  SHOAL_EXPECT_OK(RecordSigning(directory_, "roster demo", 2, one));
  SHOAL_ASSERT_OK(HandRecordOn(directory_, renewed));
  EXPECT_EQ(ModeOf(renewed), 0700u);
  EXPECT_THAT(RecordSigning(directory_, "table ab", 8, two),
              StatusIs(absl::StatusCode::kFailedPrecondition, "has gone on to renewed keys"));
  EXPECT_THAT(RecordSigning(renewed, "table ab", 7, two),
              StatusIs(absl::StatusCode::kUnauthenticated, "second content for epoch 7"));
  EXPECT_THAT(RecordSigning(renewed, "roster demo", 1, two),
              StatusIs(absl::StatusCode::kUnauthenticated, "after epoch 2"));
  SHOAL_EXPECT_OK(RecordSigning(renewed, "table ab", 8, two));
  // A second renewal of the same keys would split the record.
  EXPECT_THAT(HandRecordOn(directory_, directory_ + "-more"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "has gone on to renewed keys"));
  EXPECT_FALSE(FileExists(directory_ + "-more"));
  // A renewal that is given up leaves its record to the keys of before.
  const std::string back = directory_ + "-back";
  SHOAL_ASSERT_OK(HandRecordOn(renewed, back));
  SHOAL_EXPECT_OK(RecordSigning(back, "table ab", 9, one));
  std::filesystem::remove_all(renewed + "/signed");
  std::filesystem::rename(back + "/signed", renewed + "/signed");
  EXPECT_THAT(RecordSigning(renewed, "table ab", 9, two),
              StatusIs(absl::StatusCode::kUnauthenticated, "second content for epoch 9"));
  // The renewed keys are renewed in turn; a party that has signed nothing yet can renew, too.
  SHOAL_EXPECT_OK(HandRecordOn(renewed, directory_ + "-third"));
  EXPECT_THAT(RecordSigning(directory_ + "-third", "table ab", 9, two),
              StatusIs(absl::StatusCode::kUnauthenticated, "second content for epoch 9"));
  SHOAL_EXPECT_OK(HandRecordOn(directory_ + "-fresh", directory_ + "-fresh-new"));
}

// Otherwise a crash could leave a party with two records, or with none.
TEST_F(PartyKeysTest, TheNewRecordIsDurableBeforeTheOldOneEnds) {
  SHOAL_ASSERT_OK(RecordSigning(directory_, "table ab", 7, Digest{1}));
  std::vector<std::string> paths;
  synced = &paths;
  const absl::Status status = HandRecordOn(directory_, directory_ + "-new");
  synced = nullptr;
  SHOAL_ASSERT_OK(status);
  const std::filesystem::path old = std::filesystem::canonical(directory_);
  const std::string mark = old.string() + "/signed/handed-on";
  const auto at = [&](const std::string& path) { return std::ranges::find(paths, path); };
  const auto end =
      std::ranges::find_if(paths, [&](const std::string& path) { return path.starts_with(mark); });
  ASSERT_NE(end, paths.end());
  EXPECT_LT(at(old.string() + "-new/signed"), end);
  EXPECT_LT(at(old.string() + "-new"), end);
  EXPECT_LT(at(old.parent_path().string()), end);
}

}  // namespace
}  // namespace shoal::roster
