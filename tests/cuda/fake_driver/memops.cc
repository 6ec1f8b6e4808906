// Stream memory operations: a stream writes a word, or stands still until a word has a value. The
// words may be shared with other processes, so a wait polls.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

// The address of a parameter and its width; both kinds of parameters begin alike.
struct Word {
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
  unsigned flags = 0;
  bool wide = false;
  bool waits = false;
};

bool read_word(const CUstreamBatchMemOpParams& parameters, Word* word) {
  switch (parameters.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      word->waits = true;
      word->wide = parameters.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
      word->address = parameters.waitValue.address;
      word->flags = parameters.waitValue.flags;
      word->value = word->wide ? parameters.waitValue.value64 : parameters.waitValue.value;
      return (word->flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH)) == 0;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      word->wide = parameters.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
      word->address = parameters.writeValue.address;
      word->flags = parameters.writeValue.flags;
      word->value = word->wide ? parameters.writeValue.value64 : parameters.writeValue.value;
      return (word->flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) == 0;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return true;
  }
  return false;
}

template <typename T>
bool is_reached(T found, T wanted, unsigned flags) {
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & wanted) != 0;
    default:
      return ~(found | wanted) != 0;
  }
}

bool is_broken(const CUctx_st& context) {
  const Lock lock(machine().mutex);
  return context.broken != CUDA_SUCCESS;
}

template <typename T>
void perform(CUctx_st& context, const Word& word, void* place) {
  auto& value = *static_cast<T*>(place);
  const T wanted = static_cast<T>(word.value);
  if (!word.waits) {
    std::atomic_ref<T>(value).store(wanted, std::memory_order_seq_cst);
    return;
  }
  for (int round = 0;
       !is_reached(std::atomic_ref<T>(value).load(std::memory_order_seq_cst), wanted, word.flags);
       ++round) {
    if (round < 64) {
      std::this_thread::yield();
      continue;
    }
    if (is_broken(context)) return;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void run_batch(CUctx_st& context, const std::vector<Word>& words) {
  for (const Word& word : words) {
    if (word.address == 0) continue;
    Uses uses(context, "a stream memory operation");
    void* place = uses.at(reinterpret_cast<void*>(word.address), word.wide ? 8 : 4,
                          word.waits ? Access::kRead : Access::kWrite);
    if (uses.failed()) return;
    if (word.wide) {
      perform<std::uint64_t>(context, word, place);
    } else {
      perform<std::uint32_t>(context, word, place);
    }
  }
}

CUresult check_word(const Word& word) {
  if (word.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (word.address % (word.wide ? 8 : 4) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool known = find_mapping(word.address) != nullptr || find_host(word.address) != nullptr;
  if (!known) complain("a stream memory operation on " + hex(word.address) + ", which is unknown");
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult batch(CUstream handle, unsigned count, CUstreamBatchMemOpParams* parameters,
               unsigned flags) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (!settings().stream_memops) return CUDA_ERROR_NOT_SUPPORTED;
  if (count == 0 || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Word> words(count);
  for (unsigned i = 0; i < count; ++i) {
    if (!read_word(parameters[i], &words[i])) return CUDA_ERROR_INVALID_VALUE;
    if (words[i].wide && !settings().wide_memops) return CUDA_ERROR_NOT_SUPPORTED;
    const bool has_word = parameters[i].operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES &&
                          parameters[i].operation != CU_STREAM_MEM_OP_BARRIER;
    if (!has_word) continue;
    if (const CUresult result = check_word(words[i]); result != CUDA_SUCCESS) return result;
  }
  return enqueue(*stream, {[context, words = std::move(words)] { run_batch(*context, words); }});
}

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  CUstreamBatchMemOpParams parameters{};
  parameters.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  parameters.writeValue.address = address;
  parameters.writeValue.value = value;
  parameters.writeValue.flags = flags;
  return batch(stream, 1, &parameters, 0);
}

CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  CUstreamBatchMemOpParams parameters{};
  parameters.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  parameters.waitValue.address = address;
  parameters.waitValue.value = value;
  parameters.waitValue.flags = flags;
  return batch(stream, 1, &parameters, 0);
}

}  // namespace

std::vector<Entry> memop_entries() {
  return {entry<&batch>("cuStreamBatchMemOp", 11070),
          entry<&write_value>("cuStreamWriteValue32", 11070),
          entry<&wait_value>("cuStreamWaitValue32", 11070)};
}

}  // namespace fake_cuda
