#include "transports/shm/loan.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "transports/shm/fabric_state.h"

namespace unisono::shm {
namespace {

// Below, the ring's two copies cost less than waiting for the reader.
constexpr std::size_t kLoanBytesMin = std::size_t{32} << 10;
constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

class FabricLoans final : public Loans {
 public:
  FabricLoans(std::shared_ptr<Fabric> fabric, AccessPath access)
      : Loans(access == AccessPath::kWindow ? kNever : kLoanBytesMin),
        fabric_(std::move(fabric)),
        by_single_copy_(access == AccessPath::kSingleCopy) {}

  Loan lend(Rank peer, const FrameHeader& header,
            std::span<const std::byte> payload) const override {
    const bool awaited =
        header.kind == FrameKind::kData && header.frame_class == FrameClass::kPointToPoint;
    if (!awaited) return {};
    return fabric_->lend(fabric_->local_index(peer), payload, by_single_copy_);
  }

  Status collect(Rank peer, const Loan& loan, std::span<std::byte> out) const override {
    return fabric_->collect(fabric_->local_index(peer), loan, out);
  }

 private:
  std::shared_ptr<Fabric> fabric_;
  bool by_single_copy_;
};

}  // namespace

std::unique_ptr<Loans> make_loans(std::shared_ptr<Fabric> fabric, AccessPath access) {
  return std::make_unique<FabricLoans>(std::move(fabric), access);
}

Loan Fabric::lend(int to, std::span<const std::byte> payload, bool by_single_copy) const {
  const auto address = reinterpret_cast<std::uint64_t>(payload.data());
  if (state_->same_process[static_cast<std::size_t>(to)]) return {LoanPath::kPointer, address};
  std::uint64_t offset = 0;
  if (state_->heap->locate(payload.data(), payload.size(), &offset)) {
    return {LoanPath::kHeap, offset};
  }
  if (by_single_copy && state_->can_read(to, self())) return {LoanPath::kSingleCopy, address};
  return {};
}

Status Fabric::collect(int from, const Loan& loan, std::span<std::byte> out) const {
  const Rank rank = world_rank(from);
  switch (loan.path) {
    case LoanPath::kPointer:
      if (!state_->same_process[static_cast<std::size_t>(from)]) break;
      std::memcpy(out.data(), reinterpret_cast<const void*>(loan.address), out.size());
      return {};
    case LoanPath::kHeap: {
      UNISONO_ASSIGN(const std::byte* const bytes,
                     state_->in_heap_of(from, rank, loan.address, out.size()));
      std::memcpy(out.data(), bytes, out.size());
      return {};
    }
    case LoanPath::kSingleCopy:
      return state_->read(from, rank, loan.address, out);
    case LoanPath::kNone:
      break;
  }
  return Status(ErrorCode::kProtocol,
                "rank " + std::to_string(rank) + " lends its memory in a way (" +
                    std::to_string(static_cast<int>(loan.path)) + ") that this rank cannot use",
                rank);
}

}  // namespace unisono::shm
