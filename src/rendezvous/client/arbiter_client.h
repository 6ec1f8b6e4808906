// How the ranks of a job meet, and who says which rank failed. One arbiter per job (a thread in
// rank 0's process, see arbiter_server.h); every rank holds one control connection to it. The
// arbiter collects all ranks, hands out the world table, and later broadcasts one decision per
// failure so that every survivor names the same failed rank. A control connection that closes
// without goodbye means that its rank died; if the arbiter's own connection closes, rank 0 died.
// Each process has one thread that reads these connections (control_thread.h), so that a rank that
// computes is no rank that has not heard.
//
// Thread rule: an ArbiterClient belongs to one engine; one thread at a time. Reports and leave()
// may come from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/messages/job.h"
#include "unisono/types.h"

namespace unisono {

namespace rendezvous {
class ArbiterConnection;
struct ArbiterNews;
struct CallsMessage;
struct ShrinkMessage;
struct WaitMessage;
}  // namespace rendezvous

class ArbiterClient {
 public:
  /// Blocks until all `size` ranks have joined or the deadline passed. Rank 0 starts the arbiter
  /// and joins it like everyone else. Errors: kRendezvous (names the missing ranks, a rank given
  /// twice, differing world sizes or settings, address in use), kAuthentication.
  static Result<std::unique_ptr<ArbiterClient>> join(const RendezvousPoint& point, int size,
                                                     Member self, TimePoint deadline);
  /// "I cannot take part: `why`", so that the others need not wait for this rank. Looks for the
  /// arbiter, or is it on rank 0, for a second at most.
  static void decline(const RendezvousPoint& point, int size, const Member& self,
                      const Status& why);
  /// Of a world that has met, over `connection`; none in a world of one.
  ArbiterClient(World world, std::unique_ptr<rendezvous::ArbiterConnection> connection);
  ~ArbiterClient();

  const World& world() const { return world_; }

  /// What the arbiter has said since the last time. While that is nothing it costs one load: no
  /// system call, no lock.
  rendezvous::ArbiterNews take_news();

  /// Reads what has arrived though the thread that does so had no turn yet: before a rank goes by
  /// what it has seen itself. take_news() has it then.
  void catch_up();

  /// "I have waited a while."
  void report_waiting(const rendezvous::WaitMessage& wait);
  /// "My deadline passed in `wait.call`." The arbiter gathers the reports of the others for a
  /// moment and asks those that are waited for, and those that these wait for, what they wait in;
  /// then it sends everyone a kTimeout decision that lists who was waited for and had not arrived,
  /// and names the rank at the end of all chains of waits, if it is one.
  void report_timeout(const rendezvous::WaitMessage& wait);
  /// "That operation has ended well after all." Where all that were late say so, no decision
  /// follows.
  void withdraw_timeout(std::uint32_t communicator, std::uint64_t operation);
  /// A failure this rank has established itself (mismatch, abort, protocol): broadcast as it is.
  void report_failure(const FailureDecision& decision);
  /// "`own.suspicion`: a peer makes other calls there than this rank", whose latest `own.calls`
  /// are. The arbiter compares the calls of all and sends everyone a decision that names the rank
  /// that differs from most.
  void report_differing(const rendezvous::CallsMessage& own);
  /// The arbiter has asked for this rank's calls there.
  void answer_calls(const rendezvous::CallsMessage& own);
  /// The arbiter has asked what this rank waits in.
  void answer_waits(const std::vector<rendezvous::WaitMessage>& waits);
  /// The data link to `peer` broke for this cause. The arbiter answers with a decision about `peer`
  /// if `peer`'s control connection is gone too, within 300 ms; else with one that names the link,
  /// and of its ranks the one that more others complain about.
  void report_broken_link(Rank peer, const Status& cause);

  /// A word on the way to a communicator of survivors (rendezvous/messages/shrink_message.h).
  void say_shrink(const rendezvous::ShrinkMessage& message);
  /// The arbiter is gone and nobody answers any more.
  bool is_lost() const;
  /// It is, and for certain because nobody but this rank is left.
  bool is_last() const;
  /// It is, and others may go on without this rank: kPartitioned; else ok.
  Status partition() const;
  /// RendezvousPoint::silence.
  std::chrono::milliseconds silence() const;

  /// This rank leaves; its connection closing is no failure from now on. Idempotent. On rank 0 the
  /// arbiter goes on for as long as other ranks of the job remain connected and the process lives.
  void leave();

 private:
  ArbiterClient();

  World world_;
  std::unique_ptr<rendezvous::ArbiterConnection> connection_;  // absent in a world of one
};

}  // namespace unisono
