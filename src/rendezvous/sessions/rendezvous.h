// Who has arrived: collects the ranks of one job and says why it cannot start. No sockets, no
// clock of its own; the arbiter's loop owns it.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

/// When a warning `after` so long is due; kNever where that is 0 or the deadline comes first.
constexpr TimePoint warning_at(TimePoint started, std::chrono::milliseconds after,
                               TimePoint deadline) {
  const TimePoint at = after.count() == 0 ? kNever : later(started, after);
  return at < deadline ? at : kNever;
}

class Rendezvous {
 public:
  /// `comes_once`: as RendezvousPoint::comes_once. `warn_at`: when take_warning() is due.
  Rendezvous(int size, TimePoint started, bool comes_once = false, TimePoint warn_at = kNever)
      : size_(size), started_(started), comes_once_(comes_once), warn_at_(warn_at), seats_(size) {}

  /// Seats a rank. An error says why this job cannot succeed: a rank given twice, a differing
  /// world size or differing settings.
  Status admit(Member member, int size);
  /// The rank's connection closed before all had arrived; its seat is free again. `is_end`: by the
  /// word of the other end's kernel.
  void depart(Rank rank, TimePoint now, bool is_end = true);
  /// Not ok once a rank that went away will not come again, or has not within grace::kReturn: it is
  /// named.
  Status lost(TimePoint now) const;
  /// When lost() may change or take_warning() is due; kNever while neither may.
  TimePoint next_due() const;
  bool complete() const { return arrived_ == size_; }
  bool has_arrived(Rank rank) const {
    return rank >= 0 && rank < size_ && seats_[static_cast<std::size_t>(rank)];
  }
  /// Who sits there; null: nobody.
  const Member* find(Rank rank) const {
    return has_arrived(rank) ? &*seats_[static_cast<std::size_t>(rank)] : nullptr;
  }
  /// The ranks that have not arrived, as an error.
  Status overdue(TimePoint now) const;
  /// Who has not arrived, for the log: once, when that is due; empty otherwise.
  std::string take_warning(TimePoint now);
  /// By rank; only when complete.
  std::vector<Member> take_members();

 private:
  /// No newcomer where there is another one. A rank that cannot take part may have none.
  const Member* any_with_settings() const;
  std::vector<Rank> missing() const;

  int size_;
  TimePoint started_;
  bool comes_once_;
  TimePoint warn_at_;
  int arrived_ = 0;
  std::vector<std::optional<Member>> seats_;
  struct Departed {
    Member member;
    TimePoint until;  ///< when it will not come again
  };
  std::map<Rank, Departed> departed_;
};

}  // namespace unisono::rendezvous
