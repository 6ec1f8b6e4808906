// What a call takes by each way, predicted from what the ranks of the host have measured
// (base/host_facts.h): calls begin with the way that is predicted to be the fastest, and trials
// leave out what is predicted to be far slower. Trials decide.
//
//   time(rank) = bytes written x write + bytes read x read + own bytes x local      through slots
//              = bytes read x kernel + system calls x kernel wait + own x local     by single copy
//   time(call) = the slowest rank's
//              + what it waits for: exchanges of lines, and where only some write, and others read
//                what these write piece by piece, the first piece of the quicker side
//
//   a rank, of n, given b bytes   writes          reads            own
//   all_gather                    b               (n-1) b          b
//   all_to_all, reduce_scatter    b - b/n         b - b/n          b/n
//   all_reduce                    b               2 (b - b/n)      b/n
//   reduce                        b               b - b/n, root twice that; root: b/n
//   broadcast                     root: b         others: b
//   scatter                       root: b - b/n   others: b/n      root: b/n
//   gather                        others: b       root: (n-1) b    root: b
//   scan, exscan, rank r          b, if r < n-1   r b
//
// What is combined (all of it but all_reduce's and reduce's results) is read once more after a
// single copy, from a scratch that stays in the caches: half of what a local copy takes. Of ranks
// that combine in parts (all_reduce, reduce) single copies come in pieces of 16 KiB. Buffers are
// taken to be private, and their owners to have written them just before. Memory beyond the caches,
// and what two ways leave behind in them for each other, is not in it.
//
// Thread rule: pure.
#pragma once

#include <array>
#include <cstddef>

#include "base/host_facts.h"
#include "base/trial_facts.h"

namespace unisono::native {

/// ns by each of kTriedPaths; 0: not predicted. So is a single copy where the ranks that measured
/// could make none.
using WayCosts = std::array<double, kTriedPaths.size()>;

/// Of a call of all ranks of the host in which a rank gives up to `bytes`; nothing where the facts
/// are not known or the collective is not tried.
WayCosts predict_costs(const HostFacts& facts, int ranks, Collective collective, std::size_t bytes);

/// The ranks of the host, all of which make the call.
struct CallingRanks {
  int ranks = 2;
  int cores = 0;  ///< that they may use together; 0: not known
};

/// Of a class of calls (size_of_call()), by its largest, and of the ways that are tried of it: what
/// calls begin with and leave out follows from this. Nothing where ranks share cores.
WayCosts predict_class(const HostFacts& facts, CallingRanks here, Collective collective, int size);

/// The index of the least, the first of those that are nearly equal. 0 where nothing is predicted.
std::size_t likely_way(const WayCosts& costs);

/// So far behind that a trial is not worth its time.
inline constexpr double kFarCost = 2.5;
/// Whether the way, which is not the first, is left out of the first trials. What is not predicted
/// never is: where the kernel refuses a single copy, its trial is a call through mapped memory.
bool is_far(const WayCosts& costs, std::size_t way);

}  // namespace unisono::native
