// The one place that names the kernels: X(name, arithmetic) for each, by family. The .cu files make
// kernels of the lists, kernels.cc looks the names up, and tests make host twins of them.
#pragma once

// clang-format off
// A name says operator and storage. `_tree`: fp16, bf16 and fp8 are rounded at every node of the
// canonical tree; without it they stay in fp32 until the end. Integers are named by their width.
#define UNISONO_FLOAT_KERNELS(X)                         \
  X(unisono_sum_f32, Sum<float>)                         \
  X(unisono_sum_f64, Sum<double>)                        \
  X(unisono_product_f32, Product<float>)                 \
  X(unisono_product_f64, Product<double>)                \
  X(unisono_product_c64, Product<Complex<float>>)        \
  X(unisono_product_c128, Product<Complex<double>>)      \
  X(unisono_minmax_f32, MinMax<float>)                   \
  X(unisono_minmax_f64, MinMax<double>)
#define UNISONO_SMALL_FLOAT_KERNELS(X, storage, T)                \
  X(unisono_sum_##storage, Sum<T>)                                \
  X(unisono_sum_##storage##_tree, Sum<T, Nodes::kRounded>)        \
  X(unisono_product_##storage, Product<T>)                        \
  X(unisono_product_##storage##_tree, Product<T, Nodes::kRounded>) \
  X(unisono_minmax_##storage, MinMax<T>)
#define UNISONO_HALF_KERNELS(X)                  \
  UNISONO_SMALL_FLOAT_KERNELS(X, f16, Float16)   \
  UNISONO_SMALL_FLOAT_KERNELS(X, bf16, Bfloat16)
#define UNISONO_FLOAT8_KERNELS(X)                  \
  UNISONO_SMALL_FLOAT_KERNELS(X, e4m3, Float8E4m3) \
  UNISONO_SMALL_FLOAT_KERNELS(X, e5m2, Float8E5m2)
// By units (unit_loop.h): X(name, inputs, arithmetic).
#define UNISONO_UNIT_SUM_KERNELS(X, storage, T) \
  X(unisono_sum_##storage##_of_2, 2, Sum<T>)    \
  X(unisono_sum_##storage##_of_4, 4, Sum<T>)    \
  X(unisono_sum_##storage##_of_8, 8, Sum<T>)
#define UNISONO_UNIT_FLOAT_KERNELS(X) UNISONO_UNIT_SUM_KERNELS(X, f32, float)
#define UNISONO_UNIT_HALF_KERNELS(X)         \
  UNISONO_UNIT_SUM_KERNELS(X, f16, Float16)  \
  UNISONO_UNIT_SUM_KERNELS(X, bf16, Bfloat16)
#define UNISONO_INTEGER_KERNELS(X)              \
  X(unisono_sum_i8, Sum<std::uint8_t>)          \
  X(unisono_sum_i16, Sum<std::uint16_t>)        \
  X(unisono_sum_i32, Sum<std::uint32_t>)        \
  X(unisono_sum_i64, Sum<std::uint64_t>)        \
  X(unisono_product_i8, Product<std::uint8_t>)  \
  X(unisono_product_i16, Product<std::uint16_t>) \
  X(unisono_product_i32, Product<std::uint32_t>) \
  X(unisono_product_i64, Product<std::uint64_t>) \
  X(unisono_minmax_i8, MinMax<std::uint8_t>)    \
  X(unisono_minmax_i16, MinMax<std::uint16_t>)  \
  X(unisono_minmax_i32, MinMax<std::uint32_t>)  \
  X(unisono_minmax_i64, MinMax<std::uint64_t>)
#define UNISONO_BITWISE_KERNELS(X)           \
  X(unisono_bits_i8, Bitwise<std::uint8_t>)   \
  X(unisono_bits_i16, Bitwise<std::uint16_t>) \
  X(unisono_bits_i32, Bitwise<std::uint32_t>) \
  X(unisono_bits_i64, Bitwise<std::uint64_t>)
// clang-format on
