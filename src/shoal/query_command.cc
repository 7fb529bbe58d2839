#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/shoal/command_keys.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/session.h"
#include "src/shoal/source_options.h"
#include "src/storage/file.h"
#include "src/table/records.h"

namespace shoal::commands {
namespace {

constexpr size_t kWriteBytes = 1 << 16;
// A lookup through an engine shows how many queries it has, unless --pad says otherwise.
constexpr uint32_t kDefaultPad = 1;

// Standard output or a file. The file is FILE.part until it is complete, then it takes its name;
// only its owner can read it.
class Output {
 public:
  Output(std::string path, std::ostream& out) : path_(std::move(path)), out_(out) {}
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }
  // Finds a mistyped path before anything is asked and charged. An existing file stays as it is.
  absl::Status Check() const {
    if (path_.empty()) return absl::OkStatus();
    if (std::error_code ignored; std::filesystem::is_directory(path_, ignored)) {
      return absl::FailedPreconditionError(absl::StrCat(path_, ": is a directory"));
    }
    // A file without a name, which leaves nothing behind if this process is killed.
    const std::filesystem::path directory = std::filesystem::path(path_).parent_path();
    int fd =
        ::open(directory.empty() ? "." : directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
      // This file system has none. Not FILE.part itself, which another run may be writing.
      std::string trial = Part() + ".XXXXXX";
      fd = ::mkostemp(trial.data(), O_CLOEXEC);
      if (fd >= 0) ::unlink(trial.c_str());
    }
    if (fd < 0) return ErrnoStatus(errno, Part());
    ::close(fd);
    return absl::OkStatus();
  }
  absl::Status Open() {
    if (path_.empty()) return absl::OkStatus();
    SHOAL_ASSIGN_OR_RETURN(fd_, CreatePart());
    return absl::OkStatus();
  }
  std::string& text() { return text_; }
  // Writes the text that has gathered, if it is enough.
  absl::Status Continue() { return text_.size() < kWriteBytes ? absl::OkStatus() : Write(); }
  absl::Status Finish() {
    SHOAL_RETURN_IF_ERROR(Write());
    if (fd_ < 0) {
      return out_.flush() ? absl::OkStatus() : Unwritten();
    }
    if (::fsync(fd_) != 0) return ErrnoStatus(errno, path_);
    struct stat mine, there;
    if (::fstat(fd_, &mine) != 0 || ::lstat(Part().c_str(), &there) != 0 ||
        mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
      return absl::AbortedError(absl::StrCat(Part(), ": somebody else writes this file, too"));
    }
    if (::rename(Part().c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, path_);
    const std::string parent = std::filesystem::path(path_).parent_path();
    return SyncDirectory(parent.empty() ? "." : parent);
  }

 private:
  std::string Part() const { return path_ + ".part"; }
  // Creates a new file: an existing one may belong to another user, who could read along.
  absl::StatusOr<int> CreatePart() const {
    ::unlink(Part().c_str());
    const int fd = ::open(Part().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return ErrnoStatus(errno, Part());
    return fd;
  }
  absl::Status Write() {
    if (fd_ >= 0) {
      SHOAL_RETURN_IF_ERROR(WriteAll(fd_, AsBytes(text_), Part()));
    } else if (!out_.write(text_.data(), static_cast<std::streamsize>(text_.size()))) {
      return Unwritten();
    }
    text_.clear();
    return absl::OkStatus();
  }
  static absl::Status Unwritten() {
    return absl::UnavailableError("standard output cannot be written; is its disk full?");
  }

  const std::string path_;
  std::ostream& out_;
  int fd_ = -1;
  std::string text_;
};

class CommandResults final : public client::Results {
 public:
  CommandResults(bool json, const CommandKeys& keys, Console& console, Output& output)
      : json_(json), keys_(keys), console_(console), output_(output) {}

  absl::Status Add(BytesView key, const client::Lookup& result) override {
    // Made only when there is something to write: an existing file stays until then.
    if (added_ == 0) {
      total_ = keys_.count();
      SHOAL_RETURN_IF_ERROR(output_.Open());
    }
    Append(key, result);
    failed_ += result.outcome == client::Lookup::Outcome::kFailed;
    unknown_ += result.outcome == client::Lookup::Outcome::kUnknown;
    unasked_ += result.is_unasked();
    ++added_;
    console_.Count("writing results", added_, std::max(total_, added_));
    return output_.Continue();
  }
  absl::Status Finish() override { return output_.Finish(); }

  uint64_t failed() const { return failed_; }
  uint64_t unknown() const { return unknown_; }
  uint64_t unasked() const { return unasked_; }
  uint64_t added() const { return added_; }

 private:
  void Append(BytesView key, const client::Lookup& result) {
    const bool verified =
        result.outcome != client::Lookup::Outcome::kFailed && !result.is_unasked();
    if (!json_) {
      absl::StrAppend(&output_.text(), table::EscapeTsv(key), "\t", OutcomeName(result.outcome),
                      "\t", table::EscapeTsv(result.value), "\t", verified ? "yes" : "no", "\n");
      return;
    }
    JsonObject object;
    object.Blob("key", key).Text("status", OutcomeName(result.outcome));
    if (result.outcome == client::Lookup::Outcome::kFound) object.Blob("value", result.value);
    object.Bool("verified", verified);
    if (!verified) object.Text("error", std::string(result.error.message()));
    absl::StrAppend(&output_.text(), object.Take(), "\n");
  }

  const bool json_;
  const CommandKeys& keys_;
  Console& console_;
  Output& output_;
  uint64_t total_ = 0, added_ = 0, failed_ = 0, unknown_ = 0, unasked_ = 0;
};

absl::Status OutcomeOf(const CommandResults& results) {
  if (results.failed() == 0 && results.unknown() > 0) {
    return UnknownError(results.unknown(), results.unasked(), results.added(), "keys");
  }
  if (results.failed() == 0) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat(results.failed(), " of ", results.added(),
                   " keys have no verified answer; a second try "
                   "would tell the parties which rows failed, so there is none"));
}

absl::Status ObtainAhead(Session& session, uint32_t slots, client::BeyondPhi beyond_phi, bool json,
                         cli::Io& io) {
  SHOAL_RETURN_IF_ERROR(session.UseChain(beyond_phi));
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, session.ObtainAhead(slots));
  const uint64_t counter = session.state().FindRound(round_id)->counter();
  if (json) {
    io.out << JsonObject().Integer("round", counter).Integer("slots", slots).Take() << '\n';
  } else {
    io.out << "round\t" << counter << "\nslots\t" << slots << '\n';
  }
  return absl::OkStatus();
}

absl::Status RunQuery(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_wanted, JsonWanted(values, "tsv"));
  const uint64_t ahead = cli::NumberOr(values, "obtain", 0);
  const bool obtain = values.count("obtain") > 0;
  const bool asks = !cli::TextsOf(values, "key").empty() || !cli::TextsOf(values, "file").empty();
  if (obtain && values.count("dry-run") > 0) {
    return cli::UsageError("--dry-run is about keys, and --obtain asks none");
  }
  if (obtain && asks) return cli::UsageError("--obtain asks no keys");
  if (obtain && (ahead == 0 || ahead > client::kMaxPadTo)) {
    return cli::UsageError(absl::StrCat("--obtain: 1 to ", client::kMaxPadTo, " slots"));
  }
  CommandKeys keys;
  if (!obtain) {
    SHOAL_ASSIGN_OR_RETURN(keys, CommandKeys::Read("shoal query", values, io));
  }
  Output output(cli::TextOr(values, "output", ""), io.out);
  SHOAL_RETURN_IF_ERROR(output.Check());
  SHOAL_ASSIGN_OR_RETURN(const SourceOptions source, SourceOptionsOf(values, kDefaultPad));
  if (source.engine != nullptr && obtain) {
    return cli::UsageError("--obtain takes slots of the chain alone");
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::Open("shoal query", config_path, connect, values.count("quiet") > 0, io));
  if (obtain) {
    return ObtainAhead(*session, static_cast<uint32_t>(ahead), source.beyond_phi, json_wanted, io);
  }
  SHOAL_RETURN_IF_ERROR(UseSource(source, keys.count(), *session));
  if (source.dry_run) return session->DryRun(keys, json_wanted, io.out);
  CommandResults results(json_wanted, keys, session->console(), output);
  SHOAL_RETURN_IF_ERROR(session->LookUp(keys, results));
  session->TellCosts();
  if (results.failed() > 0) WarnOfWrongRecords(source, *session);
  return OutcomeOf(results);
}

