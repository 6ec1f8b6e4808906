// The kernels' bodies compiled for the host: to be run directly, and as what the fake driver runs
// when a kernel is launched. For tests only.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/piece_buffers.h"
#include "tests/cuda/fake_driver/fake_cuda.h"

namespace unisono::cuda {

struct KernelBody {
  std::string name;
  std::size_t counted_bytes;  ///< of what the pieces' `count` counts
  void (*run)(const DeviceWork& work, const WorkPiece& piece, ThreadOfPiece me);
};

/// Every kernel of the library once.
const std::vector<KernelBody>& kernel_bodies();
/// Null when there is none.
const KernelBody* find_body(const std::string& name);

/// The kernel that launch() takes, or the one for pieces of any form.
enum class Form : std::uint8_t { kAsLaunched, kAny };

/// What Kernels::launch() would do, on host memory: each piece shared out among `threads`, one
/// after the other.
void run_on_host(DeviceWork work, const WorkKind& kind, std::uint64_t threads,
                 Form form = Form::kAsLaunched);

/// Gives the fake driver a twin of every kernel. Once for each process that launches any.
void register_kernel_twins(const fake_cuda::FakeCudaFunctions& fake);

}  // namespace unisono::cuda
