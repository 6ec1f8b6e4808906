#include "train/ddp/roll_call.h"

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace unisono::train {

RollCall call_roll(Communicator& control, Attendance mine) {
  const auto answer = static_cast<std::int32_t>(mine);
  std::vector<std::int32_t> answers(static_cast<std::size_t>(control.size()));
  control.all_gather(std::span(&answer, 1), answers);
  RollCall roll;
  for (Rank rank = 0; rank < control.size(); ++rank) {
    const std::int32_t value = answers[static_cast<std::size_t>(rank)];
    if (value < 0 || value > static_cast<std::int32_t>(Attendance::kStep)) {
      throw Error(Status(ErrorCode::kProtocol,
                         "rank " + std::to_string(rank) + " answers the roll with " +
                             std::to_string(value) + "; all ranks must use uneven_inputs alike",
                         rank));
    }
    const auto what = static_cast<Attendance>(value);
    if (what == Attendance::kOutOfData) continue;
    if (roll.active > 0 && what != roll.what) {
      throw std::invalid_argument("rank " + std::to_string(roll.first) + " and rank " +
                                  std::to_string(rank) +
                                  " train by different calls; use step() on all, or forward() and "
                                  "backward() on all");
    }
    if (roll.active == 0) roll.first = rank;
    roll.what = what;
    ++roll.active;
  }
  return roll;
}

}  // namespace unisono::train
