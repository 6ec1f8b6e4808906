// In front of every function that kernels and their host twins share. No state.
#pragma once

#ifdef __CUDACC__
#define UNISONO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define UNISONO_HOST_DEVICE inline
#endif
