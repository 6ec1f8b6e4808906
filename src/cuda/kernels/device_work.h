// What one kernel launch does, as plain values: the kernel's only parameter, passed by value, and
// the same for the host twins of the kernels that tests run. Ranks that share device memory split a
// collective into pieces; a piece says which elements of which buffers become which.
//
// Compiles as host and device code. No state.
#pragma once

#include <cstdint>
#include <type_traits>

namespace unisono::cuda {

inline constexpr int kWorkRanksMax = 16;      ///< inputs, and outputs, of one piece
inline constexpr int kWorkPointersMax = 160;  ///< of all pieces of one launch
inline constexpr int kWorkPiecesMax = 16;

enum class PieceMode : std::uint8_t {
  kSpread,     ///< every output = the operator over all inputs (a copy where there is one input)
  kPrefix,     ///< output j = the operator over inputs 0..j
  kExclusive,  ///< output j = the operator over inputs 0..j-1; output 0 is not written
  kPermute,    ///< output j = input j
};

/// `count` elements of each of its buffers. For every element all inputs are read before the first
/// output is written, so an output may be the same place as any input, and only then may overlap.
/// Null outputs are not written.
struct WorkPiece {
  std::uint64_t count = 0;
  std::uint16_t first_input = 0;  ///< index into DeviceWork::pointers
  std::uint16_t inputs = 0;       ///< 1 to kWorkRanksMax
  std::uint16_t first_output = 0;
  std::uint16_t outputs = 0;  ///< kPrefix, kExclusive and kPermute: as many as inputs
  PieceMode mode = PieceMode::kSpread;
};

/// What is done to the combination besides the kernel's own operator.
enum class WorkFinish : std::uint8_t { kNothing, kAverage };

struct DeviceWork {
  void* pointers[kWorkPointersMax] = {};
  WorkPiece pieces[kWorkPiecesMax] = {};
  /// kPremultipliedSum: input i of a piece is multiplied by scalars[i] first.
  double scalars[kWorkRanksMax] = {};
  /// The scalars as the kernels read them, in the arithmetic of the element type: Kernels::launch()
  /// fills them.
  std::uint64_t factors[kWorkRanksMax] = {};
  /// Host memory that the device can read; the launch moves nothing when it is not zero once the
  /// kernel starts: the call has failed, and peers' buffers are their owners' again. Null: none.
  const std::uint32_t* abort = nullptr;
  /// Where the blocks of a launch share one read of the abort word (abort_answer.h), what tells it
  /// from all others: its number or, of one that is captured, which counter its replays have, from
  /// 1 on, and how many blocks it has. All 0: each block reads the word. Kernels::launch() fills
  /// them.
  std::uint64_t launch = 0;
  std::uint32_t counter = 0;
  std::uint32_t blocks = 0;
  std::uint32_t piece_count = 0;
  std::int32_t ranks = 1;  ///< the divisor of kAverage
  std::uint8_t op = 0;     ///< OpKind: operators that share a kernel are told apart by it
  std::uint8_t type = 0;   ///< DataType, likewise
  bool premultiplied = false;
  WorkFinish finish = WorkFinish::kNothing;
};

static_assert(std::is_trivially_copyable_v<DeviceWork> && sizeof(DeviceWork) <= 4000,
              "kernel parameters are limited to 4 KiB");

}  // namespace unisono::cuda
