// A communicator: an ordered group of ranks and the collective calls on it.
//
// Lending. From the call until it returns (or its Request is finished) the buffers belong to the
// library: do not read outputs, do not write inputs or outputs. They are the caller's again only
// when no peer can touch them, whether the call succeeded or failed.
//
// Ordering. All ranks make the same collective calls in the same order. Where they do not, every
// rank gets the error kMismatch, which tells two calls that differ and who made them, and names the
// rank that differs from the majority. It names none while ranks that have not answered yet,
// because they compute, could change the majority. The error comes in the call that differs or in
// the next one: in whichever that is where ranks share memory, else in the next call in which the
// rank waits for all others. So a last call that asks nothing of the others, as a broadcast of its
// root, is compared with theirs only if a barrier or another call follows. The counts of gather_v,
// scatter_v and all_to_all_v concern two ranks each, which compare them; the other ranks get the
// error once these two have found it. An asynchronous call has its place where it is started, and
// may finish in any order. Sends and receives match in order per (peer, tag), apart from
// collectives.
//
// Threads. One thread at a time uses a communicator; different communicators may be used from
// different threads. abort() may be called from any thread at any time in the object's life, also
// while another one is assigned to it (`comm = comm.shrink()`): it ends the calls of either.
//
// Errors. Calls throw unisono::Error. kInvalidArgument and kUnsupported concern the call alone;
// every other failure is the communicator's: the first one wins, names the rank at fault where
// there is one, and is what every pending and later call reports.
//
// Device memory. Buffers may be CUDA device memory. Where all members have a GPU, a call's buffers
// are device memory on all of them or on none; where some have none, those take part with host
// memory. CallOptions::stream orders the call in a stream. Ranks that share device memory (threads
// or processes of one host) wait for each other on the host in every such call, so a thread that
// drives several ranks uses group(). The library knows a call on device memory by its stream or by
// a pointer: give the stream where both pointers may be null.
//
// Counts are elements, of `type`. In and out either are the same place as each call's in-place
// rule says, or do not overlap. Null pointers are allowed where nothing is read or written.
// Algorithms and their sources (papers): algorithms/, and `unisono plan`.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/collectives.h"
#include "unisono/error.h"
#include "unisono/export.h"
#include "unisono/options.h"
#include "unisono/rendezvous.h"
#include "unisono/request.h"
#include "unisono/traffic.h"
#include "unisono/types.h"

namespace unisono {

/// What a blocking receive got.
struct Received {
  Rank source = -1;
  Tag tag = 0;
  std::size_t count = 0;  ///< elements
};

class UNISONO_API Communicator : public Collectives {
 public:
  /// Empty: not a member of anything; every call but the queries throws kNotMember.
  Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  ///< close()

  bool empty() const;
  /// Why the communicator no longer works; ok while it does. Asks for news, so that a rank that
  /// computes, or waits for something else, hears of a failure.
  Status status() const;
  /// "rank 1 of 4 on a, shared memory" for people; without the last where ranks share none.
  std::string describe() const;
  /// The rank's host name, as it told at the rendezvous; empty for a rank that does not exist.
  std::string host_of(Rank rank) const;

  // ---- Point to point -----------------------------------------------------------------------

