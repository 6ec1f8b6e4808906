#include "device/descriptor.h"

namespace unisono::device {

const char* words_for(DetourReason reason) {
  switch (reason) {
    case DetourReason::kNone:
      return "nothing in the way";
    case DetourReason::kHostMemory:
      return "a buffer in host memory";
    case DetourReason::kUnshareable:
      return "a buffer that other processes cannot map (use unisono::allocate with "
             "MemoryKind::kCuda, or cudaMalloc)";
    case DetourReason::kUserOperator:
      return "an operator that is a function of the host";
    case DetourReason::kNoMemops:
      return "a device without stream memory operations";
    case DetourReason::kNoWideMemops:
      return "a device without stream memory operations of 64 bits";
    case DetourReason::kNoPeerAccess:
      return "a device that cannot reach another one's memory (no NVLink or PCIe peer access)";
    case DetourReason::kNoNumber:
      return "no number left for another communicator";
  }
  return "an unknown obstacle";
}

}  // namespace unisono::device
