// Where a user's own files lie, by the XDG Base Directory Specification.
#ifndef SHOAL_SRC_STORAGE_USER_DIRECTORIES_H_
#define SHOAL_SRC_STORAGE_USER_DIRECTORIES_H_

#include <string>

namespace shoal {

// $XDG_CONFIG_HOME/shoal, or ~/.config/shoal. A variable that is empty or no absolute path counts
// as unset, as the specification asks. Empty if there is no home either.
std::string UserConfigDirectory();

// $XDG_STATE_HOME/shoal, or ~/.local/state/shoal; likewise.
std::string UserStateDirectory();

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_USER_DIRECTORIES_H_
