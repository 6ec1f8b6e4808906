#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/entries.h"
#include "base/per_process.h"

namespace unisono::algorithms {

namespace {

// Ranks compare their hints by an algorithm's place among its collective's: whoever moves one
// raises kWireVersion.
struct Catalog {
  std::vector<Algorithm> algorithms{
      kAllReduceRing,
      kAllReduceRecursiveDoubling,
      kAllReduceHalvingDoubling,
      kAllReduceBine,
      kAllReduceDoubleBinaryTree,
      kAllReduceOneShot,
      kAllReduceTwoShot,
      kReduceBinomial,
      kReduceBine,
      kReducePipelinedChain,
      kReduceLinear,
      kBroadcastBinomial,
      kBroadcastBine,
      kBroadcastPipelinedChain,
      kBroadcastDoubleBinaryTree,
      kBroadcastLinear,
      kAllGatherRing,
      kAllGatherBruck,
      kAllGatherRecursiveDoubling,
      kAllGatherBine,
      kAllGatherPat,
      kAllGatherLinear,
      kAllGatherVRing,
      kAllGatherVLinear,
      kReduceScatterRing,
      kReduceScatterRecursiveHalving,
      kReduceScatterBine,
      kReduceScatterPat,
      kReduceScatterDirect,
      kReduceScatterVRing,
      kReduceScatterVDirect,
      kGatherLinear,
      kGatherBinomial,
      kGatherVLinear,
      kScatterLinear,
      kScatterBinomial,
      kScatterVLinear,
      kAllToAllPairwise,
      kAllToAllBruck,
      kAllToAllLinear,
      kAllToAllVPairwise,
      kAllToAllVLinear,
      kBarrierDissemination,
      kScanLinear,
      kScanRecursiveDoubling,
      kScanDirect,
      kExscanLinear,
      kExscanRecursiveDoubling,
      kExscanDirect,
  };
};
constinit PerProcess<Catalog> catalog_of_process;

}  // namespace

std::span<const Algorithm> catalog() { return catalog_of_process.get().algorithms; }

const Algorithm* find(Collective collective, std::string_view name) {
  const auto all = catalog();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Algorithm& algorithm) {
    return algorithm.collective == collective && algorithm.name == name;
  });
  return found == all.end() ? nullptr : &*found;
}

std::string names_of(Collective collective) {
  std::string names;
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != collective) continue;
    if (!names.empty()) names += ", ";
    names += algorithm.name;
  }
  return names;
}

}  // namespace unisono::algorithms
