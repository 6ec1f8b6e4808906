// What the tests of shared memory let the kernel do with fallocate(), also in the library under
// test: as long as nothing is set, what it does.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace unisono::test {

struct FallocateFaults {
  std::atomic<off_t> at_once_max{0};  ///< bytes that get done by the next signal; 0: none comes
  std::atomic<int> interrupted{0};
  std::atomic<off_t> refused_min{0};  ///< there is no memory for so many bytes or more; 0: there is
  std::atomic<int> refused{0};
};
inline FallocateFaults fallocate_faults;

}  // namespace unisono::test
