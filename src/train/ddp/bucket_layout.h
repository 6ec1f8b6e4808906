// Which parameters share a bucket: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "unisono/train/model.h"

namespace unisono::train {

/// Parameter indices by bucket, in the order in which buckets start.
using BucketLayout = std::vector<std::vector<int>>;

/// Takes parameters in `order`; a bucket is full once it holds at least its limit in bytes, so one
/// large parameter can exceed it. The first bucket has the first limit and so on; the last limit is
/// that of all further ones. At least one limit.
BucketLayout assign_buckets(const Arena& parameters, std::span<const int> order,
                            std::span<const std::size_t> limits);

/// count - 1, ..., 0: roughly the order in which a backward pass finishes gradients.
std::vector<int> reverse_registration_order(std::size_t count);

}  // namespace unisono::train
