// One reliable connected queue pair. Work requests are staged and posted as one chain; only some of
// them are signalled, and a completion stands for all before it. Owned by QueuePairs, used by the
// transport's thread. Destroying it is a fence: afterwards no device touches memory because of it.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "transports/verbs/hello.h"
#include "transports/verbs/path.h"
#include "transports/verbs/rail.h"

namespace unisono::verbs {

/// Work requests one queue pair holds at most.
inline constexpr int kSendDepth = 64;

/// A piece of registered memory of this rank and of the peer.
struct LocalPiece {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::uint32_t key = 0;
};
struct RemotePiece {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

struct WorkCounts {
  std::uint64_t writes = 0;        ///< RDMA writes with data
  std::uint64_t reads = 0;         ///< RDMA reads
  std::uint64_t immediates = 0;    ///< writes without data
  std::uint64_t signalled = 0;     ///< completions asked for
  std::uint64_t epochs = 0;        ///< times that a link's queue pairs were made
  std::uint64_t staged_bytes = 0;  ///< payload of large frames copied because it was not registered
};

class QueuePair {
 public:
  /// Made and initialised; not connected. `index`: of the rail, among this rank's.
  static Result<std::unique_ptr<QueuePair>> make(Rail& rail, std::size_t index, int ordinal,
                                                 const VerbsOptions& options, WorkCounts& counts);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// Nothing arrives here any more; what has been completed lies on the completion queue.
  void stop();

  /// What the peer needs to know.
  const QueuePairEnd& end() const { return end_; }
  Status connect(const QueuePairEnd& peer, const Path& path);

  Rail& rail() const { return rail_; }
  std::size_t rail_index() const { return end_.rail; }
  /// Which of the peer's rails it leads to, once connected.
  std::size_t peer_rail() const { return peer_rail_; }
  std::uint32_t number() const { return end_.number; }

  /// Work requests that may be staged now.
  int room() const { return depth_ - static_cast<int>(posted_ + staged_ - completed_); }
  /// Bytes, a multiple of 64, that a transfer may have now: the port limits each work request, and
  /// two stay free for immediates, because acknowledgements must get out in the end.
  std::size_t transfer_bytes_max() const;

  void stage_write(const LocalPiece& from, const RemotePiece& to, std::uint32_t immediate);
  /// The identity of this read for is_done().
  std::uint64_t stage_read(const LocalPiece& into, const RemotePiece& from);
  /// As stage_read().
  std::uint64_t stage_immediate(std::uint32_t immediate);
  /// Has the next chain end with a completion.
  void ask_for_completion() { completion_wanted_ = true; }
  /// Posts what is staged. An error ends this queue pair's use.
  Status post();

  /// A completion of this queue pair that succeeded: everything up to `id` is done.
  void complete(std::uint64_t id) {
    // One of an earlier queue pair of this number means nothing here.
    if (static_cast<std::int64_t>(id) <= posted_) {
      completed_ = std::max(completed_, static_cast<std::int64_t>(id));
    }
  }
  bool is_done(std::uint64_t id) const { return completed_ >= static_cast<std::int64_t>(id); }

 private:
  QueuePair(Rail& rail, const VerbsOptions& options, WorkCounts& counts)
      : rail_(rail), options_(options), counts_(counts) {}
  Status create(std::size_t index, int ordinal);
  Status initialise();
  Status make_ready_to_receive(const QueuePairEnd& peer, const Path& path);
  Status make_ready_to_send(const QueuePairEnd& peer, const Path& path);
  ibv_send_wr& stage(const LocalPiece& local, const RemotePiece& remote, ibv_wr_opcode opcode);
  void signal();

  Rail& rail_;
  const VerbsOptions& options_;
  WorkCounts& counts_;
  ibv_qp* qp_ = nullptr;
  QueuePairEnd end_;
  std::size_t peer_rail_ = 0;
  std::uint32_t inline_bytes_ = 0;
  int depth_ = kSendDepth;
  int signal_every_ = 1;
  std::int64_t posted_ = 0;
  std::int64_t completed_ = 0;
  std::int64_t signalled_ = 0;
  int staged_ = 0;
  int reads_unsignalled_ = 0;
  bool completion_wanted_ = false;
  std::array<ibv_send_wr, kSendDepth> requests_;
  std::array<ibv_sge, kSendDepth> pieces_;
};

}  // namespace unisono::verbs
