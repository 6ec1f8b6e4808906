// The one place that names the kernels: X(name, struct) for each, by the file that they are
// compiled in. The .cu files make kernels of the lists, the launcher looks the names up, and tests
// make host twins of them.
#pragma once

#include "train/cuda/kernels/elements.h"
#include "train/cuda/kernels/images.h"
#include "train/cuda/kernels/rows.h"
#include "train/cuda/kernels/sums.h"
#include "train/cuda/kernels/tokens.h"

// clang-format off
#define UNISONO_TRAIN_ELEMENT_KERNELS(X)                            \
  X(unisono_train_fill, Fill)                                       \
  X(unisono_train_add, Add)                                         \
  X(unisono_train_add_products, AddProducts)                        \
  X(unisono_train_scale, Scale)                                     \
  X(unisono_train_mix, Mix)                                         \
  X(unisono_train_narrow_f16, Narrow<Float16>)                      \
  X(unisono_train_narrow_bf16, Narrow<Bfloat16>)                    \
  X(unisono_train_widen_f16, Widen<Float16>)                        \
  X(unisono_train_widen_bf16, Widen<Bfloat16>)                      \
  X(unisono_train_relu, Relu)                                       \
  X(unisono_train_relu_gradient, ReluGradient)                      \
  X(unisono_train_gelu, Gelu)                                       \
  X(unisono_train_gelu_gradient, GeluGradient)                      \
  X(unisono_train_dropout, Dropout)                                 \
  X(unisono_train_sgd_plain, SgdPlain)                              \
  X(unisono_train_sgd_momentum, SgdMomentum)                        \
  X(unisono_train_adamw, AdamW)                                     \
  X(unisono_train_repeat_row, RepeatRow)
#define UNISONO_TRAIN_LAYER_KERNELS(X)                              \
  X(unisono_train_column_sums, ColumnSums)                          \
  X(unisono_train_channel_sums, ChannelSums)                        \
  X(unisono_train_channel_squares, ChannelSquares)                  \
  X(unisono_train_channel_gradients, ChannelGradients)              \
  X(unisono_train_add_totals, AddTotals)                            \
  X(unisono_train_store_totals, StoreTotals)                        \
  X(unisono_train_mean_totals, MeanTotals)                          \
  X(unisono_train_windows, Windows)                                 \
  X(unisono_train_add_windows, AddWindows)                          \
  X(unisono_train_repeat_channels, RepeatChannels)                  \
  X(unisono_train_max_pool, MaxPool)                                \
  X(unisono_train_max_pool_gradient, MaxPoolGradient)               \
  X(unisono_train_normalise_channels, NormaliseChannels)            \
  X(unisono_train_normalise_channels_gradient, NormaliseChannelsGradient) \
  X(unisono_train_row_moments, RowMoments)                          \
  X(unisono_train_normalise_rows, NormaliseRows)                    \
  X(unisono_train_row_slopes, RowSlopes)                            \
  X(unisono_train_normalise_rows_gradient, NormaliseRowsGradient)   \
  X(unisono_train_normalise_rows_sums, NormaliseRowsSums)           \
  X(unisono_train_causal_softmax, CausalSoftmax)                    \
  X(unisono_train_causal_softmax_gradient, CausalSoftmaxGradient)   \
  X(unisono_train_row_loss, RowLoss)                                \
  X(unisono_train_loss_gradient, LossGradient)                      \
  X(unisono_train_row_hits, RowHits)                                \
  X(unisono_train_segment_sums, SegmentSums)                        \
  X(unisono_train_embed, Embed)                                     \
  X(unisono_train_embed_token_gradient, EmbedTokenGradient)         \
  X(unisono_train_embed_position_gradient, EmbedPositionGradient)
// clang-format on