  /// Returns when `data` may be reused: perhaps before the receiver has it. To itself is allowed.
  void send(const void* data, std::size_t count, DataType type, Rank target, Tag tag = 0,
            const CallOptions& options = {}) {
    run({.collective = Collective::kSend,
         .in = data,
         .count = count,
         .type = type,
         .peer = target,
         .tag = tag,
         .options = options});
  }
  Request send_async(const void* data, std::size_t count, DataType type, Rank target, Tag tag = 0,
                     const CallOptions& options = {}) {
    return start({.collective = Collective::kSend,
                  .in = data,
                  .count = count,
                  .type = type,
                  .peer = target,
                  .tag = tag,
                  .options = options});
  }
  /// Takes the next message of `source` (kAnyRank: of any rank) with `tag`. `count` is the room: a
  /// shorter message is fine, and the result tells its length; a longer one is dropped, and the
  /// call throws kInvalidArgument. It throws that too for a message whose bytes are no whole number
  /// of elements of `type`, but then the bytes are in `data`. With a stream it returns before the
  /// message has come, and the result is empty: use receive_async() to learn what came.
  Received receive(void* data, std::size_t count, DataType type, Rank source, Tag tag = 0,
                   const CallOptions& options = {});
  Request receive_async(void* data, std::size_t count, DataType type, Rank source, Tag tag = 0,
                        const CallOptions& options = {}) {
    return start({.collective = Collective::kReceive,
                  .out = data,
                  .count = count,
                  .type = type,
                  .peer = source,
                  .tag = tag,
                  .options = options});
  }
  template <Buffer In>
  void send(const In& data, Rank target, Tag tag = 0, const CallOptions& options = {}) {
    send(std::ranges::data(data), std::ranges::size(data), data_type_of<ElementOf<In>>, target, tag,
         options);
  }
  template <LentBuffer In>
  Request send_async(In&& data, Rank target, Tag tag = 0, const CallOptions& options = {}) {
    return send_async(std::ranges::data(data), std::ranges::size(data), data_type_of<ElementOf<In>>,
                      target, tag, options);
  }
  template <LentBuffer Out>
  Request receive_async(Out&& data, Rank source, Tag tag = 0, const CallOptions& options = {}) {
    return receive_async(std::ranges::data(data), std::ranges::size(data),
                         data_type_of<ElementOf<Out>>, source, tag, options);
  }
  template <Buffer Out>
  Received receive(Out&& data, Rank source, Tag tag = 0, const CallOptions& options = {}) {
    return receive(std::ranges::data(data), std::ranges::size(data), data_type_of<ElementOf<Out>>,
                   source, tag, options);
  }
  /// Sends and receives at once, so that neither waits for the other, as MPI_Sendrecv does. The
  /// buffers do not overlap. Returns what the receive got.
  Received send_receive(const void* sent, std::size_t sent_count, Rank target, void* received,
                        std::size_t received_count, Rank source, DataType type, Tag tag = 0,
                        const CallOptions& options = {});
  template <Buffer In, Buffer Out>
  Received send_receive(const In& sent, Rank target, Out&& received, Rank source, Tag tag = 0,
                        const CallOptions& options = {}) {
    static_assert(std::is_same_v<ElementOf<In>, ElementOf<Out>>, "of one element type");
    return send_receive(std::ranges::data(sent), std::ranges::size(sent), target,
                        std::ranges::data(received), std::ranges::size(received), source,
                        data_type_of<ElementOf<In>>, tag, options);
  }
  /// Starts all, then waits for all: any mixture of sends and receives, in any order on any rank,
  /// without deadlock (NCCL's group call). After a call that is refused no further one is started.
  /// Throws the first failure after all have ended.
  void group(std::span<const Call> calls);

  // ---- Communicators ------------------------------------------------------------------------

  /// Collective. Ranks of equal `color` form a new communicator, ordered by (key, rank). A
  /// negative color: no member, an empty communicator is returned. Throws kOutOfResources when no
  /// more communicators can be told apart in the job, and any failure of this one.
  Communicator split(int color, int key = 0);
  /// Same ranks, separate operations. Throws as split().
  Communicator duplicate() { return split(0, rank()); }

  /// Collective: all ranks name the same ranks in the same order, and those form a communicator in
  /// that order; the others get an empty one. Throws kInvalidArgument for a rank that does not
  /// exist or is named twice, kMismatch on the named ranks where they differ.
  Communicator subset(std::span<const Rank> ranks);

