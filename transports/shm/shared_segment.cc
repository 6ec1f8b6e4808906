#include "transports/shm/shared_segment.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/log.h"
#include "base/peer_fault.h"
#include "base/per_process.h"
#include "transports/shm/descriptor_exchange.h"
#include "transports/shm/host_probe.h"
#include "transports/shm/segment_group.h"
#include "transports/shm/shared_segment_state.h"

namespace unisono::shm {
namespace {

// The same for all threads of a process and no other process. Where it could not be drawn they are
// told apart by the pid that RankEntry carries beside it.
struct ProcessToken {
  std::uint64_t words[2] = {};
  ProcessToken() {
    if (getrandom(words, sizeof words, 0) != sizeof words) words[0] = words[1] = 0;
  }
};
constinit PerProcess<ProcessToken> process_token;

Status check_peers(const LocalPeers& peers) {
  const std::size_t count = peers.world_ranks.size();
  const bool whole = count >= 1 && peers.addresses.size() == count && peers.pids.size() == count &&
                     peers.self >= 0 && static_cast<std::size_t>(peers.self) < count &&
                     std::all_of(peers.world_ranks.begin(), peers.world_ranks.end(),
                                 [](Rank rank) { return rank >= 0; });
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

using RankBits = std::atomic<std::uint64_t>[kLocalRanksMax / 64];

void set_bit(RankBits& bits, int rank) {
  bits[rank / 64].fetch_or(std::uint64_t{1} << (rank % 64), std::memory_order_relaxed);
}

bool has_bit(const RankBits& bits, int rank) {
  return (bits[rank / 64].load(std::memory_order_relaxed) >> (rank % 64) & 1) != 0;
}

}  // namespace

SharedSegment::SharedSegment(std::shared_ptr<State> state) : state_(std::move(state)) {}
SharedSegment::~SharedSegment() = default;

void SharedSegment::State::index_world_ranks() {
  const std::vector<Rank>& ranks = peers.world_ranks;
  const Rank last = *std::max_element(ranks.begin(), ranks.end());
  local_by_world.assign(static_cast<std::size_t>(last) + 1, -1);
  for (int i = 0; i < size(); ++i) {
    local_by_world[static_cast<std::size_t>(ranks[static_cast<std::size_t>(i)])] = i;
  }
}

Status SharedSegment::State::make_segment() {
  UNISONO_ASSIGN(segment, Mapping::create("unisono-segment", layout.bytes()));
  UNISONO_TRY(segment->reserve(0, sizeof(ControlPage)));
  control().rank_count = layout.rank_count;
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  control().cached_rotation.store(2 * std::max(cache, 0L), std::memory_order_relaxed);
  begin_trials();
  control().magic.store(kSegmentMagic, std::memory_order_release);  // pairs with attach_segment
  return {};
}

Status SharedSegment::State::attach_segment(UniqueFd received) {
  const std::size_t bytes = layout.bytes();
  UNISONO_ASSIGN(segment, Mapping::attach(std::move(received), bytes, bytes));
  if (control().magic.load(std::memory_order_acquire) != kSegmentMagic ||
      control().rank_count != layout.rank_count) {
    return Status(ErrorCode::kProtocol, "the shared segment is not of this job or version");
  }
  return {};
}

Status SharedSegment::State::publish_self() {
  UNISONO_TRY(segment->reserve(layout.registered_offset(peers.self), sizeof(RegisteredTable)));
  registered = std::make_unique<RegisteredRanges>(registered_by(peers.self));
  RankEntry& entry = control().ranks[peers.self];
  std::memcpy(entry.process_token, process_token.get().words, sizeof entry.process_token);
  if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce) {
    return Status(ErrorCode::kSystem, "getrandom refused 16 bytes");
  }
  entry.pid = getpid();
  entry.heap_fd = heap->mapping()->fd();
  std::memcpy(entry.nonce, nonce, sizeof nonce);
  entry.nonce_address = reinterpret_cast<std::uint64_t>(&nonce);
  entry.published.store(1, std::memory_order_release);  // pairs with learn_peers
  return {};
}

// Before the others can map it.
void SharedSegment::State::begin_trials() {
  TrialMemory& trials = control().trials;
  trials.known = peers.known;
  trials.host = peers.known.host;
  trials.cores = static_cast<std::uint32_t>(std::max(0, peers.cores));
  const std::set<std::int64_t> processes(peers.pids.begin(), peers.pids.end());
  const bool are_processes = size() > 1 && processes.size() == peers.pids.size();
  const bool are_few = size() <= std::min(peers.cores, kMeasuringRanksMax);
  const bool measures = are_processes && are_few && !trials.host.are_known();
  trials.measuring_ns = measures ? std::chrono::nanoseconds(peers.measuring_max).count() : 0;
}

void SharedSegment::State::map_heaps(const std::vector<PeerMemfd>& heaps) {
  RankBits& mapped = control().ranks[peers.self].heaps;
  heap_views.resize(heaps.size());
  heap_views[static_cast<std::size_t>(peers.self)] = heap->mapping();
  set_bit(mapped, peers.self);
  // What is left when all are mapped is the program's.
  std::size_t room = heap_share * heaps.size() - heap->mapping()->bytes();
  for (int i = 0; i < size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (i == peers.self) continue;
    auto view = Mapping::view(heaps[index]->get(), kHeapBytesMin, std::min(room, kHeapBytesMax));
    if (!view) continue;
    room -= (*view)->bytes();
    heap_views[index] = std::move(*view);
    set_bit(mapped, i);
  }
}

void SharedSegment::State::learn_peers(const std::vector<PeerMemfd>& heaps) {
  const RankEntry& own = control().ranks[peers.self];
  same_process.resize(static_cast<std::size_t>(size()));
  single_copies.resize(static_cast<std::size_t>(size()));
  std::vector<RegisteredViews::Peer> known;
  for (int i = 0; i < size(); ++i) {
    known.push_back({&registered_by(i), peers.pids[static_cast<std::size_t>(i)]});
  }
  registered_views = std::make_unique<RegisteredViews>(std::move(known));
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
    if (!readable) {
      SingleCopy& process = single_copies[index] = SingleCopy(peers.pids[index]);
      if (peers.single_copy) process.probe(entry.nonce_address, entry.nonce, sizeof entry.nonce);
      readable = process.usable();
    }
    if (readable) set_bit(control().ranks[peers.self].readable, i);
    if (can_open_descriptors_of(i, heaps[index])) {
      set_bit(control().ranks[peers.self].mappable, i);
    }
  }
}

