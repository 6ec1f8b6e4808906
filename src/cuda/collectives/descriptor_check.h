// What members have told of a device call (descriptor.h), held against the call that all of them
// made: afterwards kernels find in every buffer that was told what they touch there.
//
// Pure functions; no pointer is followed.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "cuda/collectives/descriptor.h"
#include "unisono/communicator.h"

namespace unisono::device {

/// The descriptors of an exchange as it brought them, by rank. Behind each come its counts where
/// the collective has any.
class ToldDescriptors {
 public:
  ToldDescriptors(std::span<const std::byte> bytes, std::size_t stride)
      : bytes_(bytes), stride_(stride) {}

  Rank size() const { return static_cast<Rank>(bytes_.size() / stride_); }
  const Descriptor& of(Rank rank) const { return *reinterpret_cast<const Descriptor*>(at(rank)); }
  const DescriptorCounts& counts_of(Rank rank) const {
    return *reinterpret_cast<const DescriptorCounts*>(at(rank) + sizeof(Descriptor));
  }

 private:
  const std::byte* at(Rank rank) const {
    return bytes_.data() + static_cast<std::size_t>(rank) * stride_;
  }
  std::span<const std::byte> bytes_;
  std::size_t stride_;
};

/// `call`: this rank's. kProtocol naming a rank that told of a buffer which is too short for the
/// call or of a block outside of its buffer; kMismatch naming one of two ranks that called with
/// different counts for a block.
Status check_told(const Call& call, const ToldDescriptors& told);

}  // namespace unisono::device
