// A rank's queue to itself: sends to one's own rank are captured and handed back by poll().
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

class SelfTransport final : public Transport, private Endpoint {
 public:
  explicit SelfTransport(Rank rank) : rank_(rank) {}

  std::string_view name() const override { return "self"; }
  EndpointTraits traits() const override { return {}; }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return Status(); }
  Endpoint& endpoint(Rank) override { return *this; }
  bool poll(FrameSink& sink) override;
  bool has_unsent() const override { return false; }
  void close(TimePoint, FrameSink&) override { frames_.clear(); }

 private:
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  static constexpr std::size_t kFramesMax = 256;

  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token) override;
  void cancel(std::uint64_t) override {}
  void abandon(const std::byte*, std::size_t) override {}

  Rank rank_;
  std::deque<Frame> frames_;
};

}  // namespace unisono
