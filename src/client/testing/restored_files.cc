#include "src/client/testing/restored_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/storage/file.h"

namespace shoal::client::testing {

namespace fs = std::filesystem;

const std::vector<CopyTool>& CopyTools() {
  static const auto* const kTools = new std::vector<CopyTool>{
      {"cp", "cp -r $A/. $B", "cp -r $B/. $A"},
      {"cp to other files", "cp -r $A/. $B", "rm -f $A/* && cp -r $B/. $A"},
      {"cp -p", "cp -rp $A/. $B", "cp -rp $B/. $A"},
      {"cp -a to another directory", "cp -a $A/. $B", "rm -rf $A && cp -a $B $A"},
      {"mv of a copy", "cp -a $A/. $B", "rm -rf $A && cp -a $B $B.2 && mv $B.2 $A"},
      // With -I or -c, as files of one second and one size count as equal otherwise.
      {"rsync", "rsync -a $A/ $B", "rsync -aI --delete $B/ $A"},
      {"rsync of what differs", "rsync -a $A/ $B", "rsync -ac --delete $B/ $A"},
      {"rsync --inplace", "rsync -a $A/ $B", "rsync -aI --inplace --delete $B/ $A"},
      {"tar", "tar -C $A -cf $B/tar .", "tar -C $A -xf $B/tar"},
      {"tar --overwrite", "tar -C $A -cf $B/tar .", "tar -C $A --overwrite -xf $B/tar"},
  };
  return *kTools;
}

void RunShell(absl::string_view command, const std::string& a, const std::string& b) {
  SHOAL_CHECK(::setenv("A", a.c_str(), 1) == 0 && ::setenv("B", b.c_str(), 1) == 0);
  SHOAL_CHECK(std::system(std::string(command).c_str()) == 0);
}

Snapshot::Snapshot(const std::string& directory, const std::string& links)
    : directory_(directory), links_(links) {
  SHOAL_CHECK(fs::create_directory(links));
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    auto content = ReadFile(entry.path());
    SHOAL_CHECK(content.ok());
    contents_[name] = *std::move(content);
    fs::create_hard_link(entry.path(), links + "/" + name);
  }
}

void Snapshot::Restore() const {
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (!contents_.contains(entry.path().filename())) fs::remove(entry.path());
  }
  for (const auto& [name, content] : contents_) {
    const std::string link = absl::StrCat(links_, "/", name),
                      path = absl::StrCat(directory_, "/", name);
    // In place: the file stays the same one.
    std::ofstream(link, std::ios::in | std::ios::out | std::ios::trunc) << content;
    fs::remove(path);
    fs::create_hard_link(link, path);
  }
}

}  // namespace shoal::client::testing
