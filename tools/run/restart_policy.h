// Who is started again when a rank fails: a state machine that hears of starts and exits, and knows
// nothing of processes. Ranks that fail before the one that failed first has rejoined, as those
// that cannot go on without it, are one failure. Values; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace unisono::run {

/// Who is started again when a rank fails and restarts are left.
enum class Restart : std::uint8_t {
  kFailed,  ///< that rank, which rejoins the others; everyone where none is left or has met
  kAll,     ///< everyone
};

/// What ranks that were started after so many restarts of the job have told of themselves.
struct RejoiningFacts {
  std::function<bool(int restarts)> have_met;         ///< those that were started together
  std::function<bool(int rank, int restarts)> waits;  ///< in init(), for the others to let it in
  std::function<bool(int rank, int restarts)> has_rejoined;
};

class RestartPolicy {
 public:
  /// What a failure leads to.
  enum class Decision {
    kFailed,        ///< nobody is started again: it is the job's failure
    kGoesOn,        ///< nobody is, and the others miss nothing: it had not rejoined them
    kRankRestarts,  ///< due_ranks() has it
    kAllRestart,    ///< once all have ended
  };

  RestartPolicy(Restart who, int restarts_max, RejoiningFacts facts)
      : who_(who), restarts_max_(restarts_max), facts_(std::move(facts)) {}

  void on_start(int rank, bool rejoins) { on_start(rank, rejoins, restarts_); }
  /// `restarts`: as somebody else counts them.
  void on_start(int rank, bool rejoins, int restarts);
  void on_exit(int rank) { ranks_[rank].runs = false; }
  /// After on_exit(), with anything but success, while the job runs. Ranks that failed at once, as
  /// those of a machine, are one failure. `may_restart`: none has been final.
  Decision on_failure(std::span<const int> ranks, bool may_restart);
  /// The job was told to end: nobody is started any more.
  void on_end();

  int restarts() const { return restarts_; }  ///< so far
  bool is_ending() const { return is_ending_; }
  /// Those that were started together: before, nobody can let in who fails.
  bool have_met() const;
  /// Ranks to start beside those that run, of those for which it is true; the others stay due.
  std::vector<int> due_ranks(const std::function<bool(int rank)>& can_start);
  /// Whoever is started then has not met anybody.
  void forget_all();
  /// Nobody runs but ranks that wait to rejoin: others have ended before.
  bool only_waiting_run() const;
  bool runs(int rank) const;
  bool any_runs() const;

 private:
  struct RankState {
    bool runs = false;
    bool rejoins = false;  ///< it was started again, beside others that went on
    int restarts = 0;      ///< of the job when it was started
  };
  bool is_member(int rank, const RankState& state) const;
  bool waits_to_rejoin(int rank, const RankState& state) const;
  bool member_runs() const;
  bool one_is_to_rejoin() const;
  /// Whether that is true of a rank that runs.
  template <typename Holds>
  bool any_runs_that(Holds holds) const;

  Restart who_;
  int restarts_max_;
  RejoiningFacts facts_;
  std::map<int, RankState> ranks_;
  int restarts_ = 0;
  std::vector<int> due_;
  bool is_ending_ = false;
  bool had_met_ = false;  // it was seen so, though who has told of it may be started again since
};

}  // namespace unisono::run
