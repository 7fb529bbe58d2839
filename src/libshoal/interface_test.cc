// What the C interface makes of calls that no server has to answer: wrong arguments above all.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/client/testing/fake_frontend.h"
#include "src/libshoal/shoal.h"
#include "src/pir/registry/registry.h"
#include "src/storage/file.h"
#include "src/table/records.h"
#include "src/wire/text.h"

namespace shoal::library {
namespace {

using ::testing::HasSubstr;

static_assert(SHOAL_MAX_KEY_BYTES == table::kMaxKeyBytes);

class InterfaceTest : public ::testing::Test {
 protected:
  InterfaceTest() {
    directory_ = ::testing::TempDir() + "/interface";
    std::filesystem::create_directories(directory_);
    // Nobody listens there. Whatever comes as far as a connection is UNAVAILABLE.
    // Made once, as its table takes a while.
    static const auto pins =
        roster::PinsOf(client::testing::FakeFrontend().roster().wire().roster());
    SHOAL_CHECK(pins.ok());
    SHOAL_CHECK(wire::WriteTextFile(directory_ + "/pins.textproto", *pins).ok());
    Configure("frontend: \"127.0.0.1:1\" state: \"state\" pinned_parties_file: \"pins.textproto\"");
  }
  ~InterfaceTest() override { std::filesystem::remove_all(directory_); }

  void Configure(const std::string& text) {
    SHOAL_CHECK(
        WriteFileAtomically(directory_ + "/client.textproto", AsBytes(text), FileMode::kPublic)
            .ok());
  }
  shoal_client* Open() {
    shoal_client* client = nullptr;
    SHOAL_CHECK(shoal_open(directory_.c_str(), &client, nullptr) == SHOAL_OK);
    return client;
  }
  // What a lookup says that is refused before anything is sent.
  std::string LookupText(const shoal_bytes* keys, size_t count, const shoal_options* options) {
    shoal_client* const client = Open();
    shoal_error* error = nullptr;
    auto* results = reinterpret_cast<shoal_results*>(1);
    const shoal_code code = shoal_lookup(client, keys, count, options, &results, &error);
    EXPECT_EQ(results, nullptr);
    shoal_close(client);
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/state.lock"));
    return TextOf(code, SHOAL_INVALID_ARGUMENT, error);
  }
  std::string OptionsText(const shoal_options& options) {
    const shoal_bytes key = {"bash", 4};
    return LookupText(&key, 1, &options);
  }

  // The text of the error, after its code was checked.
  static std::string TextOf(shoal_code code, shoal_code want, shoal_error* error) {
    EXPECT_STREQ(shoal_code_name(code), shoal_code_name(want));
    EXPECT_EQ(shoal_error_code(error), want);
    const std::string text = shoal_error_text(error);
    shoal_error_free(error);
    return text;
  }
  static std::string OpenText(const char* path, shoal_code want) {
    shoal_error* error = nullptr;
    auto* client = reinterpret_cast<shoal_client*>(1);
    const shoal_code code = shoal_open(path, &client, &error);
    EXPECT_EQ(client, nullptr);
    return TextOf(code, want, error);
  }

