// What one simulation runs: a value made from a seed, which can be edited, so that a failing one
// becomes smaller.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/access_path.h"
#include "base/clock.h"
#include "rendezvous/failure/failure_decider.h"
#include "tests/collective/collective_case.h"
#include "tests/sim/messages.h"

namespace unisono::sim {

/// How frames travel.
struct Network {
  Duration delay_min{}, delay_max{};  ///< of most frames
  unsigned late_one_in = 0;           ///< of so many frames one takes up to `late`; 0: none
  Duration late{};
  int streams = 1;  ///< per peer; those behind the first carry pieces of large messages
  std::size_t frames_max = 256;  ///< of a stream on their way, and not taken
  std::size_t bytes_max = 1 << 20;
  unsigned refuse_one_in = 0;   ///< posts
  unsigned lend_one_in = 0;     ///< payloads are lent for a while and not copied at once
  unsigned partial_one_in = 0;  ///< frames are written, and read, in several parts
  std::size_t eager_bytes = 16 * 1024;
  std::size_t credit_bytes = 256 * 1024;
  /// So long after the network is down the links over it are dead.
  Duration unacknowledged = rendezvous::unacknowledged_max(std::chrono::milliseconds(3000));
};

struct Operation {
  test::CollectiveCase what;  ///< of messages: type, count and root
  Exchange exchange = {};     ///< of messages
  int parts = 0;              ///< a split into so many at most; 0: none
  std::uint64_t colors = 0;   ///< of a split: the seed of who goes where
  int chunks = 1;             ///< of a block
  bool blocks = false;        ///< of a native call: it is a blocking one
  bool in_heap = false;       ///< of a native call: the buffers are of unisono::allocate()
  bool differs = false;       ///< from what the others call: there is no right result

  bool is_exchange() const { return exchange.messages > 0; }
  bool is_split() const { return parts > 0; }
  bool is_collective() const { return !is_exchange() && !is_split(); }
  bool is_native() const { return is_collective() && what.options.algorithm == "native"; }
};

struct Fault {
  enum class Kind : std::uint8_t {
    kCrash,      ///< the process of `rank` ends
    kCut,        ///< the link between `rank` and `peer` breaks
    kIsolate,    ///< all links of `rank` break
    kStop,       ///< `rank` is not run for `lasts`
    kSlow,       ///< `rank` is run rarely from then on
    kPause,      ///< no rank is run for `lasts`: the host sleeps, and clocks jump
    kDiffers,    ///< `rank` makes another call than the others, as their number `call`
    kPartition,  ///< hosts from that of `rank` to that of `peer`, and the others, do not hear each
                 ///< other for `lasts`
    kReset,      ///< something on the way to the arbiter of another host resets the control
                 ///< connection of `rank`: at both ends it looks as if the other one had died
  };
  Kind kind = Kind::kCrash;
  Rank rank = 0;
  Rank peer = 0;
  Duration at{};
  Duration lasts = Duration::max();
  std::size_t call = 0;
  bool is_one_way = false;  ///< of a partition: the others still hear the hosts that it names
  /// Of a job that grows: `rank` is the number of a newcomer, ...
  bool is_of_newcomer = false;
  /// ... and `at` counts from its start; or else from the first time that the member grows.
  bool is_in_growth = false;
  /// With `step` that process has waited so often since: in each step of growing it waits.
  std::uint64_t step = 0;

