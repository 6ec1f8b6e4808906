// How a communicator grows: the way of a member to a new job with the newcomers that wait on a list
// (wait_list.h), and a newcomer's to that of a group. What is done when, and what becomes of it
// where somebody is lost, is decided here. How members call, vote and meet src/comm knows, and in
// virtual time tests/sim. No socket, no thread, no lock.
//
// Thread rule: one thread at a time; blocks.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/collective.h"
#include "base/result.h"
#include "rendezvous/store/wait_list.h"
#include "unisono/options.h"

namespace unisono::rendezvous {

/// A communicator that grows, at one of its members. All members make the same calls in the same
/// order; each returns why it failed.
class GrowingGroup {
 public:
  virtual ~GrowingGroup() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  /// With root 0; `bytes` are a rank's share. A `timeout` of zero is the communicator's own.
  virtual Status call(Collective collective, const void* in, void* out, std::size_t bytes,
                      std::chrono::milliseconds timeout) = 0;
  /// Asked now and then by who waits: why that is in vain.
  virtual Status go_on() = 0;
  /// Whether the process of a newcomer is seen from here to have ended, for certain.
  virtual bool has_ended(const std::string& process) = 0;

  /// Makes the members' duplicate, by which they vote.
  virtual Status prepare_vote() = 0;
  /// Of a member that has not met the others: `why`. Others that still meet hear it by go_on().
  virtual void vote_against(const Status& why) = 0;
  /// How many have voted, by the word of the job's arbiter: the same for all, whoever dies.
  virtual Result<int> vote(std::chrono::milliseconds patience) = 0;
  virtual void end_vote() = 0;

  /// Meets the others in the new job until the invitation's timeout, or gives up where `go_on` says
  /// why.
  virtual Status meet(const Invitation& place, const std::function<Status()>& go_on) = 0;
  /// The new job is not used: leaves it.
  virtual void leave_new() = 0;
  /// The new job's first call, by which its newcomers hear that it is used. What fails there its
  /// next call tells.
  virtual void use_new(std::chrono::milliseconds timeout) = 0;
};

/// One member's way, of one call of grow().
class Growth {
 public:
  /// `call_timeout`: of the communicator's calls.
  Growth(GrowingGroup& group, Store& store, std::string_view name, const GrowOptions& options,
         std::chrono::milliseconds call_timeout);

  /// Whether the members use the new job; false: too few newcomers came. An error is that of a call
  /// of the communicator; or else all hear kRendezvous, nobody uses the new job, and the
  /// communicator works as before.
  Result<bool> run();

 private:
  bool leads() const { return group_.rank() == 0; }
  Result<int> count_newcomers();
  Result<std::vector<WaitList::Newcomer>> find_newcomers();
  Status learn_processes(int newcomers);
  Result<Invitation> take_seat();
  std::vector<Invitation> seats_for(const std::vector<int>& member_keys) const;
  Status invite(const std::vector<Invitation>& seats);
  Status may_all_come();
  Status agree(const Status& met);
  void settle_newcomers(bool are_in);
  Status first_reason(const Status& own);
  std::chrono::milliseconds patience() const;
  std::chrono::milliseconds wait_of_others() const;

  GrowingGroup& group_;
  Store& store_;
  const std::string name_;
  const GrowOptions options_;
  const std::chrono::milliseconds call_timeout_;
  std::optional<WaitList> list_;               // at rank 0
  std::vector<WaitList::Newcomer> newcomers_;  // at rank 0
  std::vector<std::string> processes_;         // of the newcomers
  bool has_seen_end_ = false;                  // of one of these
};

/// How a newcomer accepts an invitation: it meets the others by the deadline, gives up where
/// `go_on` says why that is in vain, and makes the new job's first call, in `first_call` at most.
/// Where that fails it leaves the job.
using Accept = std::function<Status(const Invitation& place, TimePoint deadline,
                                    const std::function<Status()>& go_on,
                                    std::chrono::milliseconds first_call)>;

/// A newcomer's way, by whose `process` others may see its end: waits on the list until `deadline`,
/// and there again while that has not passed where a group that has let it in does not come about.
/// Who is invited in time has its invitation's timeout to meet the others, half a minute after the
/// deadline at most. Errors as Newcomer::await_invitation(), or of the try in which the deadline
/// has passed, or for which this rank lacks something: kInvalidArgument or kUnsupported of no rank.
Status enter_group(Store& store, std::string_view name, int key, std::string_view process,
                   TimePoint deadline, const Accept& accept);

}  // namespace unisono::rendezvous
