// Bare exchanges of two processes whose buffers are their own: through slots in shared memory, two
// copies a byte, or by the kernel, one. Slots are each side's own, or both write in turn where they
// have read. What remains of a call when everything but the movement of the bytes, and one line to
// say so, is gone.
#include <sys/uio.h>

#include "bench/peers/limits_stage.h"

namespace limits {
namespace {

/// One side's half of the shared memory.
struct SharedSlots {
  static constexpr std::size_t kSlotBytes = 128 << 10, kCount = 4;

  Line written, taken;  ///< pieces since the beginning
  pid_t process = 0;
  const std::byte* input = nullptr;
  alignas(4096) float slots[kCount][kSlotBytes / sizeof(float)];
};

enum class Way { kCopy, kTurns, kStream, kSingleCopy };

/// Each gets the other's input, or the sum of both.
class SlotExchange : public RotatingFloats {
 public:
  SlotExchange(const Slots& buffers, int rank, std::size_t bytes, SharedSlots* sides, Way way,
               bool adds)
      : RotatingFloats(buffers, rank, bytes),
        rank_(rank),
        sides_(sides),
        own_(sides[rank]),
        other_(sides[1 - rank]),
        way_(way),
        adds_(adds),
        count_(own_.written.word.load()) {
    own_.process = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // where only parents may read their children
  }
  void run() { way_ == Way::kSingleCopy ? copy_once() : copy_twice(); }
  std::size_t count_wrong() const { return RotatingFloats::count_wrong(adds_ ? -1 : 1 - rank_); }

 private:
  static constexpr std::size_t kPiece = SharedSlots::kSlotBytes / sizeof(float);

  /// A piece of the other's is taken while the other writes the next.
  void copy_twice() {
    const std::size_t count = bytes_ / sizeof(float);
    std::size_t ahead = 0;
    for (std::size_t at = 0; at < count; at += kPiece) {
      for (; ahead < count && ahead < at + 2 * kPiece; ahead += kPiece) write(ahead, count);
      take(at, std::min(kPiece, count - at));
    }
  }

  void write(std::size_t at, std::size_t count) {
    await(other_.taken, count_ - SharedSlots::kCount + 1);
    float* const slot = slot_of(rank_, count_);
    const std::size_t elements = std::min(kPiece, count - at);
    if (way_ == Way::kStream && elements % 4 == 0) {
      copy_streaming(slot, in() + at, elements);
    } else {
      std::memcpy(slot, in() + at, elements * sizeof(float));
    }
    own_.written.word.store(++count_, std::memory_order_release);
  }

  void take(std::size_t at, std::size_t elements) {
    await(other_.written, taken() + 1);
    combine(at, slot_of(1 - rank_, taken()), elements);
    own_.taken.word.store(taken() + 1, std::memory_order_release);
  }
  float* slot_of(int rank, std::uint32_t piece) const {
    const auto turn = static_cast<int>(piece / SharedSlots::kCount % 2);
    return sides_[way_ == Way::kTurns ? rank ^ turn : rank].slots[piece % SharedSlots::kCount];
  }
  std::uint32_t taken() const { return own_.taken.word.load(std::memory_order_relaxed); }

  void combine(std::size_t at, const float* from, std::size_t elements) {
    if (adds_) {
      add(out() + at, in() + at, from, elements);
    } else {
      std::memcpy(out() + at, from, elements * sizeof(float));
    }
  }

  /// Nobody rewrites an input before it was read.
  void copy_once() {
    own_.input = slots_.in(slot_);
    own_.written.word.store(++count_, std::memory_order_release);
    await(other_.written, count_);
    iovec to{out(), bytes_};
    iovec from{const_cast<std::byte*>(other_.input), bytes_};
    if (process_vm_readv(other_.process, &to, 1, &from, 1, 0) != static_cast<ssize_t>(bytes_)) {
      std::perror("limits: single copy");
      std::exit(2);
    }
    if (adds_) add(out(), in(), out(), bytes_ / sizeof(float));
    own_.taken.word.store(count_, std::memory_order_release);
    await(other_.taken, count_);
  }

  int rank_;
  SharedSlots* sides_;
  SharedSlots& own_;
  SharedSlots& other_;
  Way way_;
  bool adds_;
  std::uint32_t count_;
};

}  // namespace

void measure_slots() {
  Stage stage;
  if (stage.page == nullptr) return;
  auto* const sides = reinterpret_cast<SharedSlots*>(map(2 * sizeof(SharedSlots), MAP_SHARED));
  for (const bool adds : {false, true}) {
    for (const Way way : {Way::kCopy, Way::kTurns, Way::kStream, Way::kSingleCopy}) {
      const char* const name = way == Way::kCopy     ? "slots"
                               : way == Way::kTurns  ? "slots, in turns"
                               : way == Way::kStream ? "slots, streamed"
                                                     : "single copy";
      for (std::size_t bytes = 4; bytes <= kLargest; bytes *= 4) {
        if (way != Way::kCopy && bytes < 256) continue;
        for (int side : {0, 1}) sides[side].written.word = sides[side].taken.word = 0;
        const auto make = [&](int rank, bool cold) {
          return SlotExchange(stage.slots(rank, bytes, cold), rank, bytes, sides, way, adds);
        };
        measure_stage(stage, adds ? "slot_all_reduce" : "slot_exchange", name, bytes, make);
      }
    }
  }
}

}  // namespace limits
