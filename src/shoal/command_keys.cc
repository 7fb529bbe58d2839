#include "src/shoal/command_keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <istream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/base/printable.h"
#include "src/base/status_macros.h"
#include "src/shoal/key_lines.h"
#include "src/storage/file.h"
#include "src/table/records.h"

namespace shoal::commands {
namespace {

// The most bytes of keys from a pipe, which can be read only once and so are held in memory.
constexpr size_t kMaxHeldBytes = 1 << 30;
constexpr size_t kBufferBytes = 1 << 16;

// Takes what read(buffer, bytes) gives until it gives nothing: StatusOr of how many bytes came.
template <typename Read, typename Take>
absl::Status ForEachPiece(Read read, Take take) {
  std::string buffer(kBufferBytes, '\0');
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const size_t n, read(buffer.data(), buffer.size()));
    if (n == 0) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(take(absl::string_view(buffer).substr(0, n)));
  }
}

auto FromStream(std::istream& in, const std::string& name) {
  return [&in, &name](char* buffer, size_t bytes) -> absl::StatusOr<size_t> {
    in.read(buffer, static_cast<std::streamsize>(bytes));
    if (in.bad()) return absl::UnavailableError(absl::StrCat(name, ": cannot be read to its end"));
    return static_cast<size_t>(in.gcount());
  };
}

auto FromFile(int fd, const std::string& path) {
  return [fd, &path](char* buffer, size_t bytes) -> absl::StatusOr<size_t> {
    for (;;) {
      const ssize_t n = ::read(fd, buffer, bytes);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EINTR) return ErrnoStatus(errno, path);
    }
  };
}

// All that comes, of which the lines are looked at as they come: one that never ends, such as
// /dev/zero, is refused at its first line.
template <typename Read>
absl::StatusOr<std::string> ReadAll(Read read, const std::string& name) {
  const KeyLines::Take take = [](absl::string_view) { return absl::OkStatus(); };
  KeyLines cutter(name, take);
  std::string text;
  const auto hold = [&](absl::string_view piece) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(cutter.Feed(piece));
    if (text.size() + piece.size() > kMaxHeldBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name, ": more than ", kMaxHeldBytes, " bytes of keys; give a regular file"));
    }
    absl::StrAppend(&text, piece);
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(ForEachPiece(read, hold));
  return text;
}

absl::Status FeedFile(const std::string& path, KeyLines& cutter) {
  SHOAL_ASSIGN_OR_RETURN(const int fd, OpenToRead(path));
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  return ForEachPiece(FromFile(fd, path),
                      [&](absl::string_view piece) { return cutter.Feed(piece); });
}

}  // namespace

absl::StatusOr<CommandKeys> CommandKeys::Read(absl::string_view command, const cli::Values& values,
                                              cli::Io& io) {
  CommandKeys keys;
  keys.escapes_ = values.count("escapes") > 0;
  keys.words_ = cli::TextsOf(values, "key");
  for (const std::string& path : cli::TextsOf(values, "file")) {
    Source source{.name = path == "-" ? "standard input" : path};
    struct stat info;
    if (path == "-") {
      SHOAL_ASSIGN_OR_RETURN(source.held, ReadAll(FromStream(io.in, source.name), source.name));
    } else if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
      if (io.err_is_terminal) {
        io.err << command << ": " << Printable(path)
               << " is a pipe: waiting for whoever writes keys to it\n";
      }
      SHOAL_ASSIGN_OR_RETURN(const int fd, OpenToRead(path));
      auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
      SHOAL_ASSIGN_OR_RETURN(source.held, ReadAll(FromFile(fd, path), path));
    } else if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) &&
               !S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": is no regular file and no pipe: give one of them, or - for standard input"));
    }
    keys.sources_.push_back(std::move(source));
  }
  SHOAL_RETURN_IF_ERROR(keys.ForEach([](BytesView) { return absl::OkStatus(); }));
  if (keys.count() == 0) return cli::UsageError("no keys: give some, or --file FILE");
  for (const std::string& note : keys.notes_) io.err << command << ": " << note << '\n';
  return keys;
}

absl::Status CommandKeys::ForEach(const std::function<absl::Status(BytesView)>& take) {
  uint64_t count = 0;
  std::vector<std::string> notes;
  uint64_t accents_apart = 0;
  const KeyLines::Take take_text = [&](absl::string_view text) -> absl::Status {
    ++count;
    accents_apart += HasAccentsApart(text);
    if (!escapes_) return take(AsBytes(text));
    SHOAL_ASSIGN_OR_RETURN(const Bytes key, table::UnescapeTsv(text));
    return take(key);
  };
  for (const std::string& word : words_) {
    if (word.empty()) {
      return absl::InvalidArgumentError("a key on the command line is empty: is a variable unset?");
    }
    if (const absl::Status status = CheckKeyText(word); !status.ok()) {
      return Annotate(status, absl::StrCat("\"", Printable(word), "\" on the command line"));
    }
    SHOAL_RETURN_IF_ERROR(take_text(word));
  }
  for (const Source& source : sources_) {
    KeyLines cutter(source.name, take_text);
    if (source.held) {
      SHOAL_RETURN_IF_ERROR(cutter.Feed(*source.held));
    } else {
      SHOAL_RETURN_IF_ERROR(FeedFile(source.name, cutter));
    }
    SHOAL_RETURN_IF_ERROR(cutter.Finish());
    if (std::string note = cutter.Note(); !note.empty()) notes.push_back(std::move(note));
  }
  if (accents_apart > 0) {
    notes.push_back(absl::StrCat(
        accents_apart, accents_apart == 1 ? " key has" : " keys have",
        " accents apart from their letters (NFD, as macOS writes names of files): a table that has "
        "both as one character (NFC) has another key, and says that this one is absent"));
  }
  count_ = count;
  notes_ = std::move(notes);
  return absl::OkStatus();
}

void AddKeyOptions(cli::Options& options) {
  options.add_options()("key", cli::Texts(), "a key; --key may be left out");
  options.add_options()("file", cli::Files(), "keys from a file, one a line; - is standard input");
  options.add_options()("escapes", "keys are written with \\\\ \\t \\n \\r \\xHH, for any bytes");
}

}  // namespace shoal::commands
