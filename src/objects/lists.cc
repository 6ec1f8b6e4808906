// Lists of elements: plain ones straight into the result, others cut out of the stream as they
// arrive.
#include <cstring>
#include <numeric>

#include "comm/kept_communicator.h"
#include "objects/transfer.h"

namespace unisono::detail {
namespace {

using namespace objects;

constexpr std::size_t kFrameBytes = sizeof(std::uint64_t);

std::uint64_t frame_size(std::span<const std::byte> bytes) {
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  return size;
}

// One source's stream of elements, each behind its size. Holds the part of one that has come.
class FrameReader {
 public:
  using Take = std::function<void(Rank source, std::span<const std::byte> element)>;

  void read(const ObjectPiece& piece, const Take& take) {
    std::span<const std::byte> bytes = piece.bytes;
    while (!bytes.empty()) {
      const bool is_whole = pending_.empty() && bytes.size() >= kFrameBytes &&
                            checked_size(bytes, piece) <= bytes.size() - kFrameBytes;
      if (is_whole) {
        const std::size_t size = frame_size(bytes);
        take(piece.source, bytes.subspan(kFrameBytes, size));
        bytes = bytes.subspan(kFrameBytes + size);
        begin_ += kFrameBytes + size;
        continue;
      }
      bytes = bytes.subspan(append(bytes, piece));
      if (pending_.size() < kFrameBytes ||
          pending_.size() - kFrameBytes < checked_size(pending_, piece)) {
        continue;
      }
      take(piece.source, std::span<const std::byte>(pending_).subspan(kFrameBytes));
      begin_ += pending_.size();
      pending_.clear();
    }
    if (piece.offset + piece.bytes.size() == piece.size && !pending_.empty()) {
      refuse(piece.source, "ends within an element");
    }
  }

 private:
  // No further than the frame or the element's end, and never more than has really come.
  std::size_t append(std::span<const std::byte> bytes, const ObjectPiece& piece) {
    std::uint64_t want = kFrameBytes;
    if (pending_.size() >= kFrameBytes) want += checked_size(pending_, piece);
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(want - pending_.size(), bytes.size()));
    pending_.insert(pending_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  std::uint64_t checked_size(std::span<const std::byte> frame, const ObjectPiece& piece) const {
    const std::uint64_t size = frame_size(frame);
    const std::uint64_t left = piece.size - begin_ - kFrameBytes;
    if (size > left) {
      refuse(piece.source, "has an element of " + std::to_string(size) + " bytes where " +
                               std::to_string(left) + " bytes are left");
    }
    return size;
  }

  [[noreturn]] static void refuse(Rank source, const std::string& what) {
    throw Error(Status(ErrorCode::kProtocol,
                       "the list of rank " + std::to_string(source) + " " + what, source),
                {.host = "", .link = "", .operation = "all_gather_list"});
  }

  std::uint64_t begin_ = 0;  // of the current element, in the object
  std::vector<std::byte> pending_;
};

}  // namespace

void all_gather_plain(Communicator& caller, const PlainList& list,
                      const std::function<std::byte*(std::uint64_t bytes)>& allocate,
                      const ObjectOptions& options) {
  constexpr Kind kKind = Kind::kPlainList;
  KeptCommunicator communicator(caller);
  check_member(communicator, kKind);
  const Part part{.bytes = list.bytes, .failure = list.failure};
  Announcement own = announcement_of(communicator, kKind, part, -1);
  own.element_bytes = static_cast<std::uint32_t>(list.element_bytes);
  const Agreement agreement = announce_part(communicator, own, part.failure, options);
  const CallOptions inner = options_of_collectives(options.call);
  const std::uint64_t total = sum_of(agreement.bytes);
  std::byte* out = nullptr;
  allocate_result(communicator, kKind, total, inner, [&] { out = allocate(total); });
  move_guarded(communicator, kKind, [&] {
    Rounds rounds(agreement.bytes, std::max(agreement.staging, kDirectMin));
    std::vector<std::size_t> begins(agreement.bytes.size());
    std::exclusive_scan(agreement.bytes.begin(), agreement.bytes.end(), begins.begin(),
                        std::size_t{0});
    std::vector<std::size_t> places(begins.size());
    const auto rank = static_cast<std::size_t>(communicator.rank());
    while (rounds.next()) {
      for (std::size_t r = 0; r < places.size(); ++r) places[r] = begins[r] + rounds.offsets()[r];
      const std::byte* in =
          rounds.counts()[rank] == 0 ? nullptr : part.bytes.data() + rounds.offsets()[rank];
      communicator.all_gather_v(in, out, rounds.counts(), places, DataType::kUint8, inner);
    }
  });
}

void all_gather_framed(
    Communicator& caller, const Encoded& list,
    const std::function<void(Rank source, std::span<const std::byte> element)>& take,
    const ObjectOptions& options) {
  constexpr Kind kKind = Kind::kFramedList;
  KeptCommunicator communicator(caller);
  check_member(communicator, kKind);
  const Part part{.bytes = list.bytes, .failure = list.failure};
  const Agreement agreement = announce_part(
      communicator, announcement_of(communicator, kKind, part, -1), part.failure, options);
  const CallOptions inner = options_of_collectives(options.call);
  const ObjectSource source(part.bytes);
  std::vector<FrameReader> readers;
  move_guarded(communicator, kKind, [&] { readers.resize(agreement.bytes.size()); });
  const ObjectSink sink = [&](const ObjectPiece& piece) {
    readers[static_cast<std::size_t>(piece.source)].read(piece, take);
  };
  Stream stream(communicator, Pattern::kAllGather, -1, source, &sink, inner);
  move_guarded(communicator, kKind, [&] { stream.run(agreement.bytes, agreement.staging); });
  settle(communicator, kKind, stream, agreement, inner);
}

}  // namespace unisono::detail
