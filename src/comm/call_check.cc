#include "comm/call_check.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/fnv.h"

namespace unisono {
namespace {

Status invalid(std::string message) {
  return Status(ErrorCode::kInvalidArgument, std::move(message));
}

enum class Use { kRead, kWritten };

// Blocks of a buffer that is written, in no order.
Status check_apart(std::span<const std::size_t> counts, std::span<const std::size_t> displacements,
                   const char* what) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return displacements[a] < displacements[b]; });
  const auto block = [&](std::size_t rank) {
    return "rank " + std::to_string(rank) + " (elements " + std::to_string(displacements[rank]) +
           " to " + std::to_string(displacements[rank] + counts[rank] - 1) + ")";
  };
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (displacements[order[i]] - displacements[order[i - 1]] >= counts[order[i - 1]]) continue;
    return invalid("the blocks of " + block(order[i - 1]) + " and " + block(order[i]) + " in " +
                   what + " overlap; give displacements that keep them apart");
  }
  return Status();
}

// Bytes from the buffer's start to the end of its last block.
Status extent_of(std::span<const std::size_t> counts, std::span<const std::size_t> displacements,
                 const char* what, Use use, int size, std::size_t element_bytes,
                 std::size_t* bytes) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    return invalid(std::string(what) + " has " + std::to_string(counts.size()) +
                   " counts; one for each of the " + std::to_string(size) + " ranks is needed");
  }
  if (!displacements.empty() && displacements.size() != counts.size()) {
    return invalid(std::string(what) + " has " + std::to_string(displacements.size()) +
                   " displacements; give " + std::to_string(size) + " or none");
  }
  std::size_t end = 0;
  std::size_t next = 0;
  bool is_in_order = true;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t first = displacements.empty() ? next : displacements[i];
    if (__builtin_add_overflow(first, counts[i], &next) || next > kBufferBytesMax / element_bytes) {
      return invalid("the block of rank " + std::to_string(i) + " in " + what + ", " +
                     std::to_string(counts[i]) + " elements of " + std::to_string(element_bytes) +
                     " bytes from element " + std::to_string(first) + " on, ends beyond the " +
                     std::to_string(kBufferBytesMax) + " bytes that a buffer can have");
    }
    if (counts[i] == 0) continue;
    is_in_order = is_in_order && first >= end;
    end = std::max(end, next);
  }
  *bytes = end * element_bytes;
  return use == Use::kRead || is_in_order ? Status() : check_apart(counts, displacements, what);
}

// Sizes of both buffers and where `in` or `out` must point for an in-place call (offset of the
// smaller buffer in the larger one, on this rank).
struct Extents {
  std::size_t input = 0;
  std::size_t output = 0;
  std::size_t in_place_offset = 0;
  std::size_t agreed = 0;
};

std::size_t block_offset(std::span<const std::size_t> counts,
                         std::span<const std::size_t> displacements, Rank rank,
                         std::size_t element_bytes) {
  const auto index = static_cast<std::size_t>(rank);
  if (!displacements.empty()) return displacements[index] * element_bytes;
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0}) * element_bytes;
}

