// Bare all-reduces of two processes, without any library: what is left when everything but the
// movement and the addition is gone. Timed as the libraries are, hot and cold.
#include <memory>

#include "bench/peers/limits_sockets.h"
#include "bench/peers/limits_stage.h"

namespace limits {
namespace {

// ---- Over sockets -----------------------------------------------------------------------------

/// One stream's part of the buffer: sent from the input, received into a scratch piece that stays
/// in the cache, added at once.
class StreamPart {
 public:
  StreamPart(int socket) : socket_(socket), scratch_(kPiece / sizeof(float)) {}

  void start(const float* in, float* out, std::size_t count) {
    in_ = in;
    out_ = out;
    bytes_ = count * sizeof(float);
    sent_ = added_ = pending_ = 0;
  }
  bool is_done() const { return sent_ == bytes_ && added_ == bytes_; }
  void advance() {
    if (sent_ < bytes_) {
      const auto* data = reinterpret_cast<const char*>(in_) + sent_;
      const ssize_t sent =
          send(socket_, data, std::min(kPiece, bytes_ - sent_), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) sent_ += static_cast<std::size_t>(sent);
    }
    if (added_ == bytes_) return;
    auto* const scratch = reinterpret_cast<char*>(scratch_.data());
    const std::size_t room = std::min(kPiece, bytes_ - added_) - pending_;
    const ssize_t got = recv(socket_, scratch + pending_, room, MSG_DONTWAIT);
    if (got > 0) take(static_cast<std::size_t>(got));
  }

 private:
  static constexpr std::size_t kPiece = 256 << 10;

  /// Adds the whole elements that have arrived and keeps the rest.
  void take(std::size_t got) {
    pending_ += got;
    const std::size_t count = pending_ / sizeof(float), first = added_ / sizeof(float);
    add(out_ + first, in_ + first, scratch_.data(), count);
    added_ += count * sizeof(float);
    pending_ -= count * sizeof(float);
    std::memmove(scratch_.data(), scratch_.data() + count, pending_);
  }

  int socket_;
  std::vector<float> scratch_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  std::size_t bytes_ = 0, sent_ = 0, added_ = 0, pending_ = 0;
};

class SocketExchange : public RotatingFloats {
 public:
  SocketExchange(const Slots& slots, int rank, std::size_t bytes, const std::vector<int>& sockets)
      : RotatingFloats(slots, rank, bytes), parts_(sockets.begin(), sockets.end()) {}
  void run() {
    const std::size_t count = bytes_ / sizeof(float), share = count / parts_.size();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t first = i * share;
      const bool is_last = i + 1 == parts_.size();
      parts_[i].start(in() + first, out() + first, is_last ? count - first : share);
    }
    for (bool is_done = false; !is_done;) {
      is_done = true;
      for (StreamPart& part : parts_) {
        if (part.is_done()) continue;
        part.advance();
        is_done = is_done && part.is_done();
      }
    }
  }

 private:
  std::vector<StreamPart> parts_;
};

// ---- Over mapped memory -----------------------------------------------------------------------

/// Both processes map both ranks' buffers: each adds one half on its core, then copies the other.
class MappedExchange : public RotatingFloats {
 public:
  MappedExchange(const Slots& own, const Slots& other, int rank, std::size_t bytes, Line* lines,
                 bool streams)
      : RotatingFloats(own, rank, bytes),
        other_(other),
        rank_(static_cast<std::size_t>(rank)),
        lines_(lines),
        streams_(streams) {}
  void run() {
    const auto* other_in = reinterpret_cast<const float*>(other_.in(slot_));
    const auto* other_out = reinterpret_cast<const float*>(other_.out(slot_));
    const std::size_t half = bytes_ / sizeof(float) / 2;
    meet();  // the other's input is there
    add(out() + rank_ * half, in() + rank_ * half, other_in + rank_ * half, half);
    meet();
    const std::size_t rest = (1 - rank_) * half;
    if (streams_) {
      copy_streaming(out() + rest, other_out + rest, half);
    } else {
      std::memcpy(out() + rest, other_out + rest, half * sizeof(float));
    }
    meet();  // nobody reads this rank's buffers any more
  }

 private:
  void meet() {
    lines_[rank_].word.store(++round_, std::memory_order_release);
    await(lines_[1 - rank_], round_);
  }

  Slots other_;
  std::size_t rank_;
  Line* lines_;
  bool streams_;
  std::uint32_t round_ = 0;
};

// ---- Two ranks --------------------------------------------------------------------------------

void measure_sockets_of(Stage& stage, bool is_unix, std::size_t streams, std::size_t bytes) {
  std::vector<std::unique_ptr<SocketPair>> pairs;
  for (std::size_t i = 0; i < streams; ++i) pairs.push_back(std::make_unique<SocketPair>(is_unix));
  const auto make = [&](int rank, bool cold) {
    std::vector<int> ends;
    for (const auto& pair : pairs) ends.push_back((*pair)[rank]);
    return SocketExchange(stage.slots(rank, bytes, cold), rank, bytes, ends);
  };
  const std::string variant =
      std::to_string(streams) + (streams == 1 ? " stream" : " streams") + ", polled, add";
  measure_stage(stage, is_unix ? "unix_exchange" : "tcp_exchange", variant, bytes, make);
}

}  // namespace

void measure_exchanges() {
  Stage stage;
  if (stage.page == nullptr) return;
  for (const bool is_unix : {false, true}) {
    for (const std::size_t streams : {1, 2}) {
      for (std::size_t bytes = 4; bytes <= kLargest; bytes *= 4) {
        if (bytes / sizeof(float) >= streams) measure_sockets_of(stage, is_unix, streams, bytes);
      }
    }
  }
  for (const bool streams : {false, true}) {
    for (std::size_t bytes = 4 << 10; bytes <= kLargest; bytes *= 4) {
      const auto make = [&](int rank, bool cold) {
        return MappedExchange(stage.slots(rank, bytes, cold), stage.slots(1 - rank, bytes, cold),
                              rank, bytes, stage.lines, streams);
      };
      measure_stage(stage, "mapped_all_reduce",
                    streams ? "add, streaming copy, both cores" : "add, copy, both cores", bytes,
                    make);
    }
  }
}

}  // namespace limits
