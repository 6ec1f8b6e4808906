// What speaks with the job for a rank. Where it lacks memory in the midst of a word it ends its
// process: a dead rank is named within milliseconds, one that is deaf never.
#pragma once

#include <sys/prctl.h>
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
    // Connections stay open until a core of all that memory is written.
    static_cast<void>(prctl(PR_SET_DUMPABLE, 0));
    std::abort();
  }
}

}  // namespace unisono::rendezvous
