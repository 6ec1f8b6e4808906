// Threads that end works for which somebody asked for a future.
#pragma once

#include <functional>

namespace unisono_torch {

/// Before the first task: there is a thread from here on, so that none is ever run by whoever adds
/// it, under locks that it may need. Throws where the system gives none.
void prepare_completions();

/// Runs `task` on a thread of its own, in which what follows a future may wait for
/// other calls: DDP's hooks do. The library's own thread, which finds out that a call is over, must
/// not, because it is the one that brings those to their end. Any thread; takes no lock that a task
/// is run under. Where the system gives no further thread, one that is there runs it when it has
/// the time.
void run_later(std::function<void()> task);

/// No task begins from here on, and those that run have two seconds to end: before the interpreter
/// ends, which ends threads that wait for it, in the middle of what they do. Futures that complete
/// later never do.
void end_completions();

}  // namespace unisono_torch
