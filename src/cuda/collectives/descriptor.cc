#include "cuda/collectives/descriptor.h"

namespace unisono::device {

const char* words_for(FallbackReason reason) {
  switch (reason) {
    case FallbackReason::kNone:
      return "nothing in the way";
    case FallbackReason::kHostMemory:
      return "a buffer in host memory";
    case FallbackReason::kUnshareable:
      return "a buffer that other processes cannot map (use unisono::allocate with "
             "MemoryKind::kCuda, or cudaMalloc)";
    case FallbackReason::kUserOperator:
      return "an operator that is a function of the host";
    case FallbackReason::kExactOrder:
      return "the exact order, which the host's processors keep";
    case FallbackReason::kNoMemops:
      return "a device without stream memory operations";
    case FallbackReason::kNoWideMemops:
      return "a device without stream memory operations of 64 bits";
    case FallbackReason::kNoPeerAccess:
      return "a device that cannot reach another one's memory (no NVLink or PCIe peer access)";
    case FallbackReason::kSharedDevice:
      return "a process in which ranks of several jobs use the device, and too many streams that "
             "wait";
    case FallbackReason::kNoNumber:
      return "no number left for another communicator";
    case FallbackReason::kInvalidCapture:
      return "a stream whose capture an error has invalidated";
  }
  return "an unknown obstacle";
}

}  // namespace unisono::device