constexpr char kQueryHelp[] =
    R"(Looks keys up in the deployment's table through one round of the chain and verifies the
answers. Takes slots in a round first, unless there are some from --obtain. Prints one
line for every key, in the order of the input:
  key, found | absent | unknown | failed, value, yes | no (verified)    with tabs, or
  {"key":..,"status":..,"value":..,"verified":..}                 with --format json
In TSV, backslash, tab, line feed and carriage return are written as \\ \t \n \r, and
other characters that a terminal obeys or nobody sees, and bytes that are not UTF-8, as
\xHH. In JSON, such characters are \uHHHH, and keys and values that are not UTF-8 are
written as key_hex and value_hex. A key that is reported absent is proved to be absent. One that is
unknown may be in the table or not: its row is full, and which keys a full row lacks is
known when the next term begins, with another placement of the keys. Nothing went wrong
then, and exit code 4 says that some key is unknown.

After a crash, a lost connection or a full disk run the same command again: it
continues where it stopped. Exit code 3 means that an answer could not be verified; do
not let a script run the command again then, as that would tell which rows failed.

A file of keys has one key a line. Carriage returns before line feeds and a byte order
mark are left out of the keys, which is said. A line with what nobody sees is refused
with its number, and so is such a key on the command line: one in UTF-16 or another
encoding than UTF-8, with blanks at an end, tabs, controls or the like. It would be
proved to be absent. --escapes is for keys of any bytes. Keys have up to 4,096 bytes,
values up to 65,535.

