// By which times a case goes that its job can set.
#include <algorithm>
#include <chrono>

#include "tests/sim/case_parts.h"

namespace unisono::sim {

using std::chrono::milliseconds;

// Another silence than the default, and less patience. What was long or short for a silence is so
// for another one. Drawn apart, so that the other seeds' cases are as they were without.
void choose_limits(Case* c) {
  if (c->faults.empty()) return;
  Random limits(c->seed * 0x9e3779b97f4a7c15ull);
  if (!limits.one_in(4)) return;
  c->patience =
      milliseconds(50) + std::chrono::ceil<milliseconds>(limits.of_any_scale_up_to(kUsualPatience));
  if (c->silence.count() == 0) return;
  const milliseconds before = c->silence;
  // What is lost for a while is sent again in a time that does not follow the silence.
  const bool is_back_soon = std::any_of(c->faults.begin(), c->faults.end(), [](const Fault& fault) {
    return fault.kind == Fault::Kind::kPartition && !fault.is_for_ever();
  });
  c->silence = is_back_soon ? before : milliseconds(200 << limits.below(8));
  c->silence += std::chrono::ceil<milliseconds>(limits.up_to(c->silence / 6));
  for (Fault& fault : c->faults) {
    // Who leaves waits for two seconds until what it has sent is taken, whatever the silence is.
    const bool is_missed = fault.lasts >= before;
    if (fault.is_for_ever() || (c->silence > before && !is_missed)) continue;
    fault.lasts = fault.lasts * c->silence.count() / before.count();
  }
  // Longer than anything takes that ends well.
  const milliseconds least = milliseconds(7000);
  if (c->sharing == Sharing::kNone && !c->grows() && c->silence > least && limits.one_in(2)) {
    c->deadline = least + std::chrono::ceil<milliseconds>(limits.up_to(c->silence - least));
  }
  // Some networks tell at once that a link is down, both ways.
  c->network.unacknowledged = rendezvous::unacknowledged_max(c->silence);
  const bool is_one_way = std::any_of(c->faults.begin(), c->faults.end(),
                                      [](const Fault& fault) { return fault.is_one_way; });
  if (!is_one_way && limits.one_in(3)) {
    c->network.unacknowledged = limits.of_any_scale_up_to(c->network.unacknowledged);
  }
}

}  // namespace unisono::sim
