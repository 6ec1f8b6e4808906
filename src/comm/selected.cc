#include "comm/selected.h"

#include <fmt/format.h>

#include "algorithms/algorithm.h"
#include "comm/communicator_state.h"
#include "comm/init.h"

namespace unisono {

Selected selected_for(Communicator& communicator, Collective collective, std::size_t bytes,
                      std::string_view hint) {
  const detail::CommunicatorState& state = *CommunicatorAccess::state(communicator);
  const CallSelection& selection = state.host().selection();
  const auto choice = selection.select(collective, bytes, selection.hint_for(collective, hint));
  const std::string algorithm = !choice ? std::string(hint)
                                : choice->algorithm == nullptr
                                    ? "native"
                                    : std::string(choice->algorithm->name);
  return {link_of(communicator), algorithm};
}

Status check_algorithm(Collective collective, std::string_view hint) {
  if (hint.empty() || hint == "native" || algorithms::find(collective, hint) != nullptr) return {};
  return Status(
      ErrorCode::kInvalidArgument,
      fmt::format("no {} algorithm is called '{}'; choose one of: native, {}", name_of(collective),
                  hint.substr(0, 64), algorithms::names_of(collective)));
}

std::string link_of(Communicator& communicator) {
  return std::string(
      algorithms::name_of(CommunicatorAccess::state(communicator)->host().selection().link()));
}

}  // namespace unisono
