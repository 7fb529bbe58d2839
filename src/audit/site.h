// What a directory of installed Python packages has beyond the packages that say their names.
#ifndef SHOAL_SRC_AUDIT_SITE_H_
#define SHOAL_SRC_AUDIT_SITE_H_

#include <set>
#include <string>
#include <vector>

namespace shoal::audit {

// A file or directory that says or has packages, and why it was not read.
struct Unread {
  std::string path, why;
  bool operator<(const Unread& other) const { return path < other.path; }
};

// A site-packages or dist-packages. Take gets each of its entries once.
class Site {
 public:
  explicit Site(const std::string& directory) : directory_(directory) {}

  void Take(const std::string& name, bool is_directory);
  // Modules that no installed package says to be its own, and directories elsewhere whose packages
  // are used like those here.
  std::vector<Unread> NotRead() const;

 private:
  void TakeMetadata(const std::string& name, bool is_directory);

  const std::string& directory_;
  std::set<std::string> owned_;  // the first part of what packages list, up to its first dot
  std::vector<std::string> modules_, paths_;
};

// Whether pyvenv.cfg makes a virtual environment use the system's packages, too, or may: it does
// not say no, or cannot be read.
bool SharesTheSystems(const std::string& pyvenv_cfg);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_SITE_H_
