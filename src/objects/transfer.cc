#include "objects/transfer.h"

#include <numeric>
#include <string>

namespace unisono::objects {

std::uint64_t sum_of(std::span<const std::uint64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

std::vector<std::uint64_t> small_sizes(std::vector<std::uint64_t> sizes) {
  for (std::uint64_t& size : sizes) {
    if (size > kDirectMin) size = 0;
  }
  return sizes;
}

Agreement announce_part(Communicator& communicator, Announcement own,
                        const std::exception_ptr& failure, const ObjectOptions& options) {
  if (failure == nullptr) return announce(communicator, own, options);
  own.refusal = Refusal::kEncoding;
  try {
    return announce(communicator, own, options);
  } catch (const Error&) {
    std::rethrow_exception(failure);
  }
}

Announcement announcement_of(const Communicator& communicator, Kind kind, const Part& part,
                             Rank root) {
  Announcement own{.kind = kind, .bytes = part.bytes.size(), .root = root};
  if (is_rooted(kind) && (root < 0 || root >= communicator.size())) {
    own.refusal = Refusal::kBadRoot;
  } else if (part.bytes.data() == nullptr && !part.bytes.empty()) {
    own.refusal = Refusal::kNoBytes;
    own.detail = part.bytes.size();
  }
  return own;
}

void tell_shortage(Communicator& communicator, Kind kind, std::uint64_t total,
                   const CallOptions& options, bool is_short) {
  const std::vector<std::uint64_t> shortages =
      exchange_word(communicator, kind, is_short ? 1 : 0, options_of_collectives(options));
  for (std::size_t r = 0; r < shortages.size(); ++r) {
    if (shortages[r] == 0) continue;
    fail(communicator, kind,
         Status(ErrorCode::kOutOfResources,
                "rank " + std::to_string(r) + " has not the memory for its part of " +
                    std::to_string(total) + " bytes of objects; use a stream",
                static_cast<Rank>(r)));
  }
}

void settle(Communicator& communicator, Kind kind, const Stream& stream, const Agreement& agreement,
            const CallOptions& options) {
  Rank failed_rank = -1;
  if (agreement.any_producer) {
    const std::vector<std::uint64_t> failed = exchange_word(
        communicator, kind, stream.producer_failed() ? 1 : 0, options_of_collectives(options));
    for (std::size_t r = 0; r < failed.size() && failed_rank < 0; ++r) {
      if (failed[r] != 0) failed_rank = static_cast<Rank>(r);
    }
  }
  if (stream.callback_failure() != nullptr) std::rethrow_exception(stream.callback_failure());
  if (failed_rank < 0) return;
  fail(communicator, kind,
       Status(ErrorCode::kInvalidArgument,
              "the producer of rank " + std::to_string(failed_rank) +
                  " threw; what came of its object is void",
              failed_rank));
}

}  // namespace unisono::objects
