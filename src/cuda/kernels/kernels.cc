// Loading the kernels of a device and launching them: see kernels.h.
#include "cuda/kernels/kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver/survey.h"
#include "cuda/kernels/abort_answer.h"
#include "cuda/kernels/arithmetic.h"
#include "cuda/kernels/kernel_names.h"
#include "cuda/kernels/kernel_shape.h"
#include "cuda/kernels/unit_loop.h"

namespace unisono::cuda {
namespace {

bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}

/// What a kernel counts. Moves count bytes, sums of complex numbers their parts.
struct Counted {
  std::size_t per_element;
  std::size_t bytes;
};
Counted counted(const WorkKind& kind) {
  const std::size_t bytes = size_of(kind.type);
  if (!kind.reduces) return {bytes, 1};
  if (is_complex(kind.type) && kind.op != OpKind::kProduct) return {2, bytes / 2};
  return {1, bytes};
}

Status refused(std::size_t piece, const std::string& why) {
  return Status(ErrorCode::kInvalidArgument,
                "piece " + std::to_string(piece) + " of a device launch " + why);
}

bool in_table(unsigned first, unsigned count) {
  return first + count <= static_cast<unsigned>(kWorkPointersMax);
}

Status check_piece(const DeviceWork& work, std::size_t index, bool reduces) {
  const WorkPiece& piece = work.pieces[index];
  if (piece.inputs < 1 || piece.inputs > kWorkRanksMax || piece.outputs > kWorkRanksMax) {
    return refused(index, "has " + std::to_string(piece.inputs) + " inputs and " +
                              std::to_string(piece.outputs) + " outputs; the limit is " +
                              std::to_string(kWorkRanksMax) + ", and at least one input");
  }
  if (!in_table(piece.first_input, piece.inputs) || !in_table(piece.first_output, piece.outputs))
    return refused(index, "names pointers behind the " + std::to_string(kWorkPointersMax));
  const bool moves =
      piece.mode == PieceMode::kPermute || (piece.mode == PieceMode::kSpread && piece.inputs == 1);
  const bool scans = piece.mode == PieceMode::kPrefix || piece.mode == PieceMode::kExclusive;
  if (!reduces && !moves) return refused(index, "needs an operator");
  if (reduces && piece.mode == PieceMode::kPermute)
    return refused(index, "moves, but was given an operator");
  if ((scans || piece.mode == PieceMode::kPermute) && piece.outputs != piece.inputs)
    return refused(index, "needs as many outputs as inputs");
  // Sixteen bytes are the largest element.
  if (piece.count > std::numeric_limits<std::uint64_t>::max() / 16)
    return refused(index, "has " + std::to_string(piece.count) + " elements, more than any memory");
  for (int i = 0; piece.count != 0 && i < piece.inputs; ++i) {
    if (work.pointers[piece.first_input + i] == nullptr)
      return refused(index, "has no buffer for input " + std::to_string(i));
  }
  return Status();
}

Status check_work(const DeviceWork& work, const WorkKind& kind) {
  if (work.piece_count > static_cast<unsigned>(kWorkPiecesMax)) {
    return Status(ErrorCode::kInvalidArgument,
                  "a device launch of " + std::to_string(work.piece_count) +
                      " pieces; the limit is " + std::to_string(kWorkPiecesMax));
  }
  if (kind.reduces && kind.op == OpKind::kAverage && work.ranks < 1) {
    return Status(ErrorCode::kInvalidArgument,
                  "an average over " + std::to_string(work.ranks) + " ranks; it takes at least 1");
  }
  for (std::size_t i = 0; i < work.piece_count; ++i)
    UNISONO_TRY(check_piece(work, i, kind.reduces));
  return Status();
}

std::uint64_t factor_for(DataType type, double scalar) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kComplex128:
      return Sum<double>::factor_of(scalar);
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat8E4m3:
    case DataType::kFloat8E5m2:
    case DataType::kFloat32:
    case DataType::kComplex64:
      return Sum<float>::factor_of(scalar);
    default:
      return Sum<std::uint64_t>::factor_of(scalar);
  }
}

/// How many inputs the kernels have that reduce by units.
constexpr int kUnitInputs[] = {2, 4, 8};

/// What a driver takes in the first dimension.
constexpr std::uint64_t kGridBlocksMax = 0x7fffffff;

