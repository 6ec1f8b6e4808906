// See kernel_names.h.
#include "cuda/kernels/kernel_names.h"

#include "cuda/kernels/embedded_kernels.h"
#include "cuda/kernels/kernel_list.h"

UNISONO_EMBED_KERNELS(unisono_kernels_float, UNISONO_KERNEL_IMAGES "/kernels_float.fatbin")
UNISONO_EMBED_KERNELS(unisono_kernels_half, UNISONO_KERNEL_IMAGES "/kernels_half.fatbin")
UNISONO_EMBED_KERNELS(unisono_kernels_float8, UNISONO_KERNEL_IMAGES "/kernels_float8.fatbin")
UNISONO_EMBED_KERNELS(unisono_kernels_integer, UNISONO_KERNEL_IMAGES "/kernels_integer.fatbin")
UNISONO_EMBED_KERNELS(unisono_kernels_bits, UNISONO_KERNEL_IMAGES "/kernels_bits.fatbin")

namespace unisono::cuda {
namespace {

bool is_small_float(DataType type) {
  return type >= DataType::kFloat16 && type <= DataType::kFloat8E5m2;
}

bool is_bitwise(const WorkKind& kind) {
  return kind.type == DataType::kBool ||
         (kind.op >= OpKind::kBitAnd && kind.op <= OpKind::kLogicalXor);
}

const char* integer_storage(DataType type) {
  switch (size_of(type)) {
    case 1:
      return "i8";
    case 2:
      return "i16";
    case 4:
      return "i32";
    default:
      return "i64";
  }
}

/// Sums of complex numbers are sums of their parts, twice as many.
const char* number_storage(DataType type, bool is_product) {
  switch (type) {
    case DataType::kFloat16:
      return "f16";
    case DataType::kBfloat16:
      return "bf16";
    case DataType::kFloat8E4m3:
      return "e4m3";
    case DataType::kFloat8E5m2:
      return "e5m2";
    case DataType::kFloat32:
      return "f32";
    case DataType::kFloat64:
      return "f64";
    case DataType::kComplex64:
      return is_product ? "c64" : "f32";
    case DataType::kComplex128:
      return is_product ? "c128" : "f64";
    default:
      return integer_storage(type);
  }
}

}  // namespace

std::string kernel_name(const WorkKind& kind) {
  if (!kind.reduces) return kMoveKernel;
  if (is_bitwise(kind)) return std::string("unisono_bits_") + integer_storage(kind.type);
  const bool is_product = kind.op == OpKind::kProduct;
  const bool is_minmax = kind.op == OpKind::kMin || kind.op == OpKind::kMax;
  std::string name = is_minmax    ? "unisono_minmax_"
                     : is_product ? "unisono_product_"
                                  : "unisono_sum_";
  name += number_storage(kind.type, is_product);
  if (kind.order == Order::kCanonical && is_small_float(kind.type) && !is_minmax) name += "_tree";
  return name;
}

std::string unit_kernel_name(const WorkKind& kind, int inputs) {
  return kind.reduces ? kernel_name(kind) + "_of_" + std::to_string(inputs) : kCopyKernel;
}

#define UNISONO_NAME(name, ...) #name,

std::vector<KernelImage> kernel_images() {
  return {
      {unisono_kernels_float,
       unisono_kernels_float_end,
       {UNISONO_FLOAT_KERNELS(UNISONO_NAME) UNISONO_UNIT_FLOAT_KERNELS(UNISONO_NAME)}},
      {unisono_kernels_half,
       unisono_kernels_half_end,
       {UNISONO_HALF_KERNELS(UNISONO_NAME) UNISONO_UNIT_HALF_KERNELS(UNISONO_NAME)}},
      {unisono_kernels_float8, unisono_kernels_float8_end, {UNISONO_FLOAT8_KERNELS(UNISONO_NAME)}},
      {unisono_kernels_integer,
       unisono_kernels_integer_end,
       {UNISONO_INTEGER_KERNELS(UNISONO_NAME)}},
      {unisono_kernels_bits,
       unisono_kernels_bits_end,
       {UNISONO_BITWISE_KERNELS(UNISONO_NAME) kMoveKernel, kCopyKernel}},
  };
}

}  // namespace unisono::cuda