// The heap came over a socket, so it is known; whose descriptor it is in /proc tells of all.
bool SharedSegment::State::can_open_descriptors_of(int local, const PeerMemfd& heap_of_it) const {
  const auto index = static_cast<std::size_t>(local);
  struct stat heap_facts {};
  if (local == peers.self) return true;
  if (fstat(heap_of_it->get(), &heap_facts) != 0) return false;
  const FileIdentity file{heap_facts.st_dev, heap_facts.st_ino};
  return open_file_of(peers.pids[index], control().ranks[local].heap_fd, file).has_value();
}

bool SharedSegment::State::can_read(int reader, int owner) const {
  return has_bit(control().ranks[reader].readable, owner);
}

bool SharedSegment::State::can_map(int reader, int owner) const {
  return has_bit(control().ranks[reader].mappable, owner);
}

bool SharedSegment::State::has_heap(int reader, int owner) const {
  return has_bit(control().ranks[reader].heaps, owner);
}

// Where a number is that process' here, another one can have it only once that has ended.
bool SharedSegment::State::has_ended(int local) const {
  const auto index = static_cast<std::size_t>(local);
  const SingleCopy& process = single_copies[index];
  return (process.usable() || peers.pids_hold[index]) && process.has_ended();
}

void SharedSegment::State::return_block(std::uint32_t block) {
  segment->punch(layout.block_offset(block), layout.block_bytes());
  // Pairs with the acquire in reserve_block.
  control().blocks_taken[block / 64].fetch_and(~(std::uint64_t{1} << (block % 64)),
                                               std::memory_order_release);
}

MemoryHandle SharedSegment::State::handle_of(std::span<const std::byte> memory,
                                             const Ways& ways) const {
  if (memory.empty()) return {};
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  if (ways.in_this_process) return {MemoryPath::kPointer, memory.size(), address};
  std::uint64_t offset = 0;
  if (ways.by_heap && heap->locate(memory.data(), memory.size(), &offset)) {
    return {MemoryPath::kHeap, memory.size(), offset};
  }
  if (ways.by_mapping && registered->find(memory.data(), memory.size(), &offset) && is_dumpable()) {
    return {MemoryPath::kRegistered, memory.size(), offset};
  }
  if (ways.by_single_copy) return {MemoryPath::kSingleCopy, memory.size(), address};
  return {};
}

