// What the tests of the stream transport share: a sink that writes everything down and holds the
// transport to its contract, and ranks in one thread that are polled in turn until something holds.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::test {

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::byte> out(bytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& each : out) {
    state = state * 1664525u + 1013904223u;
    each = static_cast<std::byte>(state >> 24);
  }
  return out;
}

class RecordingSink final : public FrameSink {
 public:
  struct Frame {
    Rank peer;
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  std::vector<Frame> frames;
  std::vector<std::uint64_t> sent_tokens;
  std::map<Rank, Status> closed_causes;
  std::function<Placement::Kind(const FrameHeader&)> choose = [](const FrameHeader&) {
    return Placement::Kind::kInto;
  };

  Placement place(Rank peer, const FrameHeader& header) override {
    EXPECT_EQ(closed_causes.count(peer), 0u) << "a frame after closed()";
    Frame& frame = open_[{peer, header.sequence, header.offset}];
    frame = {peer, header, std::vector<std::byte>(header.payload_bytes)};
    kind_ = choose(header);
    return {kind_, kind_ == Placement::Kind::kInto ? frame.payload.data() : nullptr};
  }
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override {
    Frame& frame = open_.at({peer, header.sequence, header.offset});
    EXPECT_EQ(offset % 64, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.data()) % 64, 0u);
    ASSERT_LE(offset + piece.size(), frame.payload.size());
    std::memcpy(frame.payload.data() + offset, piece.data(), piece.size());
  }
  void received(Rank peer, const FrameHeader& header) override {
    const auto found = open_.find({peer, header.sequence, header.offset});
    ASSERT_NE(found, open_.end()) << "received() without place()";
    frames.push_back(std::move(found->second));
    open_.erase(found);
  }
  void sent(Rank, std::uint64_t token) override { sent_tokens.push_back(token); }
  void closed(Rank peer, const Status& cause) override {
    EXPECT_TRUE(closed_causes.emplace(peer, cause).second) << "closed() twice";
  }

 private:
  // A frame is known by its peer, sequence and offset; the tests keep them apart.
  std::map<std::tuple<Rank, std::uint64_t, std::uint64_t>, Frame> open_;
  Placement::Kind kind_ = Placement::Kind::kDiscard;
};

inline FrameHeader frame_of(std::uint64_t sequence, std::size_t bytes,
                            FrameKind kind = FrameKind::kEager) {
  FrameHeader header;
  header.kind = kind;
  header.sequence = sequence;
  header.payload_bytes = static_cast<std::uint32_t>(bytes);
  return header;
}

inline StreamOptions options_for(Rank rank, int size, StreamOptions::Family family) {
  StreamOptions options;
  options.family = family;
  options.rank = rank;
  options.size = size;
  options.job_id = "stream-test";
  options.key = JobKey::from_text("a key of this test only").value();
  options.bind_address = "127.0.0.1";
  return options;
}

/// Ranks in this thread.
class Job {
 public:
  using Change = std::function<void(StreamOptions*)>;

  explicit Job(int size, StreamOptions::Family family = StreamOptions::Family::kTcp,
               const Change& change = nullptr)
      : family(family) {
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < size; ++rank) {
      StreamOptions options = options_for(rank, size, family);
      if (change) change(&options);
      auto made = make_stream_transport(options);
      EXPECT_TRUE(made.has_value()) << made.status().message();
      addresses.push_back((*made)->address());
      transports.push_back(std::move(*made));
      sinks.push_back(std::make_unique<RecordingSink>());
    }
    for (auto& transport : transports) EXPECT_TRUE(transport->set_peers(addresses).ok());
  }

  bool poll() {
    bool moved = false;
    for (std::size_t rank = 0; rank < transports.size(); ++rank) {
      if (transports[rank]) moved = transports[rank]->poll(*sinks[rank]) || moved;
    }
    return moved;
  }
  /// False when ten seconds were not enough.
  bool until(const std::function<bool()>& holds) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
    while (!holds()) {
      poll();
      if (Clock::now() > deadline) return false;
    }
    return true;
  }
  /// Posts; polls while the transport is full.
  PostResult post(Rank from, Rank to, const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t token) {
    PostResult result = PostResult::kFull;
    until([&] {
      result = transports[from]->endpoint(to).post_send(header, payload, token);
      return result != PostResult::kFull;
    });
    return result;
  }

  const StreamOptions::Family family;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<RecordingSink>> sinks;
};

/// Gathers warnings and errors while it lives, instead of leaving them to chance.
class LogRecorder {
 public:
  LogRecorder() {
    lines().clear();
    log::set_level(log::Level::kOff);
    log::set_hook([](log::Level, std::string_view line) { lines().emplace_back(line); });
  }
  ~LogRecorder() {
    log::set_hook(nullptr);
    log::set_level(log::Level::kWarning);
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> kept;
    return kept;
  }
  static bool has(std::string_view part) {
    for (const std::string& line : lines()) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

}  // namespace unisono::test
