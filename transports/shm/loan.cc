#include "transports/shm/loan.h"

#include <limits>
#include <utility>

#include "transports/shm/shared_segment.h"

namespace unisono::shm {
namespace {

// Below, the ring's two copies cost less than waiting for the reader.
constexpr std::size_t kLoanBytesMin = std::size_t{32} << 10;
constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

class SegmentLoans final : public Loans {
 public:
  SegmentLoans(std::shared_ptr<SharedSegment> shared, AccessPath access)
      : Loans(access == AccessPath::kWindow ? kNever : kLoanBytesMin,
              access == AccessPath::kAutomatic),
        shared_(std::move(shared)),
        by_single_copy_(access == AccessPath::kSingleCopy || access == AccessPath::kAutomatic) {}

  MemoryHandle lend(Rank peer, const FrameHeader& header,
                    std::span<const std::byte> payload) const override {
    const bool awaited =
        header.kind == FrameKind::kData && header.frame_class == FrameClass::kPointToPoint;
    if (!awaited) return {};
    return shared_->handle_of(shared_->local_index(peer), payload, by_single_copy_);
  }

  bool would_lend(Rank peer, std::span<const std::byte> payload) const override {
    if (payload.size() < bytes_min()) return false;
    const bool private_too = by_single_copy_ && !tries_private();
    return shared_->handle_of(shared_->local_index(peer), payload, private_too).path !=
           MemoryPath::kNone;
  }

  Status collect(Rank peer, const MemoryHandle& lent, std::span<std::byte> out) const override {
    return shared_->collect(shared_->local_index(peer), lent, out);
  }

 private:
  std::shared_ptr<SharedSegment> shared_;
  bool by_single_copy_;
};

}  // namespace

std::unique_ptr<Loans> make_loans(std::shared_ptr<SharedSegment> shared, AccessPath access) {
  return std::make_unique<SegmentLoans>(std::move(shared), access);
}

}  // namespace unisono::shm
