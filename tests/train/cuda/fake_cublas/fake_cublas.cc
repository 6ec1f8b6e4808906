// A test double of cuBLAS: what the trainer calls of it, over the fake driver of tests/cuda. Loaded
// as libcublas.so.13, never installed or linked.
//
// Products run in the order of the handle's stream, on the device's memory, as a kernel of the fake
// driver's. Like the real library it finds the driver by its name, wants a current context, refuses
// strides that are too small and does not read a result that is not added to. Unlike it, it refuses
// to compute without a workspace of the caller's: with its own its results would not repeat.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>

#include "tests/cuda/fake_driver/fake_cuda.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

enum Status {
  kSuccess = 0,
  kNotInitialized = 1,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kNotSupported = 15
};

/// By columns, as everything in cuBLAS: element (r, c) is at r + c * stride.
struct Operand {
  const float* data;
  int rows, columns, stride;  ///< as stored
  bool transposed;
  long long step;  ///< from one product of a batch to the next
  float at(int batch, int r, int c) const {
    const long long offset = transposed ? c + static_cast<long long>(r) * stride
                                        : r + static_cast<long long>(c) * stride;
    return data[batch * step + offset];
  }
  std::size_t bytes(int count) const {
    const auto one = static_cast<std::size_t>(columns - 1) * static_cast<std::size_t>(stride) +
                     static_cast<std::size_t>(rows);
    return sizeof(float) *
           (static_cast<std::size_t>(count - 1) * static_cast<std::size_t>(step) + one);
  }
};

struct Work {
  int rows, columns, inner, count;
  float alpha, beta;
  Operand a, b, c;  ///< `c` is written
};

void translate(void* parameters, fake_cuda::Translator& translator) {
  Work& work = *static_cast<Work*>(parameters);
  const auto turn = [&](Operand& operand, fake_cuda::Access access) {
    operand.data =
        static_cast<const float*>(translator.at(operand.data, operand.bytes(work.count), access));
  };
  turn(work.a, fake_cuda::Access::kRead);
  turn(work.b, fake_cuda::Access::kRead);
  turn(work.c, fake_cuda::Access::kWrite);
}

void run(const void* parameters, fake_cuda::Dimensions, fake_cuda::Dimensions) {
  const Work& work = *static_cast<const Work*>(parameters);
  for (int batch = 0; batch < work.count; ++batch) {
    float* c = const_cast<float*>(work.c.data) + batch * work.c.step;
    for (int column = 0; column < work.columns; ++column) {
      for (int row = 0; row < work.rows; ++row) {
        float sum = 0;
        // From the back: a caller that counts on one order of additions is to notice.
        for (int i = work.inner; i-- > 0;) {
          sum += work.a.at(batch, row, i) * work.b.at(batch, i, column);
        }
        float& result = c[row + static_cast<long long>(column) * work.c.stride];
        result = work.alpha * sum + (work.beta == 0 ? 0 : work.beta * result);
      }
    }
  }
}

constexpr char kKernel[] = "fake_cublas_product";

/// The driver that the process has loaded, under the name that every driver has.
void* driver_library() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library;
}

template <typename Function>
Function* driver_function(const char* name) {
  using GetProcAddress =
      CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  if (driver_library() == nullptr) return nullptr;
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(driver_library(), "cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (get == nullptr || get(name, &function, 12040, 0, &found) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<Function*>(function);
}

#define DRIVER(name) driver_function<decltype(::name)>(#name)

void register_product() {
  const auto functions = reinterpret_cast<decltype(&fake_cuda_functions)>(
      dlsym(driver_library(), "fake_cuda_functions"));
  functions()->register_kernel({kKernel, sizeof(Work), translate, run});
}

}  // namespace

struct cublasContext {
  CUlibrary library = nullptr;
  CUfunction product = nullptr;
  CUstream stream = nullptr;
  void* workspace = nullptr;
};

