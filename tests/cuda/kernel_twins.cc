// See kernel_twins.h.
#include "tests/cuda/kernel_twins.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

#include "cuda/kernels/abort_answer.h"
#include "cuda/kernels/kernel_list.h"
#include "cuda/kernels/kernel_names.h"
#include "cuda/kernels/move_loop.h"
#include "cuda/kernels/unit_loop.h"
#include "cuda/kernels/work_loop.h"

namespace unisono::cuda {
namespace {

/// The real thread count of a launch would take long and show nothing more; an odd number makes
/// shares of unequal size.
constexpr std::uint64_t kTwinThreads = 5;

/// What a launch touches through one entry of the pointer table. Pieces may share entries.
struct Touched {
  std::size_t read_bytes = 0;
  std::size_t written_bytes = 0;
};

AnswerLine answers[kAnswerLines];
BlockCounter counters[kBlockCounters];

// A number that came twice would get the answer of the first time: a graph's replays have counters.
void expect_new(std::uint64_t launch) {
  static std::mutex mutex;
  static auto* const seen = new std::unordered_set<std::uint64_t>;
  const std::lock_guard guard(mutex);
  if (launch == 0 || seen->insert(launch).second) return;
  std::fprintf(stderr, "two launches are number %llu\n", static_cast<unsigned long long>(launch));
  std::abort();
}

// More than a few blocks would each read over PCIe what one of them may read for all.
void expect_one_reader(const DeviceWork& work, unsigned blocks) {
  constexpr unsigned kFewBlocks = 16;
  const bool shares = work.counter != 0 ? work.blocks == blocks : work.launch != 0;
  if (work.abort == nullptr || blocks <= kFewBlocks || shares) return;
  std::fprintf(stderr, "%u blocks do not share what one reads of the abort word\n", blocks);
  std::abort();
}

void translate_work(void* parameters, fake_cuda::Translator& translator,
                    std::size_t counted_bytes) {
  DeviceWork& work = *static_cast<DeviceWork*>(parameters);
  work.abort = static_cast<const std::uint32_t*>(
      translator.at(work.abort, sizeof *work.abort, fake_cuda::Access::kRead));
  // What is called off touches nothing: the buffers may be gone. Its blocks will find the same.
  if (work.abort != nullptr && std::atomic_ref(const_cast<std::uint32_t&>(*work.abort)).load() != 0)
    return;
  std::array<Touched, kWorkPointersMax> touched{};
  for (std::uint32_t p = 0; p < work.piece_count; ++p) {
    const WorkPiece& piece = work.pieces[p];
    const std::size_t bytes = piece.count * counted_bytes;
    for (int i = 0; i < piece.inputs; ++i) {
      std::size_t& read = touched[piece.first_input + i].read_bytes;
      read = std::max(read, bytes);
    }
    // The first output of an exclusive scan is not written.
    for (int j = piece.mode == PieceMode::kExclusive ? 1 : 0; j < piece.outputs; ++j) {
      std::size_t& written = touched[piece.first_output + j].written_bytes;
      written = std::max(written, bytes);
    }
  }
  for (int i = 0; i < kWorkPointersMax; ++i) {
    void* const device = work.pointers[i];
    if (device == nullptr) continue;
    if (touched[i].read_bytes != 0) {
      work.pointers[i] = translator.at(device, touched[i].read_bytes, fake_cuda::Access::kRead);
    }
    if (touched[i].written_bytes != 0) {
      work.pointers[i] = translator.at(device, touched[i].written_bytes, fake_cuda::Access::kWrite);
    }
  }
}

using Body = void (*)(const DeviceWork&, const WorkPiece&, ThreadOfPiece);

template <Body kBody>
void run_grid(const void* parameters, fake_cuda::Dimensions grid, fake_cuda::Dimensions block) {
  const DeviceWork& work = *static_cast<const DeviceWork*>(parameters);
  expect_new(work.launch);
  const unsigned blocks = grid.x * grid.y;
  expect_one_reader(work, blocks);
  bool called_off = false;
  for (unsigned b = 0; b < blocks; ++b) called_off = is_called_off(work, answers, counters);
  if (called_off) return;
  const std::uint64_t threads =
      std::min(kTwinThreads, std::uint64_t{grid.x} * std::uint64_t{block.x});
  for (unsigned p = 0; p < grid.y; ++p) {
    for (std::uint64_t t = 0; t < threads; ++t) kBody(work, work.pieces[p], {t, threads});
  }
}

template <class A>
void translate_for(void* parameters, fake_cuda::Translator& translator) {
  translate_work(parameters, translator, sizeof(typename A::Stored));
}
void translate_moved(void* parameters, fake_cuda::Translator& translator) {
  translate_work(parameters, translator, 1);
}

/// Both faces of a kernel.
struct Twin {
  KernelBody body;
  fake_cuda::KernelTwin twin;
};

template <Body kBody>
Twin make_twin(const char* name, std::size_t counted_bytes,
               void (*translate)(void*, fake_cuda::Translator&)) {
  return {{name, counted_bytes, kBody}, {name, sizeof(DeviceWork), translate, run_grid<kBody>}};
}

template <class A>
Twin reducing_twin(const char* name) {
  return make_twin<reduce_piece<A>>(name, sizeof(typename A::Stored), translate_for<A>);
}

template <int kInputs, class A>
Twin unit_twin(const char* name) {
  return make_twin<reduce_piece_by_units<kInputs, A>>(name, sizeof(typename A::Stored),
                                                      translate_for<A>);
}

#define UNISONO_TWIN(name, ...) reducing_twin<__VA_ARGS__>(#name),
#define UNISONO_UNIT_TWIN(name, inputs, ...) unit_twin<inputs, __VA_ARGS__>(#name),

const std::vector<Twin>& twins() {
  static const std::vector<Twin> all = {
      UNISONO_FLOAT_KERNELS(UNISONO_TWIN)  //
      UNISONO_HALF_KERNELS(UNISONO_TWIN)   //
      UNISONO_UNIT_FLOAT_KERNELS(UNISONO_UNIT_TWIN) UNISONO_UNIT_HALF_KERNELS(UNISONO_UNIT_TWIN)
          UNISONO_FLOAT8_KERNELS(UNISONO_TWIN)  //
      UNISONO_INTEGER_KERNELS(UNISONO_TWIN)     //
      UNISONO_BITWISE_KERNELS(UNISONO_TWIN)     //
      make_twin<move_piece>(kMoveKernel, 1, translate_moved),
      make_twin<copy_piece_by_units>(kCopyKernel, 1, translate_moved),
  };
  return all;
}

}  // namespace

const std::vector<KernelBody>& kernel_bodies() {
  static const std::vector<KernelBody> bodies = [] {
    std::vector<KernelBody> of_twins;
    for (const Twin& twin : twins()) of_twins.push_back(twin.body);
    return of_twins;
  }();
  return bodies;
}

const KernelBody* find_body(const std::string& name) {
  const auto& bodies = kernel_bodies();
  const auto found = std::find_if(bodies.begin(), bodies.end(),
                                  [&](const KernelBody& body) { return body.name == name; });
  return found == bodies.end() ? nullptr : &*found;
}

void run_on_host(DeviceWork work, const WorkKind& kind, std::uint64_t threads, Form form) {
  complete_work(work, kind);
  const KernelBody& of_any = *find_body(kernel_name(kind));
  const int inputs = inputs_by_units(work, of_any.counted_bytes);
  const KernelBody* const by_units =
      inputs == 0 ? nullptr : find_body(unit_kernel_name(kind, inputs));
  const KernelBody& body = form == Form::kAny || by_units == nullptr ? of_any : *by_units;
  for (std::uint32_t p = 0; p < work.piece_count; ++p) {
    for (std::uint64_t t = 0; t < threads; ++t) body.run(work, work.pieces[p], {t, threads});
  }
}

void register_kernel_twins(const fake_cuda::FakeCudaFunctions& fake) {
  for (const Twin& twin : twins()) fake.register_kernel(twin.twin);
}

}  // namespace unisono::cuda