Result<MemoryView> SharedSegment::State::open(int local, Rank rank, const MemoryHandle& handle) {
  const bool is_here = same_process[static_cast<std::size_t>(local)];
  switch (handle.path) {
    case MemoryPath::kNone:
      return MemoryView{};
    case MemoryPath::kInline:
      break;
    case MemoryPath::kPointer:
      if (!is_here) break;
      return MemoryView{MemoryPath::kPointer, reinterpret_cast<const std::byte*>(handle.address)};
    case MemoryPath::kHeap: {
      const Mapping* const view = heap_views[static_cast<std::size_t>(local)].get();
      if (view == nullptr) break;  // as its owner knows
      if (handle.address > view->bytes() || handle.bytes > view->bytes() - handle.address) {
        return Status(ErrorCode::kProtocol,
                      "rank " + std::to_string(rank) + " offers " + std::to_string(handle.bytes) +
                          " bytes at " + std::to_string(handle.address) + " of its heap of " +
                          std::to_string(view->bytes()),
                      rank);
      }
      return MemoryView{MemoryPath::kHeap, view->base() + handle.address};
    }
    case MemoryPath::kRegistered:
      return open_registered(local, rank, handle);
    case MemoryPath::kSingleCopy:
      if (is_here) {  // a thread's memory needs no system call
        return MemoryView{MemoryPath::kPointer, reinterpret_cast<const std::byte*>(handle.address)};
      }
      return MemoryView{MemoryPath::kSingleCopy, nullptr, handle.address};
  }
  return Status(ErrorCode::kProtocol,
                "rank " + std::to_string(rank) + " offers its memory in a way (" +
                    std::to_string(static_cast<int>(handle.path)) + ") that this rank cannot use",
                rank);
}

Result<MemoryView> SharedSegment::State::open_registered(int local, Rank rank,
                                                         const MemoryHandle& handle) {
  const std::uint64_t number = handle.address >> kRegisteredOffsetBits;
  const std::uint64_t offset = handle.address - (number << kRegisteredOffsetBits);
  auto view = registered_views->open(local, number);
  if (!view) {
    return peer_fault(rank, "registered memory of rank " + std::to_string(rank), view.error());
  }
  const std::size_t bytes = (*view)->bytes();
  if (offset > bytes || handle.bytes > bytes - offset) {
    return Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(rank) + " offers " + std::to_string(handle.bytes) +
                      " bytes at " + std::to_string(offset) + " of registered memory of " +
                      std::to_string(bytes),
                  rank);
  }
  return MemoryView{MemoryPath::kRegistered, (*view)->base() + offset, 0, std::move(*view)};
}

Status SharedSegment::State::copy(int local, Rank rank, const MemoryView& from, std::size_t offset,
                                  std::span<std::byte> out) const {
  if (from.path != MemoryPath::kSingleCopy) {
    std::memcpy(out.data(), from.base + offset, out.size());
    return {};
  }
  const SingleCopy& process = single_copies[static_cast<std::size_t>(local)];
  if (!process.usable()) {
    return Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(rank) + " offers memory this rank cannot read", rank);
  }
  const Status done = process.read(out.data(), from.address + offset, out.size());
  if (done) return done;
  return Status(done.code(), "rank " + std::to_string(rank) + ": " + done.message(), rank);
}

Status SharedSegment::State::meet(DescriptorExchange& exchange, LocalListener& listener) {
  UNISONO_TRY(exchange.gather(listener, heap->mapping()->fd()));
  if (peers.self == 0) UNISONO_TRY(make_segment());
  UniqueFd received;
  UNISONO_TRY(exchange.share(segment ? segment->fd() : -1, &received));
  if (peers.self != 0) UNISONO_TRY(attach_segment(std::move(received)));
  map_heaps(exchange.heaps());
  UNISONO_TRY(publish_self());
  UNISONO_TRY(exchange.barrier());
  learn_peers(exchange.heaps());
  UNISONO_TRY(exchange.barrier());
  if (control().trials.measuring_ns == 0) return {};
  measure_host();
  UNISONO_TRY(exchange.barrier());
  forget_measuring();
  return {};
}

Result<std::shared_ptr<SharedSegment>> SharedSegment::open(LocalListener& listener,
                                                           LocalPeers peers, TimePoint deadline) {
  UNISONO_TRY(check_peers(peers));
  auto state = std::make_shared<State>();
  state->peers = std::move(peers);
  state->peers.pids_hold.resize(state->peers.world_ranks.size());
  state->index_world_ranks();
  state->layout = SegmentLayout{state->peers.world_ranks.size()};
  DescriptorExchange exchange(state->peers, deadline);
  state->heap_share = share_of_heap(state->layout.bytes(), state->peers.world_ranks.size());
  Result<std::unique_ptr<Heap>> heap = Heap::create(std::bit_floor(state->heap_share));
  if (!heap) {
    exchange.decline(heap.error());
    return heap.error();
  }
  state->heap = std::move(*heap);
  if (Status met = state->meet(exchange, listener); !met) {
    exchange.refuse(met);
    return met;
  }
  state->peers.watch = nullptr;
  return std::shared_ptr<SharedSegment>(new SharedSegment(std::move(state)));
}

