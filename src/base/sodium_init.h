// The initialisation that libsodium needs before its first use.
#ifndef SHOAL_SRC_BASE_SODIUM_INIT_H_
#define SHOAL_SRC_BASE_SODIUM_INIT_H_

namespace shoal {

// Lets libsodium pick its code for this processor; before that its hashes and ciphers are plain C,
// several times slower. May be called any number of times, from any thread: only the first call
// does anything. False if libsodium cannot be used.
bool InitSodium();

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_SODIUM_INIT_H_
