// Which instruction sets the kernels are compiled for. Include before any Highway header.
// On x86-64: SSE4, AVX2 and AVX-512 (AVX3), whatever -march says. SSE4 is the floor so that no
// slow, rarely tested one-lane variant has to be compiled; Reduction::make refuses older
// processors. Elsewhere Highway's own choice holds (NEON, SVE).
#pragma once

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
