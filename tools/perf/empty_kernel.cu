// A kernel that does nothing: what a launch takes.
extern "C" __global__ void unisono_perf_empty(unsigned) {}