Status measure(const Call& call, Rank rank, int size, Extents* e) {
  const std::size_t bytes = size_of(call.type);
  const auto n = static_cast<std::size_t>(size);
  std::size_t block = 0;
  std::size_t all = 0;
  UNISONO_TRY(buffer_bytes(call.count, 1, bytes, &block));
  const bool is_root = rank == call.root;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kScan:
    case Collective::kExscan:
      *e = {block, block, 0, block};
      return Status();
    case Collective::kReduce:
      *e = {block, is_root ? block : 0, 0, block};
      return Status();
    case Collective::kBroadcast:
      *e = {block, block, 0, block};
      return Status();
    case Collective::kAllGather:
      UNISONO_TRY(buffer_bytes(call.count, n, bytes, &all));
      *e = {block, all, block * static_cast<std::size_t>(rank), all};
      return Status();
    case Collective::kReduceScatter:
      UNISONO_TRY(buffer_bytes(call.count, n, bytes, &all));
      *e = {all, block, block * static_cast<std::size_t>(rank), all};
      return Status();
    case Collective::kGather:
      UNISONO_TRY(buffer_bytes(call.count, n, bytes, &all));
      *e = {block, is_root ? all : 0, block * static_cast<std::size_t>(rank), all};
      return Status();
    case Collective::kScatter:
      UNISONO_TRY(buffer_bytes(call.count, n, bytes, &all));
      *e = {is_root ? all : 0, block, block * static_cast<std::size_t>(rank), all};
      return Status();
    case Collective::kAllToAll:
      UNISONO_TRY(buffer_bytes(call.count, n, bytes, &all));
      *e = {all, all, 0, all};
      return Status();
    case Collective::kAllGatherV:
      UNISONO_TRY(extent_of(call.out_counts, call.out_displacements, "out", Use::kWritten, size,
                            bytes, &all));
      e->output = all;
      e->input = call.out_counts[static_cast<std::size_t>(rank)] * bytes;
      e->in_place_offset = block_offset(call.out_counts, call.out_displacements, rank, bytes);
      e->agreed =
          std::accumulate(call.out_counts.begin(), call.out_counts.end(), std::size_t{0}) * bytes;
      return Status();
    case Collective::kReduceScatterV:
      UNISONO_TRY(extent_of(call.in_counts, {}, "in", Use::kRead, size, bytes, &all));
      e->input = all;
      e->output = call.in_counts[static_cast<std::size_t>(rank)] * bytes;
      e->in_place_offset = block_offset(call.in_counts, {}, rank, bytes);
      e->agreed = all;
      return Status();
    case Collective::kGatherV:
      e->input = block;
      if (is_root) {
        UNISONO_TRY(extent_of(call.out_counts, call.out_displacements, "out", Use::kWritten, size,
                              bytes, &all));
        if (call.out_counts[static_cast<std::size_t>(rank)] != call.count) {
          return invalid("the root's own count is " + std::to_string(call.count) + " but counts[" +
                         std::to_string(rank) + "] is " +
                         std::to_string(call.out_counts[static_cast<std::size_t>(rank)]));
        }
        e->output = all;
        e->in_place_offset = block_offset(call.out_counts, call.out_displacements, rank, bytes);
      }
      return Status();
    case Collective::kScatterV:
      e->output = block;
      if (is_root) {
        UNISONO_TRY(
            extent_of(call.in_counts, call.in_displacements, "in", Use::kRead, size, bytes, &all));
        if (call.in_counts[static_cast<std::size_t>(rank)] != call.count) {
          return invalid("the root's own count is " + std::to_string(call.count) + " but counts[" +
                         std::to_string(rank) + "] is " +
                         std::to_string(call.in_counts[static_cast<std::size_t>(rank)]));
        }
        e->input = all;
        e->in_place_offset = block_offset(call.in_counts, call.in_displacements, rank, bytes);
      }
      return Status();
    case Collective::kAllToAllV:
      UNISONO_TRY(extent_of(call.in_counts, call.in_displacements, "in", Use::kRead, size, bytes,
                            &e->input));
      UNISONO_TRY(extent_of(call.out_counts, call.out_displacements, "out", Use::kWritten, size,
                            bytes, &e->output));
      e->in_place_offset = ~std::size_t{0};  // never in place
      return Status();
    case Collective::kBarrier:
      return Status();
    case Collective::kSend:
      e->input = block;
      return Status();
    case Collective::kReceive:
      e->output = block;
      return Status();
  }
  return invalid("unknown collective " + std::to_string(static_cast<int>(call.collective)));
}

Status check_buffers(const Call& call, const Extents& e, bool* in_place) {
  const auto* in = static_cast<const std::byte*>(call.in);
  const auto* out = static_cast<const std::byte*>(call.out);
  if (e.input > 0 && in == nullptr) {
    return invalid("in is null but " + std::to_string(e.input) + " bytes are read from it");
  }
  if (e.output > 0 && out == nullptr) {
    return invalid("out is null but " + std::to_string(e.output) + " bytes are written to it");
  }
  *in_place = false;
  if (e.input == 0 || e.output == 0) return Status();
  if (call.collective == Collective::kBroadcast) {
    *in_place = true;
    return Status();
  }
  const bool in_is_part = e.input <= e.output;
  const std::byte* part = in_is_part ? in : out;
  const std::byte* whole = in_is_part ? out : in;
  if (e.in_place_offset != ~std::size_t{0} && part == whole + e.in_place_offset) {
    *in_place = true;
    return Status();
  }
  if (in < out + e.output && out < in + e.input) {
    return invalid(
        "in and out overlap; give disjoint buffers, or the same place as the call's "
        "in-place rule says");
  }
  return Status();
}

