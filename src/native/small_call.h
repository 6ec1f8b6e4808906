// A call whose payload fits the cells: every rank writes its cell, reads those it needs, done. One
// wait, no counter, no system call.
//
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "native/access_trials.h"
#include "native/payload_rotation.h"
#include "native/shared_cells.h"
#include "native/transfer.h"

namespace unisono::native {

class SmallCall final : public NativeCall {
 public:
  SmallCall(shm::SegmentGroup& group, SharedCells& cells, AccessTrials& trials);

  /// The transfer's largest_input_bytes is at most shm::kCellPayloadBytes.
  void start(const Arguments& arguments, const Transfer& transfer);
  /// The same call on other buffers.
  void repeat(const void* input, void* output, const CallRecord& record);

  bool advance() override;
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override;
  void count(Collective collective, std::uint64_t times, TrafficReport* report) const override;

 private:
  void begin();
  void choose_path(AccessPath path);
  void try_path();
  void end_trial();
  void write_cell();
  void write_input(shm::CellLine& line);
  bool take_own();
  void finish();
  void combine();
  bool is_inline() const { return transfer_.largest_input_bytes <= shm::kInlineBytes; }
  bool is_prepared() const { return transfer_.combines && reduction_->prepares(); }
  /// Where what `member` gives lies, or is to lie.
  std::byte* payload_of(int member) const;
  /// Where what this rank takes of a source lies.
  const std::byte* part_of(int source) const;

  SharedCells& cells_;
  AccessTrials& trials_;
  PayloadRotation rotation_;
  Transfer transfer_;
  CallRecord record_;
  const compute::Reduction* reduction_ = nullptr;
  std::size_t element_bytes_ = 1;
  AccessTrials::Class class_ = AccessTrials::kNone;
  bool streams_ = false;     // the payload goes to the cell with non-temporal stores
  bool may_rotate_ = false;  // the payload may lie in the rotation
  bool rotates_ = false;     // and does, if this rank gives it
  bool is_trial_ = false;
  TimePoint began_;         // a trial
  bool tried_own_ = false;  // take_own()
  bool has_result_ = false;
  bool done_ = true;
  bool waits_for_all_ = false;
  int next_ = 0;  // sources before this one have arrived
  std::vector<const void*> operands_;
};

}  // namespace unisono::native