int SharedSegment::size() const { return state_->size(); }
int SharedSegment::self() const { return state_->peers.self; }

TrialFacts SharedSegment::learned() const { return learned_by(state_->control().trials); }
const TrialFacts& SharedSegment::known() const { return state_->control().trials.known; }
const HostFacts& SharedSegment::measured() const { return state_->control().trials.host; }

Rank SharedSegment::world_rank(int local) const {
  return state_->peers.world_ranks[static_cast<std::size_t>(local)];
}

int SharedSegment::local_index(Rank world_rank) const {
  const auto index = static_cast<std::size_t>(world_rank);
  return index < state_->local_by_world.size() ? state_->local_by_world[index] : -1;
}

Result<RingMemory> SharedSegment::ring(int from, int to) {
  if (from < 0 || from >= size() || to < 0 || to >= size() || from == to) {
    return Status(ErrorCode::kInvalidArgument,
                  "no ring from local rank " + std::to_string(from) + " to " + std::to_string(to));
  }
  const std::size_t offset = state_->layout.ring_offset(from, to);
  // The receiver polls the first line before the sender has come: that page must exist, too.
  const std::size_t bytes = state_->layout.ring_bytes();
  const std::size_t reserved = from == self() ? bytes : kPageBytes;
  UNISONO_TRY(state_->segment->reserve(offset, reserved));
  TrialMemory* const trials = size() == 2 ? &state_->control().trials : nullptr;
  return RingMemory{state_->segment->base() + offset, bytes, trials};
}

MemoryHandle SharedSegment::handle_of(int reader, std::span<const std::byte> memory,
                                      bool by_single_copy) const {
  return state_->handle_of(
      memory, {.in_this_process = state_->same_process[static_cast<std::size_t>(reader)],
               .by_heap = state_->has_heap(reader, self()),
               .by_mapping = state_->can_map(reader, self()),
               .by_single_copy = by_single_copy && state_->can_read(reader, self())});
}

Status SharedSegment::collect(int owner, const MemoryHandle& handle,
                              std::span<std::byte> out) const {
  const Rank rank = world_rank(owner);
  UNISONO_ASSIGN(const MemoryView view, state_->open(owner, rank, handle));
  if (view.path == MemoryPath::kNone || handle.bytes != out.size()) {
    return Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(rank) + " lends " + std::to_string(handle.bytes) +
                      " bytes of its memory for a frame of " + std::to_string(out.size()),
                  rank);
  }
  return state_->copy(owner, rank, view, 0, out);
}

Result<std::uint32_t> SharedSegment::reserve_block() {
  for (std::uint32_t word = 0; word < kGroupsMax / 64; ++word) {
    std::atomic<std::uint64_t>& taken = state_->control().blocks_taken[word];
    std::uint64_t seen = taken.load(std::memory_order_relaxed);
    while (~seen != 0) {
      const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(~seen));
      // Acquire: pairs with the release in State::return_block, which has cleared the block's
      // pages before it.
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

Result<std::unique_ptr<SegmentGroup>> SharedSegment::open_group(std::uint32_t block,
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
  return std::unique_ptr<SegmentGroup>(new SegmentGroup(state_, block, std::move(members)));
}

void SharedSegment::return_block(std::uint32_t block) { state_->return_block(block); }

Result<void*> SharedSegment::allocate(std::size_t bytes) { return state_->heap->allocate(bytes); }
Status SharedSegment::release(void* pointer) { return state_->heap->release(pointer); }

bool SharedSegment::is_allocated(std::span<const std::byte> memory) const {
  std::uint64_t offset = 0;
  return state_->heap->locate(memory.data(), memory.size(), &offset);
}

Result<int> SharedSegment::register_memory(std::span<const std::byte> memory, int fd,
                                           const FileIdentity& file, std::uint64_t offset) {
  return state_->registered->add(memory, fd, file, offset);
}

void SharedSegment::unregister_memory(int number) {
  state_->registered->remove(number);
  // Programs give memory up on all ranks at about the same time.
  state_->registered_views->drop_stale();
}

SharedSegment::Readers SharedSegment::readers() const {
  Readers readers{.may_open = is_dumpable()};
  for (int i = 0; i < size(); ++i) {
    if (state_->same_process[static_cast<std::size_t>(i)]) continue;
    readers.all_are_threads = false;
    readers.all_copy = readers.all_copy && state_->can_read(i, self());
    if (!state_->can_map(i, self()) && readers.cannot_map < 0) readers.cannot_map = world_rank(i);
    if (!state_->has_heap(i, self()) && readers.lacks_heap < 0) readers.lacks_heap = world_rank(i);
  }
  return readers;
}

}  // namespace unisono::shm
