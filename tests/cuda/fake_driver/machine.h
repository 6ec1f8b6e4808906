// The fake machine: its devices' primary contexts, the contexts current on each thread, and the one
// lock. Everything of the fake is under Machine::mutex unless it says otherwise; nothing is ever
// destroyed, because streams' threads may outlive main().
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/fake_driver/settings.h"

struct CUstream_st;

struct CUctx_st {
  int ordinal = 0;   ///< among the visible devices
  int physical = 0;  ///< of the machine; the same in every process
  bool alive = true;
  CUresult broken = CUDA_SUCCESS;  ///< sticky
  std::set<int> peers;             ///< physical devices whose memory it may touch
  CUstream_st* legacy = nullptr;   ///< its default stream
};

namespace fake_cuda {

struct Machine {
  std::mutex mutex;
  /// Notified whenever an operation of any stream ended or a context broke.
  std::condition_variable progress;
  bool initialised = false;
  struct Primary {
    CUctx_st* context = nullptr;
    int retained = 0;
  };
  std::array<Primary, kDevicesMax> primaries;  ///< by visible ordinal
  std::vector<CUctx_st*> contexts;             ///< all that ever were
};
Machine& machine();
using Lock = std::unique_lock<std::mutex>;

/// A line on stderr that begins with the library's name; counted.
void complain(const std::string& text);
std::uint64_t complaints();

/// The thread's context, usable: CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_CONTEXT, or the
/// error that it broke with. Takes no lock; the lock must be held.
CUresult current_context(CUctx_st** context);
/// As hardware after a fault: every later call in this context gives `error`.
void break_context(CUctx_st& context, CUresult error, const std::string& text);
/// What a call gives once the context is gone or broken.
CUresult state_of(const CUctx_st& context);
CUresult check_initialised();
CUresult check_device(CUdevice device);

/// Ends everything of a context that was released; defined where the things are.
void end_streams_of(CUctx_st& context, Lock& lock);
void end_memory_of(CUctx_st& context);

}  // namespace fake_cuda
