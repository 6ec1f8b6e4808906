// What runs a call on host memory: an algorithm, or shared memory and by which path.
//
// Thread rule: select() of a call under the engine's lock; the rest from any thread, since it reads
// what does not change.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/selection.h"
#include "backend/call_check.h"
#include "base/exact_order.h"
#include "base/result.h"
#include "unisono/communicator.h"

namespace unisono {

/// Whether the call asks for an algorithm of its own.
inline bool names_algorithm(const CallOptions& options) {
  return !options.algorithm.empty() && options.algorithm != kAutomaticAlgorithm;
}

class CallSelection {
 public:
  /// What does not change from call to call.
  struct Circumstances {
    const algorithms::SelectionTable& table;
    const algorithms::Hints& hints;  ///< of the settings
    int ranks = 0;
    algorithms::Link link;
    bool shared_cores = false;  ///< more ranks than processors on some host
    bool shared_memory = false;
    const algorithms::LinkFacts& links;  ///< may get known later
    AccessPath access = AccessPath::kAutomatic;
    Order least_order = Order::kAny;
  };
  explicit CallSelection(const Circumstances& circumstances) : fixed_(circumstances) {}

  algorithms::Link link() const { return fixed_.link; }
  /// `own`, or where that is empty the hint of the settings. Empty: selection decides.
  std::string_view hint_for(Collective collective, std::string_view own) const {
    const std::string_view hint =
        own.empty() ? std::string_view(fixed_.hints[static_cast<std::size_t>(collective)]) : own;
    return hint == kAutomaticAlgorithm ? std::string_view() : hint;
  }
  /// What its reduction keeps: what it asks for, or what all do.
  Order order_of(const Call& call) const {
    const Order order = std::max(call.options.order, fixed_.least_order);
    const bool is_exact = order != Order::kExact || has_exact_sums(call.type, call.op.kind);
    return is_exact ? order : Order::kCanonical;
  }
  /// For a checked collective. Without a hint most often a look at the first entry of a short list.
  Result<algorithms::Choice> select(const Call& call, const CallShape& shape);
  /// What a call of so many bytes would run: of the call only the collective, the type, the
  /// operator and the options matter.
  Result<algorithms::Choice> preview(const Call& call, std::size_t bytes) const;
  /// What a call runs whose order and operator are free, without hints.
  Result<algorithms::Choice> select(Collective collective, std::size_t bytes) const;
  /// The same in words, with the hint of the settings.
  std::string explain(Collective collective, std::size_t bytes) const;

 private:
  algorithms::SelectionRequest request_for(Collective collective, std::size_t bytes) const;
  Result<algorithms::Choice> choose(const Call& call, std::size_t agreed_bytes) const;

  Circumstances fixed_;
  // The table's answers, by collective, each made at its first call.
  std::array<std::vector<algorithms::NativeRange>, kCollectiveCount> native_ranges_;
};

}  // namespace unisono
