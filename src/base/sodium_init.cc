#include "src/base/sodium_init.h"

#include "sodium.h"

namespace shoal {

bool InitSodium() {
  static const bool is_ready = sodium_init() >= 0;
  return is_ready;
}

}  // namespace shoal