/// So few reads over PCIe take no longer than one and what sharing its answer costs. Not measured.
constexpr unsigned kBlocksThatAskAlone = 16;

/// Never 0, and never the same twice in this process.
std::uint64_t next_launch() {
  static std::atomic<std::uint64_t> launches = 0;
  return ++launches;
}

/// 0: all counters of this process belong to launches that were captured before.
std::uint32_t next_counter() {
  static std::atomic<std::uint32_t> taken = 0;
  std::uint32_t before = taken.load();
  while (before < kBlockCounters && !taken.compare_exchange_weak(before, before + 1)) {
  }
  return before < kBlockCounters ? before + 1 : 0;
}

/// How the blocks of a launch share one read of the abort word.
void share_answer(DeviceWork& work, unsigned blocks, Runs runs) {
  work.launch = work.counter = work.blocks = 0;
  if (work.abort == nullptr || blocks <= kBlocksThatAskAlone) return;
  if (runs == Runs::kOnce) {
    work.launch = next_launch();
  } else {
    work.counter = next_counter();
    work.blocks = blocks;
  }
}

/// No code in the image for this device, and no PTX that its driver can compile. One that is older
/// than the image's toolkit may not know the image for one.
bool lacks_code(CUresult result) {
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
         result == CUDA_ERROR_JIT_COMPILER_NOT_FOUND || result == CUDA_ERROR_INVALID_IMAGE ||
         result == CUDA_ERROR_INVALID_PTX;
}

}  // namespace

void complete_work(DeviceWork& work, const WorkKind& kind) {
  work.op = static_cast<std::uint8_t>(kind.op);
  work.type = static_cast<std::uint8_t>(kind.type);
  work.finish =
      kind.reduces && kind.op == OpKind::kAverage ? WorkFinish::kAverage : WorkFinish::kNothing;
  work.premultiplied = kind.reduces && kind.op == OpKind::kPremultipliedSum;
  for (int i = 0; work.premultiplied && i < kWorkRanksMax; ++i)
    work.factors[i] = factor_for(kind.type, work.scalars[i]);
  for (std::uint32_t i = 0; i < work.piece_count; ++i)
    work.pieces[i].count *= counted(kind).per_element;
}

int inputs_by_units(const DeviceWork& work, std::size_t element_bytes) {
  const int inputs = work.pieces[0].inputs;
  const auto fits = [&](const WorkPiece& piece) {
    const PieceBuffers buffers(work, piece);
    return piece.mode == PieceMode::kSpread && piece.inputs == inputs &&
           buffers.common_width() >= kUnitBytes && buffers.head(kUnitBytes) % element_bytes == 0;
  };
  const bool all_fit = std::all_of(work.pieces, work.pieces + work.piece_count, fits);
  return all_fit && !work.premultiplied ? inputs : 0;
}

Geometry geometry_by_units(const DeviceWork& work, std::size_t element_bytes) {
  std::uint64_t most = 1, all = 1;
  for (std::uint32_t i = 0; i < work.piece_count; ++i) {
    const Split split = units_of(work, work.pieces[i], static_cast<unsigned>(element_bytes));
    most = std::max(most, split.units + split.singles);
    all += split.units + split.singles;
  }
  const auto blocks_for = [](std::uint64_t threads) {
    return (threads + kBlockThreads - 1) / kBlockThreads;
  };
  Geometry geometry;
  geometry.pieces = work.piece_count;
  geometry.threads = kBlockThreads;
  // Every piece has as many blocks as the largest: where others are small its threads go on, or
  // most blocks would have nothing to do. So they do where the driver takes no more.
  const std::uint64_t blocks =
      std::min(blocks_for(most), blocks_for(2 * all / std::max(work.piece_count, 1u)));
  geometry.blocks = static_cast<unsigned>(std::min<std::uint64_t>(blocks, kGridBlocksMax));
  return geometry;
}

