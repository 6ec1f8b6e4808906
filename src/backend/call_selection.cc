#include "backend/call_selection.h"

#include <algorithm>

namespace unisono {
namespace {

// What all ranks know of a call of so many bytes.
std::size_t agreed(Collective collective, std::size_t bytes) {
  return facts_of(collective).has_agreed_lengths() ? bytes : 0;
}

}  // namespace

algorithms::SelectionRequest CallSelection::request_for(Collective collective,
                                                        std::size_t bytes) const {
  return {.collective = collective,
          .ranks = fixed_.ranks,
          .bytes = bytes,
          .link = fixed_.link,
          .shared_cores = fixed_.shared_cores,
          .native = fixed_.shared_memory,
          .order = fixed_.least_order,
          .links = fixed_.links,
          .access = fixed_.access};
}

Result<algorithms::Choice> CallSelection::select(const Call& call, const CallShape& shape) {
  const std::string_view hint = hint_for(call.collective, call.options.algorithm);
  if (fixed_.shared_memory && hint.empty()) {
    auto& ranges = native_ranges_[static_cast<std::size_t>(call.collective)];
    if (ranges.empty()) ranges = fixed_.table.native_ranges(request_for(call.collective, 0));
    const auto range = std::find_if(ranges.begin(), ranges.end(), [&](const auto& candidate) {
      return shape.agreed_bytes <= candidate.bytes_max;
    });
    // A call that must not use every algorithm may still be native: the table knows.
    if (range != ranges.end() && range->native) return algorithms::Choice{.path = range->path};
  }
  return choose(call, shape.agreed_bytes);
}

Result<algorithms::Choice> CallSelection::preview(const Call& call, std::size_t bytes) const {
  return choose(call, agreed(call.collective, bytes));
}

Result<algorithms::Choice> CallSelection::select(Collective collective, std::size_t bytes) const {
  return fixed_.table.choose(request_for(collective, agreed(collective, bytes)), "");
}

Result<algorithms::Choice> CallSelection::choose(const Call& call, std::size_t agreed_bytes) const {
  algorithms::SelectionRequest request = request_for(call.collective, agreed_bytes);
  request.commutative = call.op.kind != OpKind::kUser || call.op.commutative;
  request.order = order_of(call);
  return fixed_.table.choose(request, hint_for(call.collective, call.options.algorithm));
}

std::string CallSelection::explain(Collective collective, std::size_t bytes) const {
  const std::size_t most = std::min(bytes, kBufferBytesMax);
  return fixed_.table.explain(request_for(collective, agreed(collective, most)),
                              hint_for(collective, ""));
}

}  // namespace unisono
