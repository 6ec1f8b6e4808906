// Which instruction sets the kernels are compiled for. Include before any Highway header.
// On x86-64: SSE4, AVX2 and AVX-512 (AVX3), whatever -march says. SSE4 is the floor so that no
// slow, rarely tested one-lane variant has to be compiled; Reduction::make refuses older
// processors. Elsewhere Highway's own choice holds (NEON).
#pragma once

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#elif defined(__aarch64__)
// Their vectors cannot be members, as kernels_exact.cc has them.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