Geometry geometry_of(const DeviceWork& work, std::size_t element_bytes, int multiprocessors) {
  std::uint64_t units = 1;
  for (std::uint32_t i = 0; i < work.piece_count; ++i) {
    const WorkPiece& piece = work.pieces[i];
    const bool scans = piece.mode == PieceMode::kPrefix || piece.mode == PieceMode::kExclusive;
    const std::uint64_t of_piece =
        scans ? piece.count : (piece.count * element_bytes + kUnitBytes - 1) / kUnitBytes;
    units = std::max(units, of_piece);
  }
  Geometry geometry;
  geometry.pieces = work.piece_count;
  geometry.threads = kBlockThreads;
  const std::uint64_t resident =
      std::uint64_t{kBlocksPerMultiprocessor} * static_cast<unsigned>(std::max(multiprocessors, 1));
  const std::uint64_t share = (resident + work.piece_count - 1) / std::max(work.piece_count, 1u);
  const std::uint64_t wanted = (units + kBlockThreads - 1) / kBlockThreads;
  geometry.blocks = static_cast<unsigned>(
      std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(share, 1)));
  return geometry;
}

struct Kernels::State {
  std::shared_ptr<const CudaApi> api;
  CUdevice device = 0;
  CUcontext context = nullptr;
  int multiprocessors = 1;
  int compute_capability = 0;  ///< 90 is 9.0
  std::vector<CUlibrary> libraries;
  CUfunction move = nullptr;
  /// By type, operator and order.
  CUfunction reducing[kDataTypeCount][kOpKindCount][2] = {};
  /// The same by units, and by inputs (kUnitInputs); null where there is none.
  CUfunction copy = nullptr;
  CUfunction by_units[kDataTypeCount][kOpKindCount][2][std::size(kUnitInputs)] = {};

  CUfunction find(const WorkKind& kind) const {
    if (!kind.reduces) return move;
    return reducing[static_cast<int>(kind.type)][static_cast<int>(kind.op)]
                   [kind.order == Order::kCanonical];
  }
  CUfunction find_by_units(const WorkKind& kind, int inputs) const {
    if (!kind.reduces) return inputs == 1 ? copy : nullptr;
    const auto* const found = std::find(std::begin(kUnitInputs), std::end(kUnitInputs), inputs);
    if (found == std::end(kUnitInputs)) return nullptr;
    return by_units[static_cast<int>(kind.type)][static_cast<int>(kind.op)]
                   [kind.order == Order::kCanonical][found - kUnitInputs];
  }

  std::string on_device() const { return " on device " + std::to_string(device); }

  std::string versions() const {
    return "built with toolkit " + version_text(CUDA_VERSION) + "; this driver serves CUDA " +
           version_text(api->version);
  }

  Status checked(CUresult result, const std::string& what) const {
    if (!lacks_code(result)) return api->check(result, what + on_device());
    const std::string words = "the driver takes no kernels of this build for device " +
                              std::to_string(device) + ", whose compute capability is " +
                              std::to_string(compute_capability / 10) + "." +
                              std::to_string(compute_capability % 10) + ": " + versions();
    const int served = api->version / 1000;
    const std::string advice =
        served < CUDA_VERSION / 1000
            ? ": update it, or build with a toolkit " + std::to_string(served) + ".x"
            : "; build with that capability among UNISONO_CUDA_ARCHITECTURES, or update the driver";
    return Status(ErrorCode::kUnsupported, words + advice);
  }

  Status ask_device();
  Status load_image(const KernelImage& image, std::map<std::string, CUfunction>& functions);
  void index(const std::map<std::string, CUfunction>& functions);
};

Status Kernels::State::ask_device() {
  const auto ask = [&](CUdevice_attribute attribute, int* value) {
    return checked(api->DeviceGetAttribute(value, attribute, device), "asking for an attribute");
  };
  int major = 0;
  int minor = 0;
  UNISONO_TRY(ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
  UNISONO_TRY(ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
  compute_capability = 10 * major + minor;
  return ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors);
}

Status Kernels::State::load_image(const KernelImage& image,
                                  std::map<std::string, CUfunction>& functions) {
  CUlibrary library = nullptr;
  UNISONO_TRY(
      checked(api->LibraryLoadData(&library, image.begin, nullptr, nullptr, 0, nullptr, nullptr, 0),
              "loading the kernels (" + versions() + ")"));
  libraries.push_back(library);
  for (const std::string& name : image.names) {
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    UNISONO_TRY(checked(api->LibraryGetKernel(&kernel, library, name.c_str()), "finding " + name));
    UNISONO_TRY(checked(api->KernelGetFunction(&function, kernel), "loading " + name));
    if (api->FuncLoad != nullptr) UNISONO_TRY(checked(api->FuncLoad(function), "loading " + name));
    functions[name] = function;
  }
  return Status();
}

void Kernels::State::index(const std::map<std::string, CUfunction>& functions) {
  move = functions.at(kMoveKernel);
  copy = functions.at(kCopyKernel);
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kOpKindCount; ++op) {
      for (const Order order : {Order::kAny, Order::kCanonical}) {
        const WorkKind kind{static_cast<DataType>(type), true, static_cast<OpKind>(op), order};
        if (!supports(kind).ok()) continue;
        const auto found = functions.find(kernel_name(kind));
        UNISONO_ASSERT(found != functions.end(), "a kind of work without a kernel");
        reducing[type][op][order == Order::kCanonical] = found->second;
        for (std::size_t i = 0; i < std::size(kUnitInputs); ++i) {
          const auto of_units = functions.find(unit_kernel_name(kind, kUnitInputs[i]));
          if (of_units == functions.end()) continue;
          by_units[type][op][order == Order::kCanonical][i] = of_units->second;
        }
      }
    }
  }
}

