#include "comm/selected.h"

#include "algorithms/selection.h"
#include "comm/communicator_state.h"
#include "comm/init.h"

namespace unisono {

Selected selected_for(Communicator& communicator, const Call& call, std::size_t bytes) {
  const detail::CommunicatorState& state = *CommunicatorAccess::state(communicator);
  const CallSelection& selection = state.host().selection();
  const auto choice = selection.preview(call, bytes);
  const std::string algorithm =
      !choice ? std::string(selection.hint_for(call.collective, call.options.algorithm))
      : choice->algorithm == nullptr ? "native"
                                     : std::string(choice->algorithm->name);
  return {link_of(communicator), algorithm};
}

Status check_algorithm(Collective collective, std::string_view hint) {
  return hint.empty() ? Status() : algorithms::check_hint(collective, hint);
}

std::string link_of(Communicator& communicator) {
  return std::string(
      algorithms::name_of(CommunicatorAccess::state(communicator)->host().selection().link()));
}

}  // namespace unisono
