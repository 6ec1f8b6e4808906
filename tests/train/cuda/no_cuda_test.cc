// Builds without the CUDA toolkit: whoever asks for a GPU is told.
#include <gmock/gmock.h>

#include "train/cuda/cuda_backend.h"

namespace unisono::test {
namespace {

TEST(CudaBackend, IsRefusedByABuildWithoutCuda) {
  for (const auto& open : {+[] { static_cast<void>(train::make_cuda_backend(1)); },
                           +[] { static_cast<void>(train::make_page_locked_memory(1)); }}) {
    try {
      open();
      FAIL() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("device 1: built without CUDA; configure with "
                                                    "-DUNISONO_WITH_CUDA=ON"));
    }
  }
}

}  // namespace
}  // namespace unisono::test
