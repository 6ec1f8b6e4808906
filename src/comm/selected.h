// What calls on host memory run on a communicator, as values: for `unisono perf`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "unisono/communicator.h"

namespace unisono {

struct Selected {
  std::string link;       ///< between the members, of the slowest kind: "shm", "tcp", ...
  std::string algorithm;  ///< "native" or a name of the catalog; the hint where that is refused
};

/// `bytes` as nccl-tests count them. Of the call only the collective, the type, the operator and
/// the options matter.
Selected selected_for(Communicator& communicator, const Call& call, std::size_t bytes);
/// kInvalidArgument, with those that there are, for a hint that no communicator takes.
Status check_algorithm(Collective collective, std::string_view hint);
/// Between the members alone.
std::string link_of(Communicator& communicator);

}  // namespace unisono
