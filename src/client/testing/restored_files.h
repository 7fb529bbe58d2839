// Ways in which an old copy of a directory comes back, for tests: the tools that people copy files
// with, run as they are, and a file system that is set back to a snapshot.
#ifndef SHOAL_SRC_CLIENT_TESTING_RESTORED_FILES_H_
#define SHOAL_SRC_CLIENT_TESTING_RESTORED_FILES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace shoal::client::testing {

// A shell command to copy directory A away to B, and one to bring it back over the files of A.
struct CopyTool {
  const char* name;
  const char* save;
  const char* restore;
};
// All of them. They need rsync (scripts/setup --test).
const std::vector<CopyTool>& CopyTools();

// Runs a shell command in which $A and $B stand for the two paths. Stops the test if it fails.
void RunShell(absl::string_view command, const std::string& a, const std::string& b);

// The files of a directory as a snapshot of their file system would bring them back: the same
// contents in files with the same inodes and times of birth. It holds on to the files by hard links
// in another directory, so that a file system that gives inodes out again needs no luck.
class Snapshot {
 public:
  // `links` is a directory beside `directory`, on the same file system. It is made.
  Snapshot(const std::string& directory, const std::string& links);
  // Files that came later are removed.
  void Restore() const;

 private:
  const std::string directory_;
  const std::string links_;
  std::map<std::string, std::string> contents_;  // by name
};

}  // namespace shoal::client::testing

#endif  // SHOAL_SRC_CLIENT_TESTING_RESTORED_FILES_H_
