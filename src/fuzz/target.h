// Parsers of bytes from outside, as targets for fuzzing.
//
// A target is one function over arbitrary bytes. `format_fuzz_test` and `program_fuzz_test` give
// each target its seeds, and thousands of mutated ones; `scripts/fuzz` has libFuzzer search for new
// inputs, for as long as one likes. What either finds becomes an input in found/, which the tests
// run for ever.
#ifndef SHOAL_SRC_FUZZ_TARGET_H_
#define SHOAL_SRC_FUZZ_TARGET_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "src/base/bytes.h"

namespace shoal::fuzz {

struct Target {
  std::string name;
  // Inputs that the parser accepts, made by the code that writes the format.
  std::vector<Bytes> seeds;
  // Parses the input. True if it was accepted. What must hold of everything that is accepted is
  // checked (SHOAL_CHECK): for a format with one encoding, that this encoding is the input. Any
  // input may follow any other, on one thread.
  std::function<bool(BytesView input)> parse;
  // Mutated inputs in the tests. Lower where one takes milliseconds.
  uint32_t mutations = 2000;
};

// All targets, in two parts: formats, and what clients and parties do with what they are sent. Each
// may keep what it needs (keys, a table) for as long as it lives.
std::vector<Target> FormatTargets();
std::vector<Target> ProgramTargets();

// Parts of the two, by what the parsers belong to.
void AddWireTargets(std::vector<Target>& targets);
void AddChainAnswerTargets(std::vector<Target>& targets);
void AddSignedTargets(std::vector<Target>& targets);
void AddTableTargets(std::vector<Target>& targets);
void AddAuditTargets(std::vector<Target>& targets);
void AddOnionTargets(std::vector<Target>& targets);
void AddPirTargets(std::vector<Target>& targets);
void AddClientTargets(std::vector<Target>& targets);
void AddServerTargets(std::vector<Target>& targets);
void AddServiceTargets(std::vector<Target>& targets);
void AddDoorTargets(std::vector<Target>& targets);

inline Bytes InputOf(absl::string_view text) { return ToBytes(AsBytes(text)); }
inline Bytes InputOf(const google::protobuf::MessageLite& message) {
  return InputOf(message.SerializeAsString());
}
inline std::string TextOf(BytesView input) { return ToString(input); }

// Reads numbers and blobs from the front of an input, for parsers with more than one argument.
// Zeros and nothing behind its end.
class Cursor {
 public:
  explicit Cursor(BytesView rest) : rest_(rest) {}
  uint8_t U8();
  uint16_t U16();
  // As many bytes as the next two say.
  BytesView Blob();
  BytesView rest() const { return rest_; }

 private:
  BytesView rest_;
};
// What Cursor::Blob reads.
void AppendBlob(BytesView blob, Bytes& out);

// Writes the input to a file of this process, for parsers of files, and returns its path. The next
// call writes the same file. `name` is the file's; its directory has no other file at first.
std::string FileOf(BytesView input, const std::string& name);
// A private file with these bytes, in place of one that is there. Not durable: that would take most
// of the time.
void WriteInput(BytesView input, const std::string& path);

// For files that begin with Transcript(domain).Blob(the rest): nearly every change of one breaks
// the digest, and nothing behind it would be tested. The first byte of the input says whether the
// digest is made to fit (an even byte) or is what the input has; returns the file.
Bytes WithDigest(absl::string_view domain, BytesView input);
// The input of such a target for a file that was written.
Bytes DigestInput(BytesView file);

}  // namespace shoal::fuzz

#endif  // SHOAL_SRC_FUZZ_TARGET_H_
