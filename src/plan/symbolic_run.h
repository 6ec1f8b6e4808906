// Runs the plans of all ranks with symbols for values. The order of the run does not matter: the
// hazard check has shown that every order gives the same values. One thread.
#pragma once

#include <boost/dynamic_bitset.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/cell_map.h"
#include "plan/plan_check.h"
#include "plan/symbolic_value.h"

namespace unisono::plan {

/// A bit for each rank of the job; empty: none is in it.
using RankSet = boost::dynamic_bitset<std::uint64_t>;

class SymbolicRun {
 public:
  /// Needs plans that pass the structure and channel checks, and that outlive the run.
  SymbolicRun(std::span<const Plan> plans, SendSemantics semantics);

  /// Runs to the end; a status that names a waiting rank when some step never completes.
  Status run();
  /// What an output chunk holds afterwards.
  Value output(Rank rank, std::uint32_t chunk) const;
  SymbolTable& symbols() { return symbols_; }
  /// Of a barrier: by rank, those that had arrived before it left.
  std::vector<RankSet> heard() const;

 private:
  static constexpr std::size_t kNoNode = ~std::size_t{0};

  // A step of one rank, as it runs.
  struct Node {
    Rank rank = 0;
    const Step* step = nullptr;
    std::uint32_t waits = 0;  // dependencies, and the start of the message before on its channel
    std::size_t next_on_channel = kNoNode;
    std::size_t match = kNoNode;  // the other end of the message
    std::vector<std::size_t> dependants;
    bool started = false;
    bool complete = false;
    std::vector<Value> message;  // of a send, captured at its start
    RankSet heard;               // of a barrier: known to have arrived
  };

  void link_steps(Rank rank, std::size_t first);
  void link_messages();
  void load_inputs();
  void start(std::size_t index);
  void finish(std::size_t index);
  void release(std::size_t index);
  void apply(Node& node);
  void reduce_all(const Node& node);
  void deliver(std::size_t send, std::size_t receive);
  Value* cells(Rank rank, const ChunkRange& range) {
    const auto at = static_cast<std::size_t>(rank);
    return values_[at].data() + maps_[at].first_cell(range);
  }
  Status stuck() const;

  std::span<const Plan> plans_;
  const bool eager_;
  const bool is_barrier_;
  SymbolTable symbols_;
  std::vector<CellMap> maps_;
  std::vector<std::vector<Value>> values_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> ready_;
  std::size_t complete_count_ = 0;
};

}  // namespace unisono::plan
