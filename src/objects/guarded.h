// What a rank does alone between the exchanges of an object call: where it cannot go on, the others
// do not wait for it.
// Thread rule: as Communicator.
#pragma once

#include "objects/announcement.h"

namespace unisono::objects {

/// Within a handler: aborts the communicator, if it works, and throws what was caught: Error, lack
/// of memory as one, and what is no std::exception as it is.
[[noreturn]] void give_up(Communicator& communicator, Kind kind);

/// Runs `move`. What it throws while the communicator works would leave the others waiting for this
/// rank: then the communicator is aborted.
template <typename Move>
void move_guarded(Communicator& communicator, Kind kind, const Move& move) {
  try {
    move();
  } catch (...) {
    give_up(communicator, kind);
  }
}

}  // namespace unisono::objects
