// One row: the data are written, the call is checked, timed, and checked again.
#include "tools/perf/measure.h"

#include <algorithm>
#include <cstring>

#include "tools/perf/device_row.h"
#include "tools/perf/pattern.h"
#include "tools/perf/slots.h"

namespace unisono::perf {
namespace {

/// Where nothing is reduced the values need not add up to anything, and may be larger.
ReduceOp pattern_op(const Problem& problem) {
  return problem.measured->facts.reduces ? problem.op : unisono::ops::max;
}

/// What Measurement measures: the call on slot after slot.
class RowWork {
 public:
  RowWork(Communicator& communicator, Arena& arena, const Slots& slots, const Problem& problem)
      : communicator_(communicator),
        arena_(arena),
        slots_(slots),
        problem_(problem),
        in_elements_(in_elements(problem)),
        input_(input_of(problem, problem.rank)) {
    const Placement first = place(problem, slots.in(0), slots.out(0));
    in_offset_ = static_cast<std::size_t>(first.in - slots.in(0));
    out_offset_ = static_cast<std::size_t>(first.out - slots.in(0));
    select(0);
  }

  void select(int k) { slot_ = slots_.in(k); }
  void rewrite() { input_.write(in(), 0, in_elements_); }
  void run() { problem_.measured->run(communicator_, problem_, in(), out()); }
  int slots() const { return slots_.count; }
  void sweep() { arena_.sweep(); }

  /// Runs once and counts the elements of this rank's output that are not as they must be.
  std::uint64_t check(RankSync& sync) {
    select(0);
    std::memset(slot_, 0xff, slots_.in_stride + slots_.out_stride);
    rewrite();
    sync.barrier();
    run();
    std::uint64_t wrong = 0;
    for (const Expected& part : problem_.measured->expect(problem_)) {
      wrong += result_of(problem_, part)
                   .count_wrong(out() + part.offset * size_of(problem_.type), part.first_index,
                                part.count);
    }
    return wrong;
  }

 private:
  std::byte* in() { return slot_ + in_offset_; }
  std::byte* out() { return slot_ + out_offset_; }

  Communicator& communicator_;
  Arena& arena_;
  const Slots& slots_;
  const Problem& problem_;
  std::size_t in_elements_;
  Pattern input_;
  std::size_t in_offset_ = 0, out_offset_ = 0;
  std::byte* slot_ = nullptr;
};

Room bytes_of(const Problem& problem) {
  const Room elements = room_of(problem);
  return {elements.in * size_of(problem.type), elements.out * size_of(problem.type)};
}

/// Checks, measures, and checks again.
template <typename Work>
void measure_work(RankSync& sync, const Options& options, Work& work, Row& row) {
  std::uint64_t wrong = options.check ? work.check(sync) : 0;
  const Policy policy{.budget_us = options.budget_ms * 1e3,
                      .iterations = options.iterations,
                      .warm_up = options.warm_up};
  row.timing = measure(sync, policy, work);
  if (!options.check) return;
  wrong += work.check(sync);
  row.wrong = sync.total(wrong);
}

}  // namespace

Pattern input_of(const Problem& problem, Rank rank) {
  return Pattern::input(problem.type, pattern_op(problem), problem.ranks, rank);
}

Pattern result_of(const Problem& problem, const Expected& part) {
  if (!problem.measured->facts.reduces) return input_of(problem, part.first);
  return Pattern::reduced(problem.type, problem.op, problem.ranks, part.first, part.last);
}

double Row::algbw_gbps() const {
  return timing.median_us > 0 ? static_cast<double>(bytes) / (timing.median_us * 1e3) : 0;
}

double Row::busbw_gbps() const {
  return algbw_gbps() * problem.measured->bus_factor(problem.ranks);
}

std::size_t arena_bytes_for(const Options& options, int ranks, std::size_t cache_bytes) {
  Problem largest{.measured = options.measured, .ranks = ranks};
  largest.type = DataType::kUint8;
  largest.count = options.sizes.back();
  if (options.measured->facts.has_blocks()) largest.count /= static_cast<std::size_t>(ranks);
  const bool is_cold =
      std::find(options.modes.begin(), options.modes.end(), Mode::kCold) != options.modes.end();
  const Room bytes = bytes_of(largest);
  return arena_bytes(bytes.in, bytes.out, is_cold, cache_bytes);
}

void measure_row(Communicator& communicator, RankSync& sync, Arena& arena, DeviceBuffers* device,
                 const Options& options, std::size_t cache_bytes, Row& row) {
  const Room bytes = bytes_of(row.problem);
  const Slots slots =
      make_slots(arena.data(), bytes.in, bytes.out, row.mode == Mode::kCold, cache_bytes);
  if (device == nullptr) {
    RowWork work(communicator, arena, slots, row.problem);
    measure_work(sync, options, work, row);
  } else {
    DeviceRow work(communicator, *device, arena, slots, row.problem);
    measure_work(sync, options, work, row);
  }
  row.timing.divide(row.problem.measured->time_divisor);
}

}  // namespace unisono::perf
