#include "transports/shm/fabric.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "transports/shm/fabric_group.h"
#include "transports/shm/fabric_meeting.h"
#include "transports/shm/fabric_state.h"

namespace unisono::shm {
namespace {

// The same for all threads of a process and no other process. A fork copies it, hence the pid
// that RankEntry carries beside it.
const std::uint64_t* process_token() {
  struct Token {
    std::uint64_t words[2] = {};
    Token() {
      if (getrandom(words, sizeof words, 0) != sizeof words) words[0] = words[1] = 0;
    }
  };
  static const Token token;
  return token.words;
}

Status check_peers(const FabricPeers& peers) {
  const std::size_t count = peers.world_ranks.size();
  const bool whole = count >= 1 && peers.addresses.size() == count && peers.pids.size() == count &&
                     peers.self >= 0 && static_cast<std::size_t>(peers.self) < count;
  if (!whole) {
    return Status(ErrorCode::kInvalidArgument, "the table of this host's ranks is not complete");
  }
  if (count > kLocalRanksMax) {
    return Status(ErrorCode::kOutOfResources,
                  std::to_string(count) + " ranks on one host; shared memory serves at most " +
                      std::to_string(kLocalRanksMax));
  }
  return {};
}

}  // namespace

Fabric::Fabric(std::shared_ptr<State> state) : state_(std::move(state)) {}
Fabric::~Fabric() = default;

Status Fabric::State::publish_self() {
  RankEntry& entry = control().ranks[peers.self];
  std::memcpy(entry.process_token, process_token(), sizeof entry.process_token);
  if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce) {
    return Status(ErrorCode::kSystem, "getrandom refused 16 bytes");
  }
  entry.pid = getpid();
  std::memcpy(entry.nonce, nonce, sizeof nonce);
  entry.nonce_address = reinterpret_cast<std::uint64_t>(&nonce);
  entry.published.store(1, std::memory_order_release);  // pairs with learn_peers
  return {};
}

void Fabric::State::learn_peers() {
  const RankEntry& own = control().ranks[peers.self];
  same_process.resize(static_cast<std::size_t>(size()));
  single_copies.resize(static_cast<std::size_t>(size()));
  for (int i = 0; i < size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    const RankEntry& entry = control().ranks[i];
    if (entry.published.load(std::memory_order_acquire) != 1) continue;
    // The page is anybody's to write, the table of the job is not.
    same_process[index] =
        peers.pids[index] == peers.pids[static_cast<std::size_t>(peers.self)] &&
        entry.pid == own.pid &&
        std::memcmp(entry.process_token, own.process_token, sizeof own.process_token) == 0;
    bool readable = same_process[index];
    if (!readable && peers.single_copy) {
      single_copies[index] = SingleCopy::probe(peers.pids[index], entry.nonce_address, entry.nonce,
                                               sizeof entry.nonce);
      readable = single_copies[index].usable();
    }
    if (readable) {
      control().ranks[peers.self].readable[i / 64].fetch_or(std::uint64_t{1} << (i % 64),
                                                            std::memory_order_relaxed);
    }
  }
}

bool Fabric::State::can_read(int reader, int owner) const {
  const auto& word = control().ranks[reader].readable[owner / 64];
  return (word.load(std::memory_order_relaxed) >> (owner % 64) & 1) != 0;
}

void Fabric::State::return_block(std::uint32_t block) {
  segment->punch(layout.block_offset(block), layout.block_bytes());
  // Pairs with the acquire in reserve_block.
  control().blocks_taken[block / 64].fetch_and(~(std::uint64_t{1} << (block % 64)),
                                               std::memory_order_release);
}

Result<std::shared_ptr<Mapping>> Fabric::State::heap_view(int local) {
  const auto index = static_cast<std::size_t>(local);
  const std::lock_guard lock(heap_views_mutex);
  if (heap_views[index] == nullptr) {
    UNISONO_ASSIGN(heap_views[index],
                   Mapping::view(heap_descriptors[index]->get(), kHeapBytesMin, kHeapBytesMax));
    heap_descriptors[index].reset();
  }
  return heap_views[index];
}

Result<const std::byte*> Fabric::State::in_heap_of(int local, Rank rank, std::uint64_t offset,
                                                   std::size_t bytes) {
  UNISONO_ASSIGN(const std::shared_ptr<Mapping> view, heap_view(local));
  if (offset > view->bytes() || bytes > view->bytes() - offset) {
    return Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(rank) + " offers " + std::to_string(bytes) +
                      " bytes at " + std::to_string(offset) + " of its heap of " +
                      std::to_string(view->bytes()),
                  rank);
  }
  return static_cast<const std::byte*>(view->base() + offset);
}

Status Fabric::State::read(int local, Rank rank, std::uint64_t address,
                           std::span<std::byte> out) const {
  const SingleCopy& process = single_copies[static_cast<std::size_t>(local)];
  if (!process.usable()) {
    return Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(rank) + " offers memory this rank cannot read", rank);
  }
  const Status done = process.read(out.data(), address, out.size());
  if (done) return done;
  return Status(done.code(), "rank " + std::to_string(rank) + ": " + done.message(), rank);
}