Kernels::Kernels() : state_(std::make_unique<State>()) {}

Kernels::~Kernels() {
  const CurrentContext current(*state_->api, state_->context);
  if (!current.status().ok()) return;  // the context is gone, and the libraries with it
  for (CUlibrary library : state_->libraries) (void)state_->api->LibraryUnload(library);
}

Result<std::unique_ptr<Kernels>> Kernels::load(std::shared_ptr<const CudaApi> api, CUdevice device,
                                               CUcontext context) {
  const CurrentContext current(*api, context);
  UNISONO_TRY(current.status());
  std::unique_ptr<Kernels> kernels(new Kernels());
  State& state = *kernels->state_;
  state.api = std::move(api);
  state.device = device;
  state.context = context;
  UNISONO_TRY(state.ask_device());
  std::map<std::string, CUfunction> functions;
  for (const KernelImage& image : kernel_images()) UNISONO_TRY(state.load_image(image, functions));
  state.index(functions);
  return kernels;
}

Status Kernels::supports(const WorkKind& kind) {
  const bool known = static_cast<int>(kind.type) < kDataTypeCount &&
                     (!kind.reduces || static_cast<int>(kind.op) < kOpKindCount);
  if (!known) {
    return Status(ErrorCode::kInvalidArgument,
                  "unknown element type " + std::to_string(static_cast<int>(kind.type)) +
                      " or operator " + std::to_string(static_cast<int>(kind.op)) + ", limits " +
                      std::to_string(kDataTypeCount - 1) + " and " +
                      std::to_string(kOpKindCount - 1));
  }
  if (!kind.reduces) return Status();
  if (kind.op == OpKind::kUser) {
    return Status(ErrorCode::kUnsupported,
                  "user operators run on the host; a device has no code for them");
  }
  if (!is_meaningful(kind.op, kind.type)) {
    return Status(ErrorCode::kInvalidArgument, "operator " + std::string(name_of(kind.op)) +
                                                   " has no meaning on " +
                                                   std::string(name_of(kind.type)) +
                                                   "; choose another operator or element type");
  }
  return Status();
}

Status Kernels::launch(CUstream stream, DeviceWork work, const WorkKind& kind, Runs runs) const {
  UNISONO_TRY(supports(kind));
  UNISONO_TRY(check_work(work, kind));
  if (work.piece_count == 0) return Status();
  complete_work(work, kind);
  const std::size_t bytes = counted(kind).bytes;
  CUfunction kernel = state_->find_by_units(kind, work.pieces[0].inputs);
  if (kernel != nullptr && inputs_by_units(work, bytes) == 0) kernel = nullptr;
  // Each block of a replay counts itself: the fewer the better.
  const Geometry grid = kernel == nullptr || runs == Runs::kInGraph
                            ? geometry_of(work, bytes, state_->multiprocessors)
                            : geometry_by_units(work, bytes);
  if (kernel == nullptr) kernel = state_->find(kind);
  share_answer(work, grid.blocks * grid.pieces, runs);
  void* parameters[] = {&work};
  const CUresult result = state_->api->LaunchKernel(
      kernel, grid.blocks, grid.pieces, 1, grid.threads, 1, 1, 0, stream, parameters, nullptr);
  if (result == CUDA_SUCCESS) return Status();
  return state_->checked(result, "launching " + kernel_name(kind));
}

}  // namespace unisono::cuda
