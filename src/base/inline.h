// Hints that make vector kernels fast: the compiler keeps limbs and lanes in registers only when
// every function is inlined and every loop over them is unrolled.
#ifndef SHOAL_SRC_BASE_INLINE_H_
#define SHOAL_SRC_BASE_INLINE_H_

#ifdef SHOAL_SMALL_KERNEL_CODE
// For tests that run the kernels' templates on other types than vectors. Without forced inlining
// they compile in seconds.
#define SHOAL_INLINE inline
#define SHOAL_UNROLL
#else
#define SHOAL_INLINE inline __attribute__((always_inline))
#define SHOAL_UNROLL _Pragma("GCC unroll 32")
#endif
// Stands after a lambda's parameters.
#define SHOAL_INLINE_LAMBDA __attribute__((always_inline))
#define SHOAL_NOINLINE __attribute__((noinline))

#endif  // SHOAL_SRC_BASE_INLINE_H_
