// Threads that end works for which somebody asked for a future.
#pragma once

#include <functional>

namespace unisono_torch {

/// Runs `task` on a thread of its own, in which what follows a future may wait for
/// other calls: DDP's hooks do. The library's own thread, which finds out that a call is over, must
/// not, because it is the one that brings those to their end. Any thread; takes no lock that a task
/// is run under. Throws where no thread can be had.
void run_later(std::function<void()> task);

}  // namespace unisono_torch
