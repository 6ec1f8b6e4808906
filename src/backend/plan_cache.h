// Shape of a call -> prepared plan. The key holds no addresses, so a plan serves every buffer of
// its shape. Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/execution.h"
#include "unisono/communicator.h"

namespace unisono {

class PlanCache {
 public:
  /// The prepared plan for `call` on `rank` of `size`; built at the first call of a shape. Stays
  /// valid while `in_use` of the returned entry is above zero and until kEntriesMax others follow.
  struct Entry {
    std::vector<std::uint64_t> key;
    PreparedPlan plan;
    int in_use = 0;
    std::uint64_t last_use = 0;
  };
  Entry& get(const Call& call, const algorithms::Algorithm& algorithm, int chunks, bool in_place,
             Rank rank, int size);

 private:
  static constexpr std::size_t kEntriesMax = 64;
  void make_key(const Call& call, const algorithms::Algorithm& algorithm, int chunks,
                bool in_place);

  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::uint64_t> key_;  // of the current look-up, reused
  std::uint64_t uses_ = 0;
};

}  // namespace unisono
