// For the small parts of a kernel's inner loop, which gcc would not always inline by itself.
#ifndef SHOAL_SRC_PIR_INLINE_H_
#define SHOAL_SRC_PIR_INLINE_H_

#define SHOAL_PIR_INLINE inline __attribute__((always_inline))

#endif  // SHOAL_SRC_PIR_INLINE_H_
