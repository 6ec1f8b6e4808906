// How newcomers and a group that is to grow find each other in a store that only sets and gets. A
// newcomer takes the first free place of the list and writes there who it is. Rank 0 of the group
// reads the list, asks those on it whether they are there, invites those that answer, and crosses
// their places out once they are in or have not come. Where rank 0 dies before, its successor asks
// them again. All that the store holds is input from outside.
//
//   unisono/grow/<name>/first                   the first place that may not be crossed out
//   unisono/grow/<name>/place/<n>               "2 <newcomer> <key> <process>", or "-":
//                                               crossed out
//   unisono/grow/<name>/<newcomer>/question     "<group>": are you there?
//   unisono/grow/<name>/<newcomer>/<group>      "here", or "gone"
//   unisono/grow/<name>/<newcomer>/invitation/<group>  "2 <job> <rank> <size> <milliseconds>", or
//                                               "-": it does not hold any more
//
// <newcomer> and <group>, which names one call of grow(), are random. <process> is a word by which
// some see that it has ended, or "?". Places are never used twice,
// so two newcomers can only meet in one where both find it free at the same moment: then it holds
// the later one, and the other finds that out and takes the next.
//
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace unisono {
class Store;
}

namespace unisono::rendezvous {

/// Of a name of a list.
inline constexpr std::size_t kListNameBytesMax = 200;
/// Newcomers that may ever be on one list.
inline constexpr int kPlacesMax = 1 << 20;
/// How long a newcomer on the list is waited for that does not answer, and of which nobody sees
/// that its process has ended.
inline constexpr Duration kAnswerTime = std::chrono::seconds(2);

/// The longest timeout of an invitation.
inline constexpr std::chrono::milliseconds kMeetTimeMax = std::chrono::hours(24 * 365);

/// Where an invited newcomer joins, and as what.
struct Invitation {
  std::string job;  ///< the name of the rendezvous in the store
  int rank = 0;
  int size = 0;
  std::chrono::milliseconds timeout{};  ///< until all have met, at most kMeetTimeMax
};

/// Whether that process is seen to have ended, for certain.
using HasEnded = std::function<bool(const std::string& process)>;

/// Random, for one call of grow() and for the job that comes of it.
std::string random_group();

/// The list as rank 0 of a group sees it, for one call of grow().
class WaitList {
 public:
  struct Newcomer {
    std::string handle;
    int place = 0;
    int key = 0;
    std::string process;  ///< empty: not told
  };
  struct Wanted {
    int at_least = 1;
    int at_most = 1;
    TimePoint deadline{};  ///< for `at_least`
  };

  WaitList(Store& store, std::string_view name, std::string group, HasEnded has_ended);

  /// Those that are there, in the order of their places: `at_most`, or as many as there are once
  /// they are `at_least`; fewer where the deadline passed. Who does not answer, or has ended, is
  /// crossed out.
  /// `go_on` is asked every now and then; its error ends the search.
  Result<std::vector<Newcomer>> find(const Wanted& wanted, const std::function<Status()>& go_on);
  Status invite(const Newcomer& newcomer, const Invitation& invitation);
  /// Before its place is crossed out: the job will not come about.
  Status withdraw(const Newcomer& newcomer);
  Status cross_out(int place);

 private:
  struct Seen {
    Newcomer newcomer;
    TimePoint asked{};
    bool is_here = false;
  };

  Status read_places(const std::function<Status()>& go_on);
  Status read_place(int place, const std::string& text);
  Status read_answers();
  Result<std::string> answer_of(const Newcomer& newcomer, TimePoint until);
  Status await_more(TimePoint deadline);
  std::vector<Newcomer> present(int at_most) const;
  bool awaits_answers() const;

  Store& store_;
  const std::string list_;
  const std::string group_;
  const HasEnded has_ended_;
  int first_ = -1;  // -1: not read yet
  int end_ = 0;     // the first free place
  std::map<int, Seen> seen_;
  std::map<std::string, int> place_of_;  // where each was seen last, by its handle
};

/// A newcomer's way from the list to an invitation.
class Newcomer {
 public:
  /// `process`: the word for its process; one that is none, or too long, is not told.
  Newcomer(Store& store, std::string_view name, int key, std::string_view process);

  /// Waits on the list until it is invited. kTimeout when the deadline passed; it is not on the
  /// list any more then.
  Result<Invitation> await_invitation(TimePoint deadline);
  /// Whether another group asks for it than the one that has invited it last.
  Result<bool> is_asked_again();
  /// Whether the last invitation still holds.
  Result<bool> is_invited();
  /// Leaves the list, to wait there anew as somebody else.
  Status renew();
  /// Crosses out the place that it has. Who has let it in crosses out the one that it had then.
  Status leave_place();
  /// So that no group waits for it: crossed out, and gone for the group that has asked last.
  Status leave();

 private:
  std::string entry() const;
  Status take_place(TimePoint deadline);
  /// Whether the place is its own and read. One that is read no more it crosses out.
  Result<bool> claim_place();
  Result<std::optional<Invitation>> look(TimePoint until);
  Status answer(std::string_view word);

  Store& store_;
  const std::string list_;
  const std::string name_;
  const int key_;
  const std::string process_;
  std::string handle_;
  std::string entry_;
  int place_ = -1;
  std::string group_;  // that has asked for it last
};

}  // namespace unisono::rendezvous
