// The kernels of one device: embedded in the library, loaded once per context, found by element
// type and operator.
//
// Thread rule: immutable after load(); launch() from any thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "cuda/driver/cuda_api.h"
#include "cuda/kernels/device_work.h"
#include "unisono/types.h"

namespace unisono::cuda {

/// Which kernel, and with what arithmetic. Reductions follow the canonical tree over the inputs of
/// a piece; with Order::kAny the nodes of fp16, bf16 and fp8 stay in fp32 and are rounded once.
struct WorkKind {
  DataType type = DataType::kUint8;
  bool reduces = false;  ///< false: pieces only move bytes, `op` and `order` have no meaning
  OpKind op = OpKind::kSum;
  Order order = Order::kAny;
};

/// A launch that is captured runs once for each replay of its graph: kInGraph.
enum class Runs : bool { kOnce, kInGraph };

class Kernels {
 public:
  /// Loads the embedded image and every function of it (nothing is loaded lazily at a first
  /// launch). `context` need not be current. kUnsupported: no code for this device's architecture.
  static Result<std::unique_ptr<Kernels>> load(std::shared_ptr<const CudaApi> api, CUdevice device,
                                               CUcontext context);
  ~Kernels();

  /// kUnsupported for user operators, kInvalidArgument for combinations without meaning.
  static Status supports(const WorkKind& kind);

  /// Enqueues one launch on `stream`, whose context is current. `work` is completed from `kind`
  /// first (see complete_work). kInvalidArgument: pieces that no kernel may touch, or that move and
  /// have an operator, or the other way round. Work of no pieces is done at once.
  Status launch(CUstream stream, DeviceWork work, const WorkKind& kind, Runs runs) const;

 private:
  Kernels();
  struct State;
  std::unique_ptr<State> state_;
};

/// Fills the fields of the work that `kind` decides, and counts pieces in what the kernel counts
/// (bytes of moves, parts of complex numbers that are added). Used by launch(); pure, so tests call
/// it too.
void complete_work(DeviceWork& work, const WorkKind& kind);

/// Blocks and threads of a launch of completed work, whose kernel counts `element_bytes` each, on a
/// device with `multiprocessors`: the grid is (blocks, pieces). Used by launch(); pure, so tests
/// call it too.
struct Geometry {
  unsigned blocks = 1;
  unsigned pieces = 1;
  unsigned threads = 1;
};
Geometry geometry_of(const DeviceWork& work, std::size_t element_bytes, int multiprocessors);
/// The same of a kernel by units: a thread for each unit and each single element.
Geometry geometry_by_units(const DeviceWork& work, std::size_t element_bytes);

/// How many inputs each piece has where all lie alike, so that a kernel by units can do them; 0: it
/// cannot. As geometry_of().
int inputs_by_units(const DeviceWork& work, std::size_t element_bytes);

}  // namespace unisono::cuda