  bool is_for_ever() const { return lasts == Duration::max(); }
};

/// Of Fault::Kind.
inline constexpr std::size_t kFaultKinds = 9;
/// Ranks 0 and 1, 2 and 3, ... are processes of one host.
inline constexpr Rank kRanksOfHost = 2;

/// Whether the ranks are on one host and share memory, and what they are then.
enum class Sharing : std::uint8_t { kNone, kProcesses, kThreads };
inline constexpr int kSharingRanksMax = 16;
inline constexpr int kGrowingRanksMax = 8;

/// How long a store takes for a question, and again for its answer, and where it is.
struct StorePlace {
  Duration most{};
  unsigned late_one_in = 0;  ///< of so many one takes up to `late`; 0: none
  Duration late{};
  int host_of = -1;  ///< it is on the host of this process; -1: where all reach it
};

/// A job that grows: members put others in the place of those that are lost.
struct Growing {
  struct Newcomer {
    Duration starts{};
    int key = 0;
  };
  int target = 0;         ///< so many ranks are wanted in the end; 0: it does not grow
  std::vector<int> keys;  ///< of the first members
  std::vector<Newcomer> newcomers;
  std::chrono::milliseconds wait{};     ///< GrowOptions::wait
  std::chrono::milliseconds timeout{};  ///< GrowOptions::timeout
  StorePlace store;
};

/// Of who shrinks: survivors that no fault has struck all come in time.
inline constexpr std::chrono::milliseconds kUsualPatience{4'000};

struct Case {
  std::uint64_t seed = 1;  ///< of what happens when
  int ranks = 2;
  int at_once = 1;      ///< calls of a rank
  Duration computes{};  ///< at most, between two calls
  std::vector<Operation> operations;
  std::vector<Fault> faults;
  Network network;
  Sharing sharing = Sharing::kNone;
  AccessPath access = AccessPath::kAutomatic;  ///< of rank 0's large buffers
  bool mixes_access = false;                   ///< the others let theirs be read in other ways
  int domain_ranks = 0;                        ///< UNISONO_LEVELS; 0: off
  unsigned interrupted_one_in =
      0;                         ///< accesses of native code, of which a rank is interrupted at one
  unsigned buffered_one_in = 0;  ///< stores of native code, of which one is seen later
  std::chrono::milliseconds silence{0};                 ///< UNISONO_SILENCE; 0: never
  bool shrinks = true;                                  ///< survivors go on
  std::chrono::milliseconds patience = kUsualPatience;  ///< of who shrinks
  std::chrono::milliseconds deadline{0};  ///< of calls; 0: it passes after a silence is over
  bool takes_turns = false;               ///< a rank calls in one communicator at a time
  Growing growing;

  bool grows() const { return growing.target > 0; }
};

struct Limits {
  int ranks_min = 2, ranks_max = 64;
  bool with_faults = true;
  bool shares_memory = false;  ///< all do, of kSharingRanksMax at most
  bool grows = false;          ///< all jobs do, of kGrowingRanksMax at most
};

Case make_case(std::uint64_t seed, const Limits& limits = {});
/// Whether what is down for so long may be missed: what is sent again then comes late.
bool may_be_missed(const Case& c, const Fault& partition);
/// What is sent again once the network is back comes too late for ranks that leave meanwhile, which
/// wait for two seconds until all is sent.
bool outlasts_leaving(const Case& c);
/// Partitions that are there for good, or are missed.
std::vector<const Fault*> lasting_partitions(const Case& c);
/// The first of these; null where there is none.
const Fault* lasting_partition(const Case& c);
/// Whether the rank is on the hosts that the partition names.
bool is_inside(const Fault& partition, Rank rank);
/// Ranks that a fault of their own has struck by this time: they die, stop for ever or are missed,
/// lose a link or differ; -1 for newcomers of which that is true.
std::set<Rank> struck(const Case& c, Duration by = Duration::max());
/// Ranks that a failure may name: these, and with a partition that may be missed all.
std::set<Rank> culprits(const Case& c);
/// Survivors may be left out as late.
inline bool is_impatient(const Case& c) { return c.patience < kUsualPatience; }
/// Of calls that have no deadline of their own.
inline std::chrono::milliseconds call_timeout(const Case& c) {
  if (c.deadline.count() > 0) return c.deadline;
  return std::max(std::chrono::milliseconds(10'000), c.silence * 10 / 3);
}
/// The first calls of a rank: those of the case, but for one that differs.
std::vector<Operation> calls_of(const Case& c, Rank rank);
/// Survivors are told apart from a rank that is stopped for ever by its silence alone.
bool can_shrink(const Case& c);
/// UNISONO_ACCESS of a rank.
AccessPath access_of(const Case& c, Rank rank);
/// Only what can run: operations that their algorithm accepts with so many ranks, faults of ranks
/// that exist.
Case adapted_to(Case c, int ranks);
/// What a part of a job calls, of so many ranks.
std::vector<Operation> calls_of_part(const Case& c, int ranks);
/// Cases with less in them, the smallest first.
std::vector<Case> smaller(const Case& c);
std::string describe(const Operation& operation);
std::string describe(const Case& c);

}  // namespace unisono::sim