  std::string directory_;
};

// A program shows these texts to people, as they are.
TEST_F(InterfaceTest, TextsAreNothingThatATerminalObeys) {
  const std::string path = directory_ + "/a\x1b[2J\xc2\x9b\xe2\x80\xae\xff";
  const std::string text = OpenText(path.c_str(), SHOAL_NOT_FOUND);
  EXPECT_NE(text.find("/a\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae\\xff"), std::string::npos) << text;
}

TEST_F(InterfaceTest, EveryPointerMayBeNull) {
  EXPECT_EQ(shoal_open("x", nullptr, nullptr), SHOAL_INVALID_ARGUMENT);
  shoal_error* error = nullptr;
  EXPECT_EQ(shoal_open("x", nullptr, &error), SHOAL_INVALID_ARGUMENT);
  EXPECT_STREQ(shoal_error_text(error), "client is NULL");
  shoal_error_free(error);
  shoal_results* results = nullptr;
  EXPECT_EQ(shoal_lookup(nullptr, nullptr, 0, nullptr, &results, nullptr), SHOAL_INVALID_ARGUMENT);
  EXPECT_EQ(shoal_lookup(nullptr, nullptr, 0, nullptr, nullptr, nullptr), SHOAL_INVALID_ARGUMENT);
  EXPECT_EQ(shoal_prepare(nullptr, nullptr, 0, nullptr, nullptr), SHOAL_INVALID_ARGUMENT);
  shoal_close(nullptr);
  shoal_cancel(nullptr);
  shoal_cancellation_free(nullptr);
  shoal_results_free(nullptr);
  shoal_error_free(nullptr);
  EXPECT_EQ(shoal_error_code(nullptr), SHOAL_OK);
  EXPECT_STREQ(shoal_error_text(nullptr), "");
  EXPECT_EQ(shoal_results_count(nullptr), 0u);
  EXPECT_EQ(shoal_results_failed(nullptr), 0u);
  EXPECT_EQ(shoal_results_get(nullptr, 0, nullptr), SHOAL_INVALID_ARGUMENT);
  shoal_result result;
  EXPECT_EQ(shoal_results_get(nullptr, 0, &result), SHOAL_INVALID_ARGUMENT);
  EXPECT_EQ(result.outcome, SHOAL_FAILED);
  EXPECT_EQ(result.value, nullptr);
  uint64_t sent = 1;
  shoal_results_traffic(nullptr, &sent, nullptr);
  EXPECT_EQ(sent, 0u);
}

TEST_F(InterfaceTest, ConfigurationsThatCannotBeOpenedAreNamed) {
  EXPECT_THAT(OpenText((directory_ + "/none").c_str(), SHOAL_NOT_FOUND), HasSubstr("/none"));
  EXPECT_THAT(OpenText("", SHOAL_INVALID_ARGUMENT), HasSubstr("path is empty"));
  Configure("frontend: \"nowhere\" state: \"state\" pinned_parties_file: \"pins.textproto\"");
  EXPECT_THAT(OpenText(directory_.c_str(), SHOAL_INVALID_ARGUMENT),
              HasSubstr("/client.textproto: frontend: \"nowhere\" is not host:port"));
  Configure("no text format");
  EXPECT_THAT(OpenText(directory_.c_str(), SHOAL_INVALID_ARGUMENT),
              HasSubstr("client.textproto:1:"));
}

TEST_F(InterfaceTest, KeysThatCannotBeAreRefusedBeforeAnythingIsSent) {
  const std::string long_key(SHOAL_MAX_KEY_BYTES + 1, 'x');
  const shoal_bytes good = {"bash", 4};
  EXPECT_EQ(LookupText(nullptr, 1, nullptr), "keys is NULL");
  EXPECT_THAT(LookupText(&good, 0, nullptr), HasSubstr("0 keys: a call takes 1 to 16777216"));
  // Not one of so many keys is read.
  EXPECT_THAT(LookupText(&good, SIZE_MAX, nullptr), HasSubstr("18446744073709551615 keys"));
  EXPECT_THAT(LookupText(&good, SHOAL_MAX_KEYS + size_t{1}, nullptr), HasSubstr("16777217 keys"));
  const shoal_bytes empty[] = {good, {"", 0}};
  EXPECT_EQ(LookupText(empty, 2, nullptr), "key 2 is empty");
  const shoal_bytes null[] = {good, good, {nullptr, 3}};
  EXPECT_EQ(LookupText(null, 3, nullptr), "key 3 is NULL");
  const shoal_bytes longer = {long_key.data(), long_key.size()};
  EXPECT_THAT(LookupText(&longer, 1, nullptr), HasSubstr("key 1 has 4097 bytes"));
  const shoal_bytes huge = {long_key.data(), SIZE_MAX};
  EXPECT_THAT(LookupText(&huge, 1, nullptr), HasSubstr("key 1 has 18446744073709551615 bytes"));
}

TEST_F(InterfaceTest, AllKeysTogetherAreBounded) {
  const std::string most(SHOAL_MAX_KEY_BYTES, 'x');
  const std::vector<shoal_bytes> keys(SHOAL_MAX_ALL_KEY_BYTES / SHOAL_MAX_KEY_BYTES + 1,
                                      {most.data(), most.size()});
  EXPECT_THAT(LookupText(keys.data(), keys.size(), nullptr),
              HasSubstr("the keys have 1073745920 bytes together"));
}

TEST_F(InterfaceTest, OptionsThatMakeNoSenseAreRefused) {
  const auto with = [](const auto& change) {
    shoal_options options = SHOAL_OPTIONS;
    change(options);
    return options;
  };
  EXPECT_THAT(OptionsText(with([](auto& o) { o.size = 0; })), HasSubstr("size is 0"));
  EXPECT_THAT(OptionsText(with([](auto& o) { o.size = sizeof(o) - 1; })), HasSubstr("size is"));
  EXPECT_THAT(OptionsText(with([](auto& o) { o.size = SIZE_MAX; })), HasSubstr("size is"));
  EXPECT_THAT(OptionsText(with([](auto& o) { o.engine = "nothing"; })),
              ::testing::AllOf(HasSubstr("nothing"), HasSubstr("simplepir")));
  const std::string long_name(100'000, 'x');
  EXPECT_THAT(OptionsText(with([&](auto& o) { o.engine = long_name.c_str(); })),
              HasSubstr("more than 64 bytes"));
  EXPECT_THAT(OptionsText(with([](auto& o) { o.pad = 8; })), HasSubstr("are for engines"));
  EXPECT_THAT(OptionsText(with([](auto& o) { o.beyond = 3; })), HasSubstr("beyond is 3"));
  EXPECT_THAT(OptionsText(with([](auto& o) {
                o.engine = "simplepir";
                o.beyond = SHOAL_OVER_ROUNDS;
              })),
              HasSubstr("an engine has none"));
  const uint32_t parties[] = {1, 1};
  EXPECT_THAT(OptionsText(with([&](auto& o) {
                o.engine = "treepir";
                o.parties = parties;
                o.party_count = 2;
              })),
              HasSubstr("must not be both servers"));
  EXPECT_THAT(OptionsText(with([&](auto& o) {
                o.engine = "simplepir";
                o.parties = parties;
                o.party_count = 2;
              })),
              HasSubstr("takes 1, not 2"));
  EXPECT_THAT(OptionsText(with([&](auto& o) {
                o.engine = "simplepir";
                o.parties = parties;
                o.party_count = SIZE_MAX;
              })),
              HasSubstr("18446744073709551615 parties"));
  EXPECT_THAT(OptionsText(with([](auto& o) {
                o.engine = "simplepir";
                o.party_count = 1;
              })),
              HasSubstr("parties is NULL"));
}

// A program that was compiled with a later header.
TEST_F(InterfaceTest, LaterOptionsAreTakenAsLongAsTheyAreNotSet) {
  struct {
    shoal_options known = SHOAL_OPTIONS;
    uint64_t later = 0;
  } options;
  options.known.size = sizeof(options);
  options.later = 1;
  EXPECT_THAT(OptionsText(options.known), HasSubstr("does not know"));
  options.later = 0;
  options.known.engine = "nothing";
  EXPECT_THAT(OptionsText(options.known), HasSubstr("nothing"));
}

TEST_F(InterfaceTest, OnlyEnginesThatKeepStateArePrepared) {
  shoal_client* const client = Open();
  for (const char* engine : {"chain", "simplepir"}) {
    shoal_options options = SHOAL_OPTIONS;
    options.engine = engine;
    shoal_error* error = nullptr;
    uint64_t queries = 1;
    const shoal_code code = shoal_prepare(client, &options, 0, &queries, &error);
    EXPECT_THAT(TextOf(code, SHOAL_INVALID_ARGUMENT, error), HasSubstr("prepares nothing"));
    EXPECT_EQ(queries, 0u);
  }
  shoal_close(client);
}

// The connection is refused six times, with pauses in which the lookup is cancelled.
TEST_F(InterfaceTest, NoServerIsUnavailableOrCancelled) {
  shoal_client* const client = Open();
  const shoal_bytes key = {"bash", 4};
  shoal_cancellation* const cancellation = shoal_cancellation_new();
  shoal_options options = SHOAL_OPTIONS;
  options.cancellation = cancellation;
  options.user = cancellation;
  options.progress = [](const shoal_progress* progress, void* user) {
    EXPECT_EQ(progress->size, sizeof(shoal_progress));
    shoal_cancel(static_cast<shoal_cancellation*>(user));
  };
  shoal_results* results = nullptr;
  shoal_error* error = nullptr;
  // The frontend may come back for a minute; the first report says that this is waited for.
  const shoal_code code = shoal_lookup(client, &key, 1, &options, &results, &error);
  EXPECT_EQ(results, nullptr);
  TextOf(code, SHOAL_CANCELLED, error);
  // Without an error to fill, and cancelled before it begins.
  EXPECT_EQ(shoal_lookup(client, &key, 1, &options, &results, nullptr), SHOAL_CANCELLED);
  shoal_cancellation_free(cancellation);
  shoal_close(client);
}

TEST_F(InterfaceTest, EveryEngineOfTheRegistryIsNamed) {
  std::set<std::string> names;
  for (const char* const* name = shoal_engines(); *name != nullptr; ++name) names.insert(*name);
  EXPECT_EQ(names.size(), pir::Engines().size() + 1);
  EXPECT_STREQ(*shoal_engines(), "chain");
  for (const pir::Engine* const engine : pir::Engines()) {
    EXPECT_TRUE(names.contains(std::string(engine->name()))) << engine->name();
  }
}

TEST_F(InterfaceTest, CodesHaveNames) {
  EXPECT_STREQ(shoal_code_name(SHOAL_BUSY), "BUSY");
  EXPECT_STREQ(shoal_code_name(99), "UNKNOWN");
  EXPECT_STREQ(shoal_code_name(std::numeric_limits<int>::min()), "UNKNOWN");
}

}  // namespace
}  // namespace shoal::library
