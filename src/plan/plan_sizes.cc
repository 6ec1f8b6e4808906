#include "plan/plan_sizes.h"

namespace unisono::plan {
namespace {

// Names a block by the one or two ranks that determine its length.
std::uint64_t pair_name(Rank a, Rank b) {
  return (std::uint64_t{static_cast<std::uint32_t>(a)} << 24) + static_cast<std::uint32_t>(b) + 1;
}

}  // namespace

// No switch here has a default: the compiler names each that a new collective has no case in.

bool is_one_vector(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kScan:
    case Collective::kExscan:
      return true;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kGather:
    case Collective::kGatherV:
    case Collective::kScatter:
    case Collective::kScatterV:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      return false;
  }
  return false;
}

bool has_uneven_blocks(Collective collective) {
  switch (collective) {
    case Collective::kAllGatherV:
    case Collective::kReduceScatterV:
    case Collective::kGatherV:
    case Collective::kScatterV:
    case Collective::kAllToAllV:
      return true;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
    case Collective::kBarrier:
    case Collective::kScan:
    case Collective::kExscan:
    case Collective::kSend:
    case Collective::kReceive:
      return false;
  }
  return false;
}

int input_blocks_of(const PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  switch (request.collective) {
    case Collective::kBroadcast:
      return is_root ? kOneVector : 0;
    case Collective::kScatter:
    case Collective::kScatterV:
      return is_root ? request.ranks : 0;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kGather:
    case Collective::kGatherV:
      return 1;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      return request.ranks;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExscan:
      return kOneVector;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      return 0;
  }
  return 0;
}

int output_blocks_of(const PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  switch (request.collective) {
    case Collective::kReduce:
      return is_root ? kOneVector : 0;
    case Collective::kGather:
    case Collective::kGatherV:
      return is_root ? request.ranks : 0;
    case Collective::kScatter:
    case Collective::kScatterV:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return 1;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      return request.ranks;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kScan:
    case Collective::kExscan:
      return kOneVector;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      return 0;
  }
  return 0;
}

std::uint64_t ChunkSizes::of(Rank rank, Buffer buffer, std::uint32_t chunk) const {
  const Plan& plan = plans_[static_cast<std::size_t>(rank)];
  if (buffer == Buffer::kScratch) {
    const ChunkRange& like = plan.scratch_like[chunk];
    return of(rank, like.buffer, like.first);
  }
  const Collective collective = plan.request.collective;
  if (is_one_vector(collective)) return chunk;
  const auto chunks = static_cast<std::uint32_t>(plan.request.chunks);
  const std::uint32_t in_block = chunk % chunks;
  if (!has_uneven_blocks(collective)) return in_block;
  // A rank's only block is its own; of many blocks, block b is rank b's.
  const int blocks = buffer == Buffer::kInput ? plan.input_blocks : plan.output_blocks;
  const Rank owner = blocks == 1 ? rank : static_cast<Rank>(chunk / chunks);
  std::uint64_t name = pair_name(owner, -1);
  if (collective == Collective::kAllToAllV) {
    const Rank from = buffer == Buffer::kInput ? rank : owner;
    const Rank to = buffer == Buffer::kInput ? owner : rank;
    name = pair_name(from, to);
  }
  return name * chunks + in_block;
}

bool ChunkSizes::equal(Rank a_rank, const ChunkRange& a, Rank b_rank, const ChunkRange& b) const {
  if (a.count != b.count) return false;
  for (std::uint32_t i = 0; i < a.count; ++i) {
    if (of(a_rank, a.buffer, a.first + i) != of(b_rank, b.buffer, b.first + i)) return false;
  }
  return true;
}

}  // namespace unisono::plan
