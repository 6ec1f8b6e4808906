#include "backend/call_check.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
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

Status check_lists(const BlockCounts& blocks, const char* what, int size) {
  const auto [counts, displacements] = blocks;
  if (counts.size() != static_cast<std::size_t>(size)) {
    return invalid(std::string(what) + " has " + std::to_string(counts.size()) +
                   " counts; one for each of the " + std::to_string(size) + " ranks is needed");
  }
  if (!displacements.empty() && displacements.size() != counts.size()) {
    return invalid(std::string(what) + " has " + std::to_string(displacements.size()) +
                   " displacements; give " + std::to_string(size) + " or none");
  }
  return Status();
}

// Bytes from the buffer's start to the end of its last block.
Status extent_of(const BlockCounts& blocks, const char* what, Use use, int size,
                 std::size_t element_bytes, std::size_t* bytes) {
  UNISONO_TRY(check_lists(blocks, what, size));
  const auto [counts, displacements] = blocks;
  std::size_t end = 0;
  std::size_t next = 0;
  bool is_in_order = true;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t first = blocks.begin(i, next);
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

// Sizes of both buffers, and in an in-place call where the smaller one lies in the larger one.
struct Extents {
  std::size_t input = 0;
  std::size_t output = 0;
  std::size_t in_place_offset = 0;
  std::size_t agreed = 0;
};

// `block` is the bytes of `count` elements.
Status measure_even(const Call& call, std::size_t block, Rank rank, int size, Extents* e) {
  const CollectiveFacts& facts = facts_of(call.collective);
  std::size_t all = 0;
  UNISONO_TRY(buffer_bytes(call.count, facts.has_blocks() ? static_cast<std::size_t>(size) : 1,
                           size_of(call.type), &all));
  const auto bytes_of = [&](const BufferFacts& buffer) -> std::size_t {
    // Every rank has the one buffer of a broadcast.
    if (!buffer.is_at(rank, call.root) && facts.in_place != InPlace::kAlways) return 0;
    if (buffer.holds == Holds::kNothing) return 0;
    return buffer.holds == Holds::kBlocks ? all : block;
  };
  e->input = bytes_of(facts.input);
  e->output = bytes_of(facts.output);
  const bool one_is_part = facts.has_blocks() && !facts.exchanges_blocks();
  if (one_is_part) e->in_place_offset = block * static_cast<std::size_t>(rank);
  if (facts.is_collective() && facts.has_buffers()) e->agreed = all;
  return Status();
}

Status measure_uneven(const Call& call, std::size_t block, Rank rank, int size, Extents* e) {
  const CollectiveFacts& facts = facts_of(call.collective);
  const std::size_t bytes = size_of(call.type);
  const bool is_root = rank == call.root;
  const auto has_blocks = [&](const BufferFacts& buffer) {
    return buffer.holds == Holds::kBlocks && buffer.is_at(rank, call.root);
  };
  if (has_blocks(facts.input)) {
    UNISONO_TRY(extent_of(input_counts(call), "in", Use::kRead, size, bytes, &e->input));
  }
  if (has_blocks(facts.output)) {
    UNISONO_TRY(extent_of(output_counts(call), "out", Use::kWritten, size, bytes, &e->output));
  }
  const auto self = static_cast<std::size_t>(rank);
  if (facts.exchanges_blocks()) {  // the other pairs of counts are compared when blocks go
    const std::size_t given = call.in_counts[self], taken = call.out_counts[self];
    if (given == taken) return Status();
    return invalid("rank " + std::to_string(rank) + " gives itself " + std::to_string(given) +
                   " elements (in counts) and takes " + std::to_string(taken) +
                   " (out counts); make them equally many");
  }
  const bool input_is_block = facts.input.holds == Holds::kBlock;
  std::size_t& own_bytes = input_is_block ? e->input : e->output;
  own_bytes = block;
  if (facts.has_root() && !is_root) return Status();
  const BlockCounts blocks = input_is_block ? output_counts(call) : input_counts(call);
  const std::size_t own = blocks.counts[self];
  if (facts.has_root() && own != call.count) {
    return invalid("the root's own count is " + std::to_string(call.count) + " but counts[" +
                   std::to_string(rank) + "] is " + std::to_string(own));
  }
  own_bytes = own * bytes;
  e->in_place_offset = blocks.begin(self) * bytes;
  if (facts.all_give_counts()) {
    e->agreed = std::accumulate(blocks.counts.begin(), blocks.counts.end(), std::size_t{0}) * bytes;
  }
  return Status();
}

Status measure(const Call& call, Rank rank, int size, Extents* e) {
  if (!is_known(call.collective)) {
    return invalid("unknown collective " + std::to_string(static_cast<int>(call.collective)));
  }
  std::size_t block = 0;
  UNISONO_TRY(buffer_bytes(call.count, 1, size_of(call.type), &block));
  return facts_of(call.collective).is_uneven ? measure_uneven(call, block, rank, size, e)
                                             : measure_even(call, block, rank, size, e);
}

Status check_buffers(const Call& call, const Extents& e, bool* in_place) {
  const auto* in = static_cast<const std::byte*>(call.in);
  const auto* out = static_cast<const std::byte*>(call.out);
  const InPlace rule = facts_of(call.collective).in_place;
  if (rule == InPlace::kAlways && in != out) {
    return invalid("the call has one buffer: in and out are to be the same place");
  }
  if (e.input > 0 && in == nullptr) {
    return invalid("in is null but " + std::to_string(e.input) + " bytes are read from it");
  }
  if (e.output > 0 && out == nullptr) {
    return invalid("out is null but " + std::to_string(e.output) + " bytes are written to it");
  }
  *in_place = false;
  if (e.input == 0 || e.output == 0) return Status();
  const bool in_is_part = e.input <= e.output;
  const std::byte* part = in_is_part ? in : out;
  const std::byte* whole = in_is_part ? out : in;
  if (rule != InPlace::kNever && part == whole + e.in_place_offset) {
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

Status no_whole_blocks(const char* what, std::size_t elements, std::size_t ranks) {
  return invalid(std::string(what) + " has " + std::to_string(elements) +
                 " elements, which make no blocks of one length for " + std::to_string(ranks) +
                 " ranks");
}

// Of typed buffers, in elements.
Status check_lengths(const Call& call, std::size_t in, std::size_t out, Rank rank, int size) {
  Extents extents;
  UNISONO_TRY(measure(call, rank, size, &extents));
  const std::size_t bytes = size_of(call.type);
  for (const auto& [what, have, need] : {std::tuple("in", in, extents.input / bytes),
                                         std::tuple("out", out, extents.output / bytes)}) {
    if (have >= need) continue;
    return invalid(std::string(what) + " has " + std::to_string(have) + " elements and " +
                   std::to_string(need) + " are needed");
  }
  return Status();
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

Status check_call(const Call& call, Rank rank, int size, CallShape* shape) {
  if (static_cast<int>(call.type) >= kDataTypeCount) {
    return invalid("unknown data type " + std::to_string(static_cast<int>(call.type)));
  }
  const bool is_rooted_one = is_rooted(call.collective);
  const Rank other = is_rooted_one ? call.root : call.peer;
  const bool any_source = call.collective == Collective::kReceive && other == kAnyRank;
  if ((is_rooted_one || is_point_to_point(call.collective)) && !any_source &&
      (other < 0 || other >= size)) {
    if (!is_rooted_one && other == kNoRank) return invalid("it names no peer (Call::peer)");
    return invalid(std::string(is_rooted_one ? "root " : "peer ") + std::to_string(other) +
                   " is not a rank of 0.." + std::to_string(size - 1));
  }
  if (reduces(call.collective)) {
    if (static_cast<int>(call.op.kind) >= kOpKindCount) {
      return invalid("unknown operator " + std::to_string(static_cast<int>(call.op.kind)));
    }
    if (static_cast<int>(call.options.order) >= kOrderCount) {
      return invalid("unknown order " + std::to_string(static_cast<int>(call.options.order)));
    }
    const bool prefix = facts_of(call.collective).is_prefix();
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

Status fit_buffers(Call* call, std::size_t in_elements, std::size_t out_elements, Rank rank,
                   int size) {
  const CollectiveFacts& facts = facts_of(call->collective);
  const auto ranks = static_cast<std::size_t>(size);
  const bool blocks_come_in = facts.input.holds == Holds::kBlocks;
  if (facts.is_uneven && facts.has_root() && rank == call->root) {
    const BlockCounts blocks = blocks_come_in ? input_counts(*call) : output_counts(*call);
    UNISONO_TRY(check_lists(blocks, blocks_come_in ? "in" : "out", size));
    call->count = blocks.counts[static_cast<std::size_t>(rank)];
  } else if (!facts.exchanges_blocks()) {
    const bool has_input = facts.input.holds != Holds::kNothing;
    call->count = has_input && !blocks_come_in ? in_elements : out_elements;
  } else if (!facts.is_uneven) {
    if (ranks > 0 && in_elements % ranks != 0) return no_whole_blocks("in", in_elements, ranks);
    call->count = ranks == 0 ? 0 : in_elements / ranks;
  }
  return check_lengths(*call, in_elements, out_elements, rank, size);
}

Status place_in_buffer(Call* call, std::size_t elements, Rank rank, int size) {
  const CollectiveFacts& facts = facts_of(call->collective);
  auto* const data = static_cast<std::byte*>(call->out);
  const auto ranks = static_cast<std::size_t>(size);
  call->in = data;
  call->count = elements;
  if (!facts.has_blocks()) return Status();
  const bool blocks_come_in = facts.input.holds == Holds::kBlocks;
  const BufferFacts& blocks_of = blocks_come_in ? facts.input : facts.output;
  if (!blocks_of.is_at(rank, call->root)) {  // only what this rank gives or gets
    if (blocks_come_in) call->in = nullptr;
    if (!blocks_come_in) call->out = nullptr;
    return Status();
  }
  std::size_t offset = 0;
  if (!facts.is_uneven) {
    if (ranks == 0 || elements % ranks != 0) return no_whole_blocks("the buffer", elements, ranks);
    call->count = elements / ranks;
    offset = call->count * static_cast<std::size_t>(rank) * size_of(call->type);
  } else {
    const BlockCounts blocks = blocks_come_in ? input_counts(*call) : output_counts(*call);
    // A root's blocks that go out are only read: its own stays where it is.
    const Use use = facts.has_root() && blocks_come_in ? Use::kRead : Use::kWritten;
    std::size_t extent = 0;
    UNISONO_TRY(extent_of(blocks, "the buffer", use, size, size_of(call->type), &extent));
    const auto own = static_cast<std::size_t>(rank);
    call->count = blocks.counts[own];
    offset = blocks.begin(own) * size_of(call->type);
  }
  if (!facts.exchanges_blocks()) {
    if (blocks_come_in) call->out = data + offset;
    if (!blocks_come_in) call->in = data + offset;
  }
  return check_lengths(*call, elements, elements, rank, size);
}

std::uint32_t hash_of_name(const char* name) {
  const std::uint32_t hash = fnv1a(name);
  return hash == 0 ? 1 : hash;
}

CallRecord make_record(const Call& call, Order order, std::uint32_t history,
                       std::uint8_t algorithm) {
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(call.collective);
  record.algorithm = algorithm;
  record.history = history;
  const CollectiveFacts& facts = facts_of(call.collective);
  record.root = facts.has_root() ? call.root : -1;
  if (!facts.has_buffers()) return record;
  record.type = static_cast<std::uint8_t>(call.type);
  record.count = call.count;
  if (facts.is_uneven) record.count = 0;
  if (facts.all_give_counts()) {
    record_counts(facts.input.holds == Holds::kBlocks ? call.in_counts : call.out_counts, &record);
  }
  if (reduces(call.collective)) {
    record.op = static_cast<std::uint8_t>(call.op.kind);
    if (order == Order::kCanonical) record.op |= kRecordCanonical;
    if (order == Order::kExact) record.op |= kRecordExact;
    if (call.op.kind == OpKind::kUser) {
      record.details ^= hash_of_name(call.op.name);
      if (!call.op.commutative) record.op |= kRecordNotCommutative;
    }
  }
  return record;
}

}  // namespace unisono
