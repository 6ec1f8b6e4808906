// How the blocks of one launch share one read of the abort word, which lies in host memory behind
// PCIe: the block that comes first reads it and writes the answer into a line of device memory.
// Lines are few and belong to nobody: whoever finds one in use by another launch, or waits in it
// for too long, reads the word itself. So nothing here can hang, and the answer is always one that
// the word gave after the launch had begun.
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

/// What a block asks before it touches anything. `lines` are the device's.
UNISONO_HOST_DEVICE bool is_called_off(const DeviceWork& work, AnswerLine* lines) {
  if (work.abort == nullptr) return false;
  const auto read_word = [&] {
    return *static_cast<const volatile std::uint32_t*>(work.abort) != 0;
  };
  return work.launch == 0 ? read_word() : ask_once(lines, work.launch, read_word);
}

}  // namespace unisono::cuda