namespace {

int launch(cublasContext* handle, const Work& work) {
  if (handle == nullptr) return kNotInitialized;
  if (work.rows < 0 || work.columns < 0 || work.inner < 0 || work.count < 0) return kInvalidValue;
  for (const Operand* operand : {&work.a, &work.b, &work.c}) {
    if (operand->stride < std::max(1, operand->rows)) return kInvalidValue;
  }
  if (handle->workspace == nullptr) return kNotSupported;
  if (work.rows == 0 || work.columns == 0 || work.count == 0) return kSuccess;
  void* parameters[] = {const_cast<Work*>(&work)};
  const CUresult result = DRIVER(cuLaunchKernel)(handle->product, 1, 1, 1, 32, 1, 1, 0,
                                                 handle->stream, parameters, nullptr);
  return result == CUDA_SUCCESS ? kSuccess : kExecutionFailed;
}

// Drivers before 12.4 load functions when they are first launched.
bool load_if_the_driver_can(CUfunction function) {
  const auto load = driver_function<CUresult(CUfunction)>("cuFuncLoad");  // not in older headers
  return load == nullptr || load(function) == CUDA_SUCCESS;
}

bool load_product(cublasContext* handle) {
  CUkernel kernel = nullptr;
  return DRIVER(cuLibraryLoadData)(&handle->library, kKernel, nullptr, nullptr, 0, nullptr, nullptr,
                                   0) == CUDA_SUCCESS &&
         DRIVER(cuLibraryGetKernel)(&kernel, handle->library, kKernel) == CUDA_SUCCESS &&
         DRIVER(cuKernelGetFunction)(&handle->product, kernel) == CUDA_SUCCESS &&
         load_if_the_driver_can(handle->product);
}

}  // namespace

EXPORTED int cublasCreate_v2(cublasContext** handle) {
  CUcontext context = nullptr;
  if (driver_library() == nullptr || DRIVER(cuCtxGetCurrent)(&context) != CUDA_SUCCESS ||
      context == nullptr) {
    return kNotInitialized;
  }
  register_product();
  auto* made = new cublasContext;
  if (!load_product(made)) {
    if (made->library != nullptr) DRIVER(cuLibraryUnload)(made->library);
    delete made;
    return kNotInitialized;
  }
  *handle = made;
  return kSuccess;
}

EXPORTED int cublasDestroy_v2(cublasContext* handle) {
  if (handle == nullptr) return kNotInitialized;
  DRIVER(cuLibraryUnload)(handle->library);
  delete handle;
  return kSuccess;
}

EXPORTED int cublasSetStream_v2(cublasContext* handle, CUstream stream) {
  handle->stream = stream;
  handle->workspace = nullptr;
  return kSuccess;
}

EXPORTED int cublasSetMathMode(cublasContext*, int mode) {
  return mode == 0 ? kSuccess : kNotSupported;
}

EXPORTED int cublasSetWorkspace_v2(cublasContext* handle, void* workspace, std::size_t bytes) {
  if (bytes == 0) return kInvalidValue;
  handle->workspace = workspace;
  return kSuccess;
}

EXPORTED int cublasSgemmStridedBatched(cublasContext* handle, int left, int right, int m, int n,
                                       int k, const float* alpha, const float* a, int lda,
                                       long long a_step, const float* b, int ldb, long long b_step,
                                       const float* beta, float* c, int ldc, long long c_step,
                                       int count) {
  const bool is_left = left != 0, is_right = right != 0;
  return launch(handle, {m,
                         n,
                         k,
                         count,
                         *alpha,
                         *beta,
                         {a, is_left ? k : m, is_left ? m : k, lda, is_left, a_step},
                         {b, is_right ? n : k, is_right ? k : n, ldb, is_right, b_step},
                         {c, m, n, ldc, false, c_step}});
}

EXPORTED int cublasSgemm_v2(cublasContext* handle, int left, int right, int m, int n, int k,
                            const float* alpha, const float* a, int lda, const float* b, int ldb,
                            const float* beta, float* c, int ldc) {
  return cublasSgemmStridedBatched(handle, left, right, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta,
                                   c, ldc, 0, 1);
}

EXPORTED const char* cublasGetStatusString(int status) {
  switch (status) {
    case kSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case kNotInitialized:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "unknown";
  }
}