  /// Going on after a failure: collective over the members that are left. They agree on who they
  /// are and get a communicator of those, in the order that they have here: all of them the same,
  /// or all an error. Dead ranks are left out, those that the job has decided on as failed or that
  /// have closed this communicator, and those that do not call it within `timeout` of the first
  /// (zero: the job's timeout; a rank that a passed deadline has named is given 3 s). A rank that
  /// fails meanwhile is left out as well. A communicator that has not failed fails first, with
  /// kAborted on all its ranks; close it afterwards, as after any failure. It may be called again.
  /// A call that failed on some ranks may have succeeded on others: parent_failed_in() says where.
  /// Blocks. Throws Error: on a rank that the others go on without, why (kRankFailed, kTimeout and
  /// its own rank); kPartitioned, here and in every later call, on ranks that hear half of the
  /// members that may live or fewer, since the others may go on (at half: the ones with the lowest
  /// rank); kOutOfResources where the communicator cannot be made.
  Communicator shrink(std::chrono::milliseconds timeout = {});
  /// Of one that shrink() has made: where its ranks stood in the collectives of the one that it was
  /// made of, the same on all of them: the number of the oldest that was not over on each, all
  /// before being complete, and whether one had begun it, and may have its result. Replays of CUDA
  /// graphs have no number: whether they are over it does not say. -1 of others.
  FailedIn parent_failed_in() const;

  /// Growing again: collective over the members of a communicator that works, most often one that
  /// shrink() has made. Rank 0 looks in `store` for newcomers that wait in rejoin() under the same
  /// `name`; those and the members form a new job, as join() does, with this one's settings. Empty
  /// on all ranks where fewer than `options.at_least` newcomers came in time. This communicator is
  /// left as it is, for another grow() too; close it where the grown one takes its place. `name`,
  /// of 1 to 200 bytes, is that of the group, the same each time; one communicator at a time grows
  /// under it. Costs some milliseconds where nobody waits.
  /// Throws Error, the same on all ranks: kRendezvous where not all have met in `options.timeout`,
  /// because a newcomer has died on its way for example, or the store failed; kInvalidArgument of
  /// options or name; and any failure of this communicator. With a member that dies meanwhile it
  /// fails as in every call, and those that are left shrink() it.
  Communicator grow(Store& store, std::string_view name, const GrowOptions& options = {});
  /// The same by the launcher's store, where init() of a rank that `unisono run --max-restarts` has
  /// started again waits. `key` is RANK, so that ranks are ordered as they were. Throws
  /// kUnsupported as well where the launcher has no store.
  Communicator grow(const GrowOptions& options = {});

  /// Ends every pending and later call of this communicator on every rank with kAborted. Any
  /// thread; returns when the callbacks of what it ends have run. In a callback it returns before:
  /// they run once that callback is over.
  void abort(const std::string& reason = "abort() was called");
  /// The same where another rank is the cause, as in a program of several communicators that ends
  /// all of them by one's failure: every rank hears `failed_rank`, numbered as here, or -1 for
  /// none. Throws kInvalidArgument for others.
  void abort(const std::string& reason, Rank failed_rank);
  /// Local and idempotent: ends what is unfinished, says goodbye; the job's last one lets sends
  /// drain before, for at most 2 s. Memory and descriptors of the job are given back once all its
  /// communicators, closed ones too, and requests are destroyed. Destroying an unfinished Request
  /// afterwards is fine. Later calls throw kClosed, or the failure that was before; peers that need
  /// this rank get kRankLeft. When the last communicator of init() is closed, init() may be called
  /// again in the same process. In a child that the program forked it does nothing: the job is the
  /// parent's, calls throw kNotMember, and the child may init() one of its own.
  void close();

  /// What the calls that have succeeded here so far moved. Two reports' difference is what the
  /// calls between them moved. Throws nothing; an empty communicator has moved nothing.
  TrafficReport traffic() const;

  /// What selection would do, for people and `unisono info --why`. Throws nothing; empty where the
  /// communicator is.
  std::string explain(Collective collective, std::size_t bytes) const;

 private:
  friend struct CommunicatorAccess;
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state);
};