Result<std::shared_ptr<Fabric>> Fabric::meet(FabricListener& listener, FabricPeers peers,
                                             TimePoint deadline) {
  UNISONO_TRY(check_peers(peers));
  auto state = std::make_shared<State>();
  state->peers = std::move(peers);
  state->layout = SegmentLayout{state->peers.world_ranks.size()};
  Meeting meeting(state->peers, deadline);
  Result<std::unique_ptr<Heap>> heap = Heap::create();
  if (!heap) {
    meeting.decline(heap.error());
    return heap.error();
  }
  state->heap = std::move(*heap);
  if (Status gathered = meeting.gather(listener, state->heap->mapping()->fd()); !gathered) {
    meeting.refuse(gathered);
    return gathered;
  }
  UniqueFd received;
  if (state->peers.self == 0) {
    auto made = Mapping::create("unisono-segment", state->layout.bytes());
    Status ready = made.status();
    if (ready) ready = (*made)->reserve(0, sizeof(ControlPage));
    if (!ready) {
      meeting.refuse(ready);
      return ready;
    }
    state->segment = *made;
    state->control().rank_count = state->layout.rank_count;
    state->control().magic.store(kSegmentMagic, std::memory_order_release);
  }
  UNISONO_TRY(meeting.share(state->segment ? state->segment->fd() : -1, &received));
  if (state->peers.self != 0) {
    const std::size_t bytes = state->layout.bytes();
    UNISONO_ASSIGN(state->segment, Mapping::attach(std::move(received), bytes, bytes));
    if (state->control().magic.load(std::memory_order_acquire) != kSegmentMagic ||
        state->control().rank_count != state->layout.rank_count) {
      return Status(ErrorCode::kProtocol, "the shared segment is not of this job or version");
    }
  }
  state->heap_descriptors = std::move(meeting.heaps());
  state->heap_views.resize(state->layout.rank_count);
  UNISONO_TRY(state->publish_self());
  UNISONO_TRY(meeting.barrier());
  state->learn_peers();
  UNISONO_TRY(meeting.barrier());
  state->peers.watch = nullptr;
  return std::shared_ptr<Fabric>(new Fabric(std::move(state)));
}

int Fabric::size() const { return state_->size(); }
int Fabric::self() const { return state_->peers.self; }

Rank Fabric::world_rank(int local) const {
  return state_->peers.world_ranks[static_cast<std::size_t>(local)];
}

int Fabric::local_index(Rank world_rank) const {
  const auto& ranks = state_->peers.world_ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), world_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

Result<LaneMemory> Fabric::lane(int from, int to) {
  if (from < 0 || from >= size() || to < 0 || to >= size() || from == to) {
    return Status(ErrorCode::kInvalidArgument,
                  "no lane from local rank " + std::to_string(from) + " to " + std::to_string(to));
  }
  const std::size_t offset = state_->layout.lane_offset(from, to);
  // The receiver polls the first line before the sender has come: that page must exist, too.
  const std::size_t bytes = state_->layout.lane_bytes();
  const std::size_t reserved = from == self() ? bytes : kPageBytes;
  UNISONO_TRY(state_->segment->reserve(offset, reserved));
  return LaneMemory{state_->segment->base() + offset, bytes};
}

Result<std::uint32_t> Fabric::reserve_block() {
  for (std::uint32_t word = 0; word < kGroupsMax / 64; ++word) {
    std::atomic<std::uint64_t>& taken = state_->control().blocks_taken[word];
    std::uint64_t seen = taken.load(std::memory_order_relaxed);
    while (~seen != 0) {
      const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(~seen));
      // Acquire: pairs with the release in ~FabricGroup, after the block's pages were cleared.
      if (taken.compare_exchange_weak(seen, seen | std::uint64_t{1} << bit,
                                      std::memory_order_acquire, std::memory_order_relaxed)) {
        return word * 64 + bit;
      }
    }
  }
  return Status(ErrorCode::kOutOfResources,
                "all " + std::to_string(kGroupsMax) +
                    " communicators that one host's shared memory serves are open; close some");
}

Result<std::unique_ptr<FabricGroup>> Fabric::open_group(std::uint32_t block,
                                                        std::vector<int> members) {
  std::vector<int> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool mine = std::binary_search(sorted.begin(), sorted.end(), self());
  if (block >= kGroupsMax || !distinct || !mine || sorted.front() < 0 || sorted.back() >= size()) {
    return Status(ErrorCode::kInvalidArgument, "a group needs a block below " +
                                                   std::to_string(kGroupsMax) +
                                                   " and distinct members that include this rank");
  }
  UNISONO_TRY(state_->segment->reserve(state_->layout.block_offset(block),
                                       state_->layout.block_head_bytes(members.size())));
  return std::unique_ptr<FabricGroup>(new FabricGroup(state_, block, std::move(members)));
}

void Fabric::return_block(std::uint32_t block) { state_->return_block(block); }

Result<void*> Fabric::allocate(std::size_t bytes) { return state_->heap->allocate(bytes); }
Status Fabric::release(void* pointer) { return state_->heap->release(pointer); }

}  // namespace unisono::shm
