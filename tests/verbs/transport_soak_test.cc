// Everything at once, at random: three ranks that send each other frames of all sizes while ports
// go down and come back, buffers are taken back and devices stand still. The witnesses check order
// and content. TEST_FULL=1 goes on for longer.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/seed.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using unisono::test::below;

constexpr int kRanks = 3;

class Soak {
 public:
  Soak(std::uint64_t seed, bool forget)
      : random_(unisono::test::random_stream(seed)), world_(shape(seed, forget)) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      move();
      world_.turns(static_cast<int>(below(random_, 4)));
      if (testing::Test::HasFailure()) return;
    }
    std::uint64_t epochs = 0;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      world_.network().release(rank);
      epochs += world_.verbs(rank).work_counts().epochs;
    }
    EXPECT_GT(epochs, 3u * kRanks) << "links never had to move";
    finish();
  }

 private:
  static WorldShape shape(std::uint64_t seed, bool forget) {
    WorldShape shape{.ranks = kRanks, .ports = 2};
    shape.options.ring_bytes = 64 * 1024;
    shape.options.queue_pairs = 1 + static_cast<int>(seed % 2);
    shape.options.message_bytes_max = seed % 3 == 0 ? 8192 : 0;
    shape.network.seed = seed;
    shape.network.piece_bytes_max = 16 * 1024;
    shape.network.forget_completions_of_destroyed = forget;
    return shape;
  }

  Rank any_rank() { return static_cast<Rank>(below(random_, kRanks)); }
  std::pair<Rank, Rank> any_pair() {
    const Rank from = any_rank();
    return {from, (from + 1 + static_cast<Rank>(below(random_, kRanks - 1))) % kRanks};
  }

  void move() {
    const auto [from, to] = any_pair();
    switch (below(random_, 40)) {
      case 0:
        world_.cancel_one(from, to);
        break;
      case 1:
        world_.cancel_all(from, to);
        break;
      case 2:
        abandon(from, to);
        break;
      case 3:
        world_.network().hold(from);
        break;
      case 4:
      case 5:
        world_.network().release(from);
        break;
      case 6:
        port_goes_down_or_up(from);
        break;
      default:
        send(from, to);
    }
  }

  void send(Rank from, Rank to) {
    std::size_t bytes = below(random_, 200);
    if (below(random_, 3) == 0) bytes = below(random_, kFramePayloadMax + 1);
    const FrameKind kind = below(random_, 2) == 0 ? FrameKind::kData : FrameKind::kEager;
    world_.try_send(from, to, {.bytes = bytes, .kind = kind});
  }

  void abandon(Rank from, Rank to) {
    const std::span<std::byte> memory = world_.witness(to).memory_in_use(from);
    if (memory.empty()) return;
    world_.verbs(to).endpoint(from).abandon(memory.data(), memory.size());
    world_.witness(to).expect_abandoned(from);
  }

  // Port 1 of every host stays, port 0 comes and goes.
  void port_goes_down_or_up(Rank host) {
    bool& up = up_[static_cast<std::size_t>(host)];
    up = !up;
    world_.network().set_link(host, 0, up);
  }

  // What was sent arrives, but for what was taken back before it left.
  void finish() {
    std::array<std::array<std::uint64_t, kRanks>, kRanks> last{};
    for (Rank from = 0; from < kRanks; ++from) {
      for (Rank to = 0; to < kRanks; ++to) {
        if (from == to) continue;
        ASSERT_TRUE(world_.send(from, to, {.bytes = 8}));
        last[from][to] = world_.sent(from, to) - 1;
      }
    }
    const auto all_here = [&] {
      for (Rank from = 0; from < kRanks; ++from) {
        for (Rank to = 0; to < kRanks; ++to) {
          if (from == to) continue;
          const auto& frames = world_.witness(to).frames(from);
          if (frames.empty() || frames.back().sequence != last[from][to]) return false;
          if (world_.witness(from).tokens_outstanding(to) > 0) return false;
        }
      }
      return true;
    };
    ASSERT_TRUE(world_.pump_until(all_here, "the last frames"));
    world_.close_all();
  }

  std::mt19937_64 random_;
  World world_;
  std::array<bool, kRanks> up_{true, true, true};
};

TEST(Soak, EverythingAtOnce) {
  const unisono::test::SeedTrace trace;
  const std::uint64_t rounds =
      unisono::test::is_full_run() ? (unisono::test::is_sanitized() ? 60 : 400) : 12;
  for (std::uint64_t seed = 1; seed <= rounds && !HasFailure(); ++seed) {
    SCOPED_TRACE("stream " + std::to_string(seed));
    LogGuard log;
    log.expect("fake");
    Soak soak(seed, seed % 4 < 2);
    soak.run(500);
  }
}

}  // namespace
}  // namespace unisono::verbs::test