std::uint32_t hash_of(const char* name) {
  const std::uint32_t hash = fnv1a(name);
  return hash == 0 ? 1 : hash;
}

// Of counts that all ranks give alike: their sum, and in the details which of them is whose.
void record_counts(std::span<const std::size_t> counts, CallRecord* record) {
  record->count = 0;
  for (const std::size_t count : counts) {
    record->count += count;
    record->details =
        (record->details ^ static_cast<std::uint32_t>(count ^ count >> 32)) * kFnvPrime;
  }
}

}  // namespace

Status buffer_bytes(std::size_t count, std::size_t blocks, std::size_t element_bytes,
                    std::size_t* bytes) {
  std::size_t elements = 0;
  if (!__builtin_mul_overflow(count, blocks, &elements) &&
      !__builtin_mul_overflow(elements, element_bytes, bytes) && *bytes <= kBufferBytesMax) {
    return Status();
  }
  return invalid(
      "count " + std::to_string(count) + " of elements of " + std::to_string(element_bytes) +
      " bytes" + (blocks == 1 ? "" : " for each of " + std::to_string(blocks) + " blocks") +
      " is more than the " + std::to_string(kBufferBytesMax) + " bytes that a buffer can have");
}

bool reduces(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScan:
    case Collective::kExscan:
      return true;
    default:
      return false;
  }
}

bool is_rooted(Collective collective) {
  switch (collective) {
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kGather:
    case Collective::kGatherV:
    case Collective::kScatter:
    case Collective::kScatterV:
      return true;
    default:
      return false;
  }
}

Status check_call(const Call& call, Rank rank, int size, CallShape* shape) {
  if (static_cast<int>(call.type) >= kDataTypeCount) {
    return invalid("unknown data type " + std::to_string(static_cast<int>(call.type)));
  }
  const bool any_source = call.collective == Collective::kReceive && call.root == kAnyRank;
  if ((is_rooted(call.collective) || is_point_to_point(call.collective)) && !any_source &&
      (call.root < 0 || call.root >= size)) {
    return invalid(std::string(is_rooted(call.collective) ? "root " : "peer ") +
                   std::to_string(call.root) + " is not a rank of 0.." + std::to_string(size - 1));
  }
  if (reduces(call.collective)) {
    if (static_cast<int>(call.op.kind) >= kOpKindCount) {
      return invalid("unknown operator " + std::to_string(static_cast<int>(call.op.kind)));
    }
    const bool prefix =
        call.collective == Collective::kScan || call.collective == Collective::kExscan;
    if (!is_meaningful(call.op.kind, call.type) || (prefix && call.op.kind == OpKind::kAverage)) {
      return invalid("operator " + std::string(name_of(call.op.kind)) + " has no meaning on " +
                     std::string(prefix ? name_of(call.collective) : name_of(call.type)));
    }
    if (call.op.kind == OpKind::kUser && (call.op.function == nullptr || call.op.name == nullptr)) {
      return invalid("a user operator needs a function and a name");
    }
  }
  Extents extents;
  UNISONO_TRY(measure(call, rank, size, &extents));
  UNISONO_TRY(check_buffers(call, extents, &shape->in_place));
  shape->agreed_bytes = extents.agreed;
  shape->input_bytes = extents.input;
  shape->output_bytes = extents.output;
  return Status();
}

CallRecord make_record(const Call& call, std::uint32_t history, std::uint8_t algorithm) {
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(call.collective);
  record.algorithm = algorithm;
  record.history = history;
  record.root = is_rooted(call.collective) ? call.root : -1;
  if (call.collective == Collective::kBarrier) return record;
  record.type = static_cast<std::uint8_t>(call.type);
  record.count = call.count;
  switch (call.collective) {
    case Collective::kAllGatherV:
      record_counts(call.out_counts, &record);
      break;
    case Collective::kReduceScatterV:
      record_counts(call.in_counts, &record);
      break;
    case Collective::kGatherV:
    case Collective::kScatterV:
    case Collective::kAllToAllV:
      record.count = 0;
      break;
    default:
      break;
  }
  if (reduces(call.collective)) {
    record.op = static_cast<std::uint8_t>(call.op.kind);
    if (call.options.order == Order::kCanonical) record.op |= kRecordCanonical;
    if (call.op.kind == OpKind::kUser) {
      record.details ^= hash_of(call.op.name);
      if (!call.op.commutative) record.op |= kRecordNotCommutative;
    }
  }
  return record;
}

}  // namespace unisono
