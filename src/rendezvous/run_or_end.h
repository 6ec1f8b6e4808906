// The threads that speak for a rank while its program computes. One that lacks memory in the midst
// of a word ends its process: a dead rank is named within milliseconds, one that is deaf never.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace unisono::rendezvous {

/// Runs `work`; where it throws std::bad_alloc the process says so and aborts. `thread`: whose work
/// it is, for people.
template <typename Work>
void run_or_end(const char* thread, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    dprintf(STDERR_FILENO,
            "unisono: there is no memory left for the %s, so this process ends and the other ranks "
            "hear of it; give it more, or less to do\n",
            thread);
    std::abort();
  }
}

}  // namespace unisono::rendezvous