/// Meets the other ranks of the job and returns the communicator of all of them. Collective;
/// bounded by options.timeout. Once per process at a time (again after close()): of several
/// threads one joins the job and the others get kInvalidArgument. Throws Error: kRendezvous
/// naming the missing, duplicate or disagreeing rank, kAuthentication, kInvalidArgument naming
/// the malformed variable; of ranks on several hosts, which measure the links between these, also
/// what a call throws, kRankFailed for example. In a process that `unisono run --max-restarts` has
/// started again the first init() that succeeds is rejoin() by the launcher's store: there it waits
/// until it is let in, or the launcher ends it because nobody is left to do so.
UNISONO_API Communicator init(const InitOptions& options = {});

/// Makes the communicator of the ranks that meet in `store` under `name`, as frameworks make their
/// groups: any number of times in a process, several at once from different threads, beside init().
/// Collective over its ranks. `name` is not empty and is used once in the store; threads that call
/// join() at the same time call the store's functions at the same time. `rank` is 0 to size - 1, as
/// the caller counts. Of the options only job_key, transport, timeout, order and device may be set;
/// of the launchers' variables only LOCAL_RANK, or what the launcher calls it, is read: it chooses
/// the device. Every such communicator is a job of its own and costs as much as init(); split() and
/// subset() cost less.
/// The thread that makes it is taken to use it, and counts once among those that want a processor
/// (HelperThreads), whatever else it has made. Where a process has several, the caller waits in
/// staged calls on device memory (docs/gpu.md), and not its stream. Throws as init(), and
/// kInvalidArgument where another option is set.
UNISONO_API Communicator join(Store& store, std::string_view name, Rank rank, int size,
                              const InitOptions& options = {});

/// The same for ranks that have no store and were given an id: see make_unique_id().
UNISONO_API Communicator join(const UniqueId& id, Rank rank, int size,
                              const InitOptions& options = {});

/// The other side of Communicator::grow(): waits in `store` under `name` until a group lets this
/// rank in, and returns the grown communicator once all its members use it. Where that fails on the
/// way, it waits again, unless this rank lacks what it takes, such as its device. `key` is its wish
/// for a place: GrowOptions::key. Of the options those of join() may be set, as the members have
/// them; `timeout` bounds the wait as well. Thread rule: as join(). Throws Error: kTimeout where
/// nobody let it in, else as join().
UNISONO_API Communicator rejoin(Store& store, std::string_view name, int key = 0,
                                const InitOptions& options = {});

/// A call on one of several communicators.
struct MemberCall {
  Communicator* communicator = nullptr;
  Call call{};
};
/// For a thread that drives several ranks: starts all calls, then waits for each as run() would,
/// without deadlock. Ranks whose GPUs share memory wait for each other on the host in every device
/// call, so one thread could not make their calls one after the other. After a call that is
/// refused, no further call of its communicator is started. Throws the first failure once all have
/// ended.
UNISONO_API void group(std::span<const MemberCall> calls);

struct SpawnOptions {
  enum class As { kThreads, kProcesses };
  As as = As::kThreads;
  std::string transport{};  ///< as InitOptions::transport
  std::chrono::milliseconds timeout{0};
  /// InitOptions::device by rank, repeated where there are fewer; empty: -1 for all.
  std::vector<int> devices{};
};

/// Runs `body` as ranks 0..n-1 of one job and waits for all. As threads (default): the first
/// exception that a body throws is rethrown here. As processes: forks, so it must come before
/// init() and any other unisono engine of this process (kInvalidArgument otherwise); a body that
/// throws or a process that dies becomes an Error here that names the rank. A rank's process is
/// killed when the calling one dies, unless it changes its user; what it has forked itself lives
/// on.
UNISONO_API void spawn(int n, const std::function<void(Communicator&)>& body,
                       const SpawnOptions& options = {});

/// Version of the library, "0.1.0".
UNISONO_API const char* version();

}  // namespace unisono
