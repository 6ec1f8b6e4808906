// What all large calls have in common: publish an offer in the cell, learn the others' offers, move
// chunks, and leave when nobody reads this rank's memory any more. The two kinds of moving are
// ExchangeCall and CombineCall.
//
// Nothing waits for anything it need not: advance() does whatever of filling, combining and taking
// is possible, in that rank's own order, until nothing is or kTurnBytes have been read.
//
// Thread rule: one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "native/access_trials.h"
#include "native/levels.h"
#include "native/native.h"
#include "native/progress.h"
#include "native/shared_cells.h"
#include "native/transfer.h"
#include "transports/shm/cold_memory.h"

namespace unisono::native {

/// Outputs of a call that together exceed this go to memory with non-temporal stores: they would
/// push what the ranks still read out of the caches. Not what this rank has read in the call, in
/// place: it is in the caches, and a non-temporal store would have it written to memory first.
inline constexpr std::size_t kStreamingBytes = std::size_t{8} << 20;

/// What a rank reads before it looks at deadlines and failures.
inline constexpr std::size_t kTurnBytes = std::size_t{8} << 20;

inline constexpr std::size_t kScratchBytes = std::size_t{256} << 10;

/// What the cell's line says in a large call. kNone is the owner's window, kInline what lies behind
/// the line.
struct Offer {
  shm::MemoryHandle input;
  shm::MemoryHandle result;
};
static_assert(sizeof(Offer) == shm::kInlineBytes);

/// What the calls of a group share.
struct CallContext {
  shm::SegmentGroup& group;
  SharedCells& cells;
  Progress& progress;
  AccessTrials& trials;
  const Levels levels;
  std::vector<std::byte> scratch;  ///< kScratchBytes from the first single copy on
};

class LargeCall : public NativeCall {
 public:
  explicit LargeCall(CallContext& context);

  void start(const Arguments& arguments, const Transfer& transfer);

  bool advance() final;
  void fail(const Status& cause) final;
  void waiting_for(std::vector<Rank>* ranks) const final;

 protected:
  // Each returns true when it moved something on. An error goes to end().
  /// Decides chunks and paths, and fills in the offer.
  virtual Status plan(Offer* offer) = 0;
  /// Writes what must be readable as soon as the cell is. False while it cannot write yet.
  virtual bool prepare_cell() = 0;
  /// Takes note of what `member` offers.
  virtual Status accept(int member, const Offer& offer) = 0;
  /// Moves one chunk on, and notes what it has read. False where nothing can move.
  virtual bool step() = 0;
  /// This rank has read all it needs from the others; they are told at once.
  virtual bool took_all() const = 0;
  virtual bool gave_all() const = 0;
  /// True when no reader of this rank's own buffers is left.
  virtual bool released() = 0;
  // For whom this rank waits when nothing moves. Only the wait that the others follow from counts,
  // since naming a member that waits itself would hide the one that is missing.
  /// A slot of this rank's window is not free because of `member`.
  virtual bool waits_for_slot(int member) const = 0;
  /// All sources are accepted, and something is missing of `member`.
  virtual bool waits_for(int member) const = 0;

  /// Held around each step that may read other threads' private memory. Once the group's failure is
  /// raised, that memory may be its owner's again, so no further step is allowed; an owner that has
  /// raised waits for the steps that were allowed before (Group::await_readers).
  class Reading {
   public:
    explicit Reading(const LargeCall& call);
    ~Reading();
    Reading(const Reading&) = delete;
    bool allowed() const { return allowed_; }

   private:
    std::atomic<std::uint64_t>* flag_ = nullptr;  // null: there is no such memory
    bool allowed_ = true;
  };

  /// Lets go of the views of others' memory, which may be unmapped then.
  virtual void let_go();
  void end(const Status& cause);
  bool ended() const { return stage_ == Stage::kDone; }
  bool accepted_all() const { return accepted_ >= transfer_.sources.last; }
  bool is_self(int member) const { return member == context_.cells.self(); }
  int size() const { return context_.cells.size(); }
  int self() const { return context_.cells.self(); }
  /// Where a member's chunk lies in shared memory. Two members that both give and take write in
  /// turn into each other's windows, for the reason that shared_cells.h gives. When a call begins,
  /// this rank has read what it will overwrite, and the other has finished
  /// (Progress::slot_is_free).
  std::byte* slot_of(int member, std::uint64_t chunk) const {
    const int owner = takes_turns_ && context_.progress.is_odd_call() ? 1 - member : member;
    return context_.group.window(owner) + chunk % shm::kWindowSlots * shm::kWindowSlotBytes;
  }
  /// Bytes of the scratch memory for each member, whole lines.
  std::size_t scratch_share() const;
  /// Where a single copy of that member's data goes; null while there was none.
  std::byte* scratch_of(int member);
  void note_read(std::size_t bytes) { turn_bytes_ += bytes; }
  /// Where `bytes` of a member's data can be read now: at `in_window`, or `offset` into its buffer
  /// (`scratch` receives a single copy).
  const std::byte* look(const shm::MemoryView& view, int member, const std::byte* in_window,
                        std::size_t offset, std::size_t bytes, std::byte* scratch);
  /// How members may read this buffer of the rank's by the call's path.
  shm::MemoryHandle offered(const void* buffer, std::size_t bytes);
  /// How a member reads what it was offered. Errors name it.
  Result<shm::MemoryView> open(int member, const shm::MemoryHandle& handle);
  /// Writes into this rank's window or cell, so that it may be told at once.
  void write_shared(std::byte* to, const std::byte* from, std::size_t bytes) const {
    SharedCells::write(to, from, bytes, streams());
  }
  /// What others will read is written with non-temporal stores.
  bool streams() const { return access_ == AccessPath::kStreamed; }
  /// Ordinary stores to that part of the output would fetch it from memory first. No trial looks:
  /// its calls have to be alike.
  bool is_cold(Block part) {
    return !is_trial_ && cold_memory_.has({transfer_.output + part.offset, part.bytes});
  }
  /// Results are stored by the call's path, also those that are read in place.
  void stores_results() { path_matters_ = path_matters_ || access_ != AccessPath::kWindow; }
  std::size_t element_bytes() const { return element_bytes_; }

  CallContext& context_;
  Transfer transfer_;
  const compute::Reduction* reduction_ = nullptr;
  std::vector<shm::MemoryView> inputs_;  // by member

 private:
  shm::ColdMemory cold_memory_;
  const bool has_threads_;    // beside this one, of this process
  bool takes_turns_ = false;  // with its window
  enum class Stage : std::uint8_t { kEnter, kMove, kLeave, kDone };
  void choose_access(const Arguments& arguments);
  void end_trial();
  bool enter();
  bool accept_offers();
  bool move();
  bool what_was_read_counts() const;
  bool is_waited_for(int member) const;

  Stage stage_ = Stage::kDone;
  AccessPath access_ = AccessPath::kMapped;
  bool path_matters_ = false;  // to this rank's time
  bool is_trial_ = false;
  bool compares_window_ = false;  // with reading in place
  TimePoint began_;               // a trial
  Offer offer_;
  CallRecord record_;
  std::size_t element_bytes_ = 1;
  std::size_t turn_bytes_ = 0;  // read since the last turn
  bool told_finished_ = false;
  bool reads_in_place_ = false;  // some member's own buffer
  int accepted_ = 0;             // sources before this one have been accepted
};

}  // namespace unisono::native
