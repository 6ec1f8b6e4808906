#include "train/cuda/cublas_api.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace unisono::train {
namespace {

template <typename Function>
void find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) *missing += (missing->empty() ? "" : ", ") + std::string(name);
}

std::shared_ptr<const CublasApi> fill(void* library, const std::string& file) {
  auto api = std::make_shared<CublasApi>();
  std::string missing;
  find(library, "cublasCreate_v2", &api->Create, &missing);
  find(library, "cublasDestroy_v2", &api->Destroy, &missing);
  find(library, "cublasSetStream_v2", &api->SetStream, &missing);
  find(library, "cublasSetMathMode", &api->SetMathMode, &missing);
  find(library, "cublasSetWorkspace_v2", &api->SetWorkspace, &missing);
  find(library, "cublasSgemm_v2", &api->Sgemm, &missing);
  find(library, "cublasSgemmStridedBatched", &api->SgemmStridedBatched, &missing);
  find(library, "cublasGetStatusString", &api->GetStatusString, &missing);
  if (missing.empty()) return api;
  throw std::runtime_error(file + " lacks " + missing +
                           ": it is no cuBLAS or one before 11.4; install a newer one");
}

std::shared_ptr<const CublasApi> load(const std::string& chosen, int cuda_major) {
  std::vector<std::string> files;
  if (!chosen.empty()) files.push_back(chosen);
  for (int major = std::min(cuda_major, 13); chosen.empty() && major >= 11; --major) {
    files.push_back("libcublas.so." + std::to_string(major));
  }
  std::string tried;
  for (const std::string& file : files) {
    // Never closed: it keeps state of its own in the driver.
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return fill(library, file);
    const char* words = dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(words != nullptr ? words : file);
  }
  throw std::runtime_error(
      "no cuBLAS (" + tried +
      "): install the CUDA toolkit's libcublas, put its folder into LD_LIBRARY_PATH, or name the "
      "file in UNISONO_CUBLAS_LIBRARY");
}

}  // namespace

std::shared_ptr<const CublasApi> load_cublas(const std::string& file, int cuda_major) {
  // Never destroyed: threads that outlive main() may still ask.
  static auto* const mutex = new std::mutex;
  static auto* const tables = new std::map<std::string, std::shared_ptr<const CublasApi>>;
  const std::lock_guard lock(*mutex);
  std::shared_ptr<const CublasApi>& table = (*tables)[file];
  if (table == nullptr) table = load(file, cuda_major);
  return table;
}

}  // namespace unisono::train
