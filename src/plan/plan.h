// What one rank does in one collective call: an immutable value in chunk units with symbolic
// buffers. No pointer, no byte, no clock, no I/O; bytes enter later through ChunkLayout.
//
// Words. A *block* is what belongs to one rank (all-gather has one block in and N out); every
// block is cut into `chunks` chunks. A *chunk range* is a run of chunks of one buffer. A *channel*
// is the ordered pair (sender, receiver): the k-th send of a channel matches the k-th receive of
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/types.h"

namespace unisono::plan {

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

struct ChunkRange {
  Buffer buffer = Buffer::kOutput;
  std::uint32_t first = 0;
  std::uint32_t count = 0;  ///< 0: nothing is moved; a send of it is an empty message

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

enum class StepKind : std::uint8_t {
  kSend,           ///< source -> peer
  kReceive,        ///< peer -> target
  kReceiveReduce,  ///< target = source (op) message, or message (op) source; see `remote_first`
  kCopy,           ///< target = source
  kReduce,         ///< target = source (op) target, or target (op) source; see `remote_first`
  kReduceAll,      ///< target = all its operands at once, in their order; may be one of them
};

struct Step {
  StepKind kind = StepKind::kCopy;
  /// Operand order, for operators that do not commute. kReceiveReduce: the message comes from
  /// lower ranks than `source`. kReduce: `source` comes from lower ranks than `target`.
  bool remote_first = false;
  Rank peer = -1;                   ///< kSend, kReceive, kReceiveReduce
  std::uint32_t message_index = 0;  ///< how many earlier messages this channel carries in this plan
  ChunkRange target;                ///< written; all kinds but kSend
  ChunkRange source;  ///< read; kinds but kReceive, kReduceAll. May equal target (kReceiveReduce).
  /// kReduceAll reads operands[first .. first + count).
  std::uint32_t operand_first = 0;
  std::uint32_t operand_count = 0;
  /// Steps that must be complete before this one starts: dependencies[first .. first + count).
  std::uint32_t dependency_first = 0;
  std::uint32_t dependency_count = 0;
};

/// What a plan is made from: only values that all ranks agree on, and `rank` and `in_place`.
struct PlanRequest {
  Collective collective = Collective::kBarrier;
  int ranks = 1;
  Rank rank = 0;
  Rank root = 0;
  int chunks = 1;           ///< per block, at least 1; more chunks pipeline more finely
  bool in_place = false;    ///< local: input and output alias as the collective defines it
  bool commutative = true;  ///< of the operator
  Order order = Order::kAny;
};

/// Chunks of a buffer, by collective and role of the rank (0 where the rank has no such buffer):
///   all_reduce, reduce, broadcast, scan, exscan: input and output one block, `chunks` chunks.
///     All-reduce algorithms that cut by rank ask for ranks * chunks through `blocks`.
///   all_gather(_v): input 1 block, output N blocks.   reduce_scatter(_v): input N, output 1.
///   gather(_v): input 1, output N at root.            scatter(_v): input N at root, output 1.
///   all_to_all(_v): N and N.                          barrier: none.
/// Chunk i of block b is index b * chunks + i.
struct Plan {
  PlanRequest request;
  std::string algorithm;
  /// Blocks the input and output are cut into. For all_reduce and reduce the algorithm chooses it
  /// (ring: N blocks of one buffer); for block collectives it is 1 or N as above.
  int input_blocks = 0;
  int output_blocks = 0;
  /// Scratch chunk i has exactly the bytes of this (input or output) range.
  std::vector<ChunkRange> scratch_like;
  std::vector<Step> steps;                  ///< in an order that respects dependencies
  std::vector<std::uint32_t> dependencies;  ///< flat; see Step
  std::vector<ChunkRange> operands;         ///< flat; see Step
};

inline bool receives(StepKind kind) {
  return kind == StepKind::kReceive || kind == StepKind::kReceiveReduce;
}

/// What a step reads of this rank's buffers.
inline std::span<const ChunkRange> sources_of(const Plan& plan, const Step& step) {
  if (step.kind == StepKind::kReceive) return {};
  if (step.kind != StepKind::kReduceAll) return {&step.source, 1};
  return std::span(plan.operands).subspan(step.operand_first, step.operand_count);
}

}  // namespace unisono::plan
