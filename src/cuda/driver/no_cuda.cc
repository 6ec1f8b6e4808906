// Builds without the CUDA toolkit: says so wherever a GPU is asked for. No state.
#include "cuda/driver/survey.h"

namespace unisono::cuda {

Result<Survey> survey_devices(const std::string& use, const std::string&) {
  if (use == "off") return Status(ErrorCode::kUnsupported, "UNISONO_CUDA=off");
  return Status(ErrorCode::kUnsupported,
                "built without CUDA: configure with -DUNISONO_WITH_CUDA=ON and the CUDA toolkit "
                "12.0 or newer");
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace unisono::cuda
