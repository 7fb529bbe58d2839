#include "src/shoal/command_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
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

// What a stream has, of which the lines are looked at as they come: one that never ends, such as
// /dev/zero, is refused at its first line.
absl::StatusOr<std::string> ReadAll(std::istream& in, const std::string& name) {
  const KeyLines::Take take = [](absl::string_view) { return absl::OkStatus(); };
  KeyLines cutter(name, take);
  std::string text;
  std::string buffer(kBufferBytes, '\0');
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    const auto piece = absl::string_view(buffer).substr(0, static_cast<size_t>(in.gcount()));
    SHOAL_RETURN_IF_ERROR(cutter.Feed(piece));
    if (text.size() + piece.size() > kMaxHeldBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name, ": more than ", kMaxHeldBytes, " bytes of keys; give a regular file"));
    }
    absl::StrAppend(&text, piece);
  }
  if (in.bad()) return absl::UnavailableError(absl::StrCat(name, ": cannot be read to its end"));
  return text;
}

absl::Status FeedFile(const std::string& path, KeyLines& cutter) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  std::string buffer(kBufferBytes, '\0');
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(cutter.Feed(absl::string_view(buffer).substr(0, static_cast<size_t>(n))));
  }
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
      SHOAL_ASSIGN_OR_RETURN(source.held, ReadAll(io.in, source.name));
    } else if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
      if (io.err_is_terminal) {
        io.err << command << ": " << Printable(path)
               << " is a pipe: waiting for whoever writes keys to it\n";
      }
      std::ifstream pipe(path, std::ios::binary);
      if (!pipe) return ErrnoStatus(errno, path);
      SHOAL_ASSIGN_OR_RETURN(source.held, ReadAll(pipe, path));
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
