// The prototypes of cublas_api.h against cuBLAS' own header, where that is installed. All is said
// at compile time.
#include <cublas_v2.h>

#include <type_traits>

#include "train/cuda/cublas_api.h"

namespace unisono::train {
namespace {

/// Equal, where enumerations travel as int.
template <typename Ours, typename Theirs>
constexpr bool kSame = std::is_same_v<Ours, Theirs> ||
                       (std::is_same_v<Ours, int> && std::is_enum_v<Theirs> &&
                        sizeof(Theirs) == sizeof(int));

template <typename Ours, typename Theirs>
struct Matches : std::false_type {};
template <typename Result, typename... Arguments, typename TheirResult, typename... TheirArguments>
struct Matches<Result (*)(Arguments...), TheirResult(TheirArguments...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Arguments) != sizeof...(TheirArguments)) {
      return false;
    } else {
      return kSame<Result, TheirResult> && (kSame<Arguments, TheirArguments> && ...);
    }
  }();
};

#define UNISONO_SAME_FUNCTION(member, function) \
  static_assert(Matches<decltype(CublasApi::member), decltype(function)>::value, #function)

UNISONO_SAME_FUNCTION(Create, cublasCreate_v2);
UNISONO_SAME_FUNCTION(Destroy, cublasDestroy_v2);
UNISONO_SAME_FUNCTION(SetStream, cublasSetStream_v2);
UNISONO_SAME_FUNCTION(SetMathMode, cublasSetMathMode);
UNISONO_SAME_FUNCTION(SetWorkspace, cublasSetWorkspace_v2);
UNISONO_SAME_FUNCTION(Sgemm, cublasSgemm_v2);
UNISONO_SAME_FUNCTION(SgemmStridedBatched, cublasSgemmStridedBatched);
UNISONO_SAME_FUNCTION(GetStatusString, cublasGetStatusString);
static_assert(kCublasSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kCublasPlain == CUBLAS_OP_N && kCublasTransposed == CUBLAS_OP_T);
static_assert(kCublasDefaultMath == CUBLAS_DEFAULT_MATH);

// A checker that takes everything would be no check.
static_assert(!Matches<int (*)(CublasHandle), decltype(cublasSetMathMode)>::value);
static_assert(!Matches<int (*)(CublasHandle, float), decltype(cublasSetMathMode)>::value);

}  // namespace
}  // namespace unisono::train
