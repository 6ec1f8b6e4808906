// One running plan: counters over an immutable value.
//
// A PreparedPlan is a plan bound to sizes, with what the executor needs per step worked out once:
// byte ranges, successors, dependency counts. An Execution runs it on one call's buffers and is
// reused. It starts every step whose dependencies are met; pipelining arises from there.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/call_record.h"
#include "compute/compute.h"
#include "engine/messenger.h"
#include "engine/operation.h"
#include "engine/scratch_pool.h"
#include "plan/chunk_layout.h"
#include "plan/plan.h"

namespace unisono {

struct PreparedStep {
  plan::StepKind kind = plan::StepKind::kCopy;
  bool remote_first = false;
  plan::Buffer target_buffer = plan::Buffer::kOutput;
  plan::Buffer source_buffer = plan::Buffer::kOutput;
  Rank peer = -1;  ///< communicator rank
  std::uint32_t message_index = 0;
  std::size_t target_offset = 0;
  std::size_t source_offset = 0;
  std::size_t bytes = 0;
  std::uint32_t successor_first = 0;
  std::uint32_t successor_count = 0;
  std::uint32_t operand_first = 0;
  std::uint32_t operand_count = 0;
};

/// What a kReduceAll step reads.
struct PreparedOperand {
  plan::Buffer buffer = plan::Buffer::kOutput;
  std::size_t offset = 0;
};

/// What one run of a plan moves between this rank and others: a message per step.
struct PlannedMessage {
  Rank peer = -1;  ///< communicator rank
  bool sent = false;
  std::size_t bytes = 0;
};

struct PreparedPlan {
  /// A step of kCopy whose chunk range is not contiguous in memory becomes a copy for each part;
  /// steps that send have contiguous ranges, since plans for displaced blocks send block by block.
  static PreparedPlan make(plan::Plan plan, plan::BufferLayout input, plan::BufferLayout output);

  std::vector<PreparedStep> steps;
  std::vector<std::uint32_t> successors;
  std::vector<std::uint32_t> dependency_counts;
  std::vector<std::uint32_t> ready_first;  ///< steps without dependencies
  std::vector<PreparedOperand> operands;
  std::vector<PlannedMessage> messages;
  bool only_sends = false;  ///< some messages, and none that this rank receives
  std::size_t scratch_bytes = 0;
  std::size_t input_bytes = 0;
};

class Execution final : public Operation, private MessageOwner {
 public:
  Execution(Messenger& messenger, ScratchPool& scratch)
      : messenger_(messenger), scratch_(scratch) {}

  struct Call {
    const PreparedPlan* plan = nullptr;
    const void* input = nullptr;
    void* output = nullptr;
    const compute::Reduction* reduction = nullptr;  ///< null: nothing is reduced
    /// Bytes of output this rank must finish() (average) when all steps are done; offset 0.
    std::size_t finish_bytes = 0;
    std::uint32_t communicator = 0;
    std::uint64_t sequence = 0;
    CallRecord record;
    const std::vector<Rank>* world_ranks = nullptr;  ///< of the communicator's members
  };
  /// Takes scratch; then advance() does the rest. Errors: kOutOfResources.
  Status begin(const Call& call);

  bool advance() override;
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override;

 private:
  void message_done(std::uint32_t slot) override;
  void message_piece(std::uint32_t slot, std::size_t offset,
                     std::span<const std::byte> piece) override;
  bool run(std::uint32_t index);
  void complete(std::uint32_t index);
  std::byte* target_of(const PreparedStep& step) const;
  const std::byte* source_of(const PreparedStep& step) const;
  void reduce_all(const PreparedStep& step);
  Rank world_rank(Rank member) const {
    return (*call_.world_ranks)[static_cast<std::size_t>(member)];
  }
  void end();

  enum class StepState : std::uint8_t { kIdle, kStarted, kDone };

  Messenger& messenger_;
  ScratchPool& scratch_;
  Call call_;
  ScratchPool::Block scratch_block_;
  ScratchPool::Block prepared_block_;
  const std::byte* bases_[3] = {};
  std::vector<std::uint32_t> dependencies_left_;
  std::vector<std::uint32_t> ready_;
  std::vector<StepState> states_;
  std::vector<const void*> operands_;  // of one step
  std::size_t steps_left_ = 0;
};

}  // namespace unisono
