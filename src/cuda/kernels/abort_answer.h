// How the blocks of one launch share one read of the abort word, which lies in host memory behind
// PCIe: the block that comes first reads it and writes the answer into a line of device memory.
// Lines are few and belong to nobody: whoever finds one in use by another launch, or waits in it
// for too long, reads the word itself. So nothing here can hang, and the answer is always one that
// the word gave after the launch had begun.
//
// Every launch needs a number of its own. Replays of a captured one are told apart by their blocks:
// each adds one to a counter that only this launch has. A driver runs replays of an executable
// graph one behind the other, so blocks 0 to n - 1 are the first replay's, if a launch has n, the
// next n the second's.
//
// Host and device code, any thread.
#pragma once

#include <cstdint>

#include "cuda/kernels/device_work.h"
#include "cuda/kernels/host_device.h"

namespace unisono::cuda {

inline constexpr unsigned kAnswerLines = 64;  ///< launches under way that need not share a line
inline constexpr int kAnswerPolls = 4096;     ///< far longer than a read over PCIe

struct alignas(64) AnswerLine {
  unsigned long long value = 0;
};

/// Captured launches of a process whose replays have numbers. In the replays of those behind them
/// every block reads the word.
inline constexpr unsigned kBlockCounters = 4096;
using BlockCounter = unsigned long long;

/// Those of plain launches are smaller. 12 bits for the counter, which counts from 1, and 40 for
/// the replay: when a number comes again, the line has long had others.
UNISONO_HOST_DEVICE constexpr std::uint64_t number_of_replay(std::uint32_t counter,
                                                             std::uint64_t replay) {
  return std::uint64_t{1} << 60 | std::uint64_t{counter - 1} << 40 |
         (replay & ((std::uint64_t{1} << 40) - 1));
}

/// How many blocks came before this one, in all replays.
UNISONO_HOST_DEVICE std::uint64_t count_block(BlockCounter* counter) {
#ifdef __CUDA_ARCH__
  return atomicAdd(counter, 1ULL);
#else
  return __atomic_fetch_add(counter, 1ULL, __ATOMIC_RELAXED);
#endif
}

/// What stands in a line: the number of a launch and how far its answer is.
enum class Answer : std::uint64_t { kAsked, kGoOn, kCalledOff };
UNISONO_HOST_DEVICE constexpr std::uint64_t answer_of(std::uint64_t launch, Answer answer) {
  return launch << 2 | static_cast<std::uint64_t>(answer);
}

/// What the line held before.
UNISONO_HOST_DEVICE std::uint64_t exchange_answer(AnswerLine* line, std::uint64_t expected,
                                                  std::uint64_t wanted) {
#ifdef __CUDA_ARCH__
  return atomicCAS(&line->value, static_cast<unsigned long long>(expected),
                   static_cast<unsigned long long>(wanted));
#else
  unsigned long long seen = expected;
  __atomic_compare_exchange_n(&line->value, &seen, wanted, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return seen;
#endif
}

UNISONO_HOST_DEVICE std::uint64_t answer_in(const AnswerLine* line) {
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile unsigned long long*>(&line->value);
#else
  return __atomic_load_n(&line->value, __ATOMIC_RELAXED);
#endif
}

/// Whether the word in host memory, which the host may be writing, calls the launch off.
UNISONO_HOST_DEVICE bool is_called_off_by(const std::uint32_t* word) {
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile std::uint32_t*>(word) != 0;
#else
  return __atomic_load_n(word, __ATOMIC_RELAXED) != 0;
#endif
}

/// Whether the launch is called off; `read_word()` says so too, and costs a trip to the host.
template <class ReadWord>
UNISONO_HOST_DEVICE bool ask_once(AnswerLine* lines, std::uint64_t launch,
                                  const ReadWord& read_word) {
  AnswerLine* const line = &lines[launch % kAnswerLines];
  const std::uint64_t asked = answer_of(launch, Answer::kAsked);
  std::uint64_t seen = answer_in(line);
  if (seen >> 2 != launch) {
    const std::uint64_t before = seen;
    seen = exchange_answer(line, before, asked);
    if (seen == before) {
      const bool called_off = read_word();
      exchange_answer(line, asked,
                      answer_of(launch, called_off ? Answer::kCalledOff : Answer::kGoOn));
      return called_off;
    }
  }
  for (int poll = 0; poll < kAnswerPolls && seen == asked; ++poll) seen = answer_in(line);
  if (seen == answer_of(launch, Answer::kGoOn)) return false;
  if (seen == answer_of(launch, Answer::kCalledOff)) return true;
  return read_word();
}

/// The same of a replay; `counters` are those of all captured launches.
template <class ReadWord>
UNISONO_HOST_DEVICE bool ask_once_in_replay(AnswerLine* lines, BlockCounter* counters,
                                            std::uint32_t counter, std::uint32_t blocks,
                                            const ReadWord& read_word) {
  const std::uint64_t replay = count_block(&counters[counter - 1]) / blocks;
  return ask_once(lines, number_of_replay(counter, replay), read_word);
}

/// What a block asks before it touches anything. `lines` and `counters` are the device's.
UNISONO_HOST_DEVICE bool is_called_off(const DeviceWork& work, AnswerLine* lines,
                                       BlockCounter* counters) {
  if (work.abort == nullptr) return false;
  const auto read_word = [&] { return is_called_off_by(work.abort); };
  if (work.counter != 0) {
    return ask_once_in_replay(lines, counters, work.counter, work.blocks, read_word);
  }
  return work.launch == 0 ? read_word() : ask_once(lines, work.launch, read_word);
}

}  // namespace unisono::cuda
