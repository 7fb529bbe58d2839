// What a directory of installed Python packages has beyond the packages that say their names.
#ifndef SHOAL_SRC_AUDIT_SITE_H_
#define SHOAL_SRC_AUDIT_SITE_H_

#include <cstddef>
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
  // Whether packages list a module, a file or a directory, or something in that.
  bool IsOwned(const std::string& module) const;
  // Adds what no package lists in a directory that is no package of Python itself, but one that
  // several may have parts in. `left`: how many entries may still be looked at.
  void AddForeign(const std::string& module, int depth, size_t& left,
                  std::vector<std::string>& foreign) const;

  const std::string& directory_;
  std::set<std::string> owned_;  // modules of the first level that are one package's
  // What packages list, and all directories around that, up to the first dot of the last part.
  std::set<std::string> listed_;
  std::vector<std::string> modules_, paths_;
};

// Whether pyvenv.cfg makes a virtual environment use the system's packages, too, or may: it does
// not say no, or cannot be read.
bool SharesTheSystems(const std::string& pyvenv_cfg);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_SITE_H_
