// The Lockstep of a communicator's ranks. On one host they share an anonymous page that rank 0
// makes and the others open through /proc, so nothing is named in the file system; on several
// hosts, or where that is refused, barriers and sums of the communicator itself take its place.
// Thread rule: one thread per rank. Calls are collective and throw std::runtime_error when another
// rank has given up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/perf/lockstep.h"
#include "unisono/communicator.h"

namespace unisono::perf {

class RankSync {
 public:
  /// Collective. `timeout`: how long a barrier waits for the others.
  RankSync(Communicator& communicator, std::chrono::milliseconds timeout);
  RankSync(const RankSync&) = delete;
  RankSync& operator=(const RankSync&) = delete;
  ~RankSync();

  /// True when timed by the shared page, which costs less than any library's barrier.
  bool is_shared() const { return lockstep_ != nullptr; }
  /// Lets the others stop waiting for this rank.
  void give_up();

  void barrier();
  void record(int iteration, double duration_us);
  std::vector<double> slowest(int iterations);
  std::uint64_t decide(std::uint64_t value);
  std::uint64_t total(std::uint64_t value);

 private:
  struct Invitation;
  class Page;
  bool open_page(const Invitation& invitation);
  void check_others();

  Communicator& communicator_;
  std::chrono::milliseconds timeout_;
  double waiting_since_us_ = 0;
  std::unique_ptr<Page> page_;
  std::unique_ptr<Lockstep> lockstep_;
  std::vector<double> durations_;  ///< without a page
};

}  // namespace unisono::perf