A round protects so many queries of a device together, padding included, as the roster
says (phi; `shoal status` shows it). A lookup that takes more stops before it sends
anything: --over-rounds spreads it over rounds, phi queries at most in each, and
--accept-more sends it in one round. Where phi is 1, single lookups are protected, and a
lookup of several queries says what all of them reveal together. --dry-run says what a
lookup would cost and sends no query; max_epsilon of the configuration stops a lookup
that would take the device's ledger higher.

If a new version of the table goes live while the command waits for a round, it fetches
that version and goes on.

Without --over-rounds all keys go into one round, and each row is asked once. A
million keys take some 100 MB of memory, and a temporary file beside the state file that
is as large as their answers. Files of keys are read twice and must not change
meanwhile; keys from a pipe are held in memory.

With --engine, one server answers, at once: the frontend, or with --party another
party that runs the engine. Encryption hides which keys are asked for, but not how many
(--pad rounds their number up). The engine's hint is fetched once for each version of
the table and kept beside the state; an interrupted download is continued. Many keys of
a large hashed table are asked together in batches. How many there are depends on the
number of keys alone (docs/engines.md has the exception).

With --engine piano the table is read once before the first query (shoal prepare does
that ahead of time), and then every query takes little of the server. How many queries
are left is said at the end. A query is spent when it is sent, whatever comes of it; one
whose answer was lost is sent again, as it was, by the next command.

With --engine treepir, permuted or pair two servers answer, of parties that --party
(twice, offline first) or the configuration (offline_party, online_party) names. Each of
them learns nothing of which rows are asked for. Both together learn all of it, whatever
the other parties do. With pair nothing is prepared or kept.
)";

constexpr char kQueryExamples[] = R"(  shoal query --config client.textproto bash openssl
  shoal query --config client.textproto --file keys --output results.tsv
  dpkg-query -Wf '${Package}\n' | shoal query --config client.textproto --file -
  shoal query --config client.textproto --obtain 64     slots for a later query
  shoal query --config client.textproto --engine simplepir bash     one server, no round
  shoal query --config client.textproto --engine simplepir --party 2 bash
  shoal query --config client.textproto --engine piano bash         after shoal prepare
  shoal query --config client.textproto --engine treepir --party 1 --party 2 bash
  shoal query --config client.textproto --engine permuted --party 1 --party 2 bash
  shoal query --config client.textproto --engine pair --party 1 --party 2 bash
)";

void AddQueryOptions(cli::Options& options) {
  AddConfigOption(options);
  AddKeyOptions(options);
  AddFormatOption(options, "tsv");
  options.add_options()("output", cli::File(),
                        "write results to this file instead of standard output, when all "
                        "are there; only its owner can read it");
  options.add_options()("obtain", cli::Number(), "only take this many slots, for a later query");
  AddSourceOptions(options, kDefaultPad);
  options.add_options()("quiet", "print only errors on standard error");
}

}  // namespace

cli::Command Query(Connector connect) {
  return {
      .name = "query",
      .summary = "look keys up without telling anybody which",
      .help = kQueryHelp,
      .examples = kQueryExamples,
      .options = AddQueryOptions,
      .positional = "key",
      .run = std::bind_front(RunQuery, std::move(connect)),
  };
}

}  // namespace shoal::commands
