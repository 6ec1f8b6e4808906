// What object calls cost in memory, as the kernel counts it: ranks as processes.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "tests/support/rank_job.h"
#include "tests/support/watchdog.h"
#include "unisono/objects.h"

namespace unisono::test {
namespace {

constexpr std::uint64_t kMib = 1 << 20;
constexpr std::uint64_t kBlock = 4096;

// The number behind `name` in /proc/self/status, in bytes.
std::uint64_t memory(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == name && file >> kib) return kib * 1024;
  }
  throw std::runtime_error("the kernel does not tell " + name);
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Blocks of equal bytes, that tell rank and block: quick to make and to check.
int block_byte(Rank rank, std::uint64_t offset) {
  return static_cast<int>((static_cast<std::uint64_t>(rank) * 67 + offset / kBlock) % 251);
}

ObjectSource produced(Rank rank, std::uint64_t bytes) {
  return {bytes, [rank](std::uint64_t offset, std::span<std::byte> room) {
            for (std::size_t done = 0; done < room.size();) {
              const std::uint64_t at = offset + done;
              const std::size_t count = std::min(room.size() - done, kBlock - at % kBlock);
              std::memset(room.data() + done, block_byte(rank, at), count);
              done += count;
            }
          }};
}

class Counter {
 public:
  ObjectSink sink() {
    return [this](const ObjectPiece& piece) {
      for (std::size_t i = 0; i < piece.bytes.size(); i += 64) {
        require(
            piece.bytes[i] == static_cast<std::byte>(block_byte(piece.source, piece.offset + i)),
            "a byte is wrong");
      }
      bytes_ += piece.bytes.size();
    };
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

constexpr int kRanks = 4;

// Over a rank's life from before its first call; the peak is all that it ever held.
template <typename Run>
void expect_small_peak(const char* transport, const char* what, std::uint64_t total,
                       const Run& run) {
  spawn_processes(kRanks, transport, [&](Communicator& comm) {
    const std::uint64_t before = memory("VmRSS:");
    run(comm, total / kRanks);
    const std::uint64_t raised = memory("VmHWM:") - std::min(before, memory("VmHWM:"));
    std::printf("%s of %.0f MiB over %s: rank %d rose by %.1f MiB\n", what,
                static_cast<double>(total) / kMib, transport, comm.rank(),
                static_cast<double>(raised) / kMib);
    std::fflush(stdout);
    if (is_sanitized()) return;
    require(raised <= 64 * kMib, "rank " + std::to_string(comm.rank()) + " rose by " +
                                     std::to_string(raised / kMib) + " MiB");
  });
}

std::uint64_t total_bytes() {
  if (!is_sanitized()) return 2048 * kMib;
  std::printf("a sanitizer keeps shadow memory: peaks are not judged, and 64 MiB must do\n");
  return 64 * kMib;
}

class StreamMemory : public testing::TestWithParam<const char*> {};

TEST_P(StreamMemory, OfGatheringTwoGibibytesIsBounded) {
  expect_small_peak(
      GetParam(), "a gather", total_bytes(), [](Communicator& comm, std::uint64_t bytes) {
        Counter counter;
        stream_gather_objects(comm, produced(comm.rank(), bytes), 1, counter.sink());
        require(counter.bytes() == (comm.rank() == 1 ? kRanks * bytes : 0), "bytes are missing");
      });
}

TEST_P(StreamMemory, OfAllGatheringAndBroadcastingIsBounded) {
  expect_small_peak(
      GetParam(), "an all-gather and a broadcast", total_bytes() / 8,
      [](Communicator& comm, std::uint64_t bytes) {
        Counter all;
        stream_all_gather_objects(comm, produced(comm.rank(), bytes), all.sink());
        require(all.bytes() == kRanks * bytes, "bytes are missing");
        Counter one;
        stream_broadcast_object(comm, produced(comm.rank(), 2 * bytes), 2, one.sink());
        require(one.bytes() == (comm.rank() == 2 ? 0 : 2 * bytes), "bytes are missing");
      });
}

TEST_P(StreamMemory, OfStagingIsGivenBackAfterTheCall) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep freed memory";
  spawn_processes(3, GetParam(), [](Communicator& comm) {
    const ObjectOptions options{.staging_bytes = 96 * kMib};
    const auto gather_bytes = [&](std::uint64_t bytes) {
      Counter counter;
      stream_all_gather_objects(comm, produced(comm.rank(), bytes), counter.sink(), options);
    };
    gather_bytes(kMib);
    const std::uint64_t before = memory("VmRSS:");
    gather_bytes(40 * kMib);
    const std::uint64_t after = memory("VmRSS:");
    // It was there, or this test shows nothing.
    require(memory("VmHWM:") >= before + 80 * kMib, "the staging was never used");
    require(after <= before + 8 * kMib, std::to_string((after - before) / kMib) + " MiB were kept");
  });
}

// A failed call keeps nothing either.
TEST_P(StreamMemory, OfStagingIsGivenBackAfterACallbackThrew) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep freed memory";
  spawn_processes(2, GetParam(), [](Communicator& comm) {
    const ObjectOptions options{.staging_bytes = 64 * kMib};
    const auto fail = [&] {
      try {
        stream_all_gather_objects(
            comm, produced(comm.rank(), 40 * kMib), [](const ObjectPiece&) { throw 1; }, options);
      } catch (int) {
      }
    };
    fail();
    const std::uint64_t before = memory("VmRSS:");
    fail();
    require(memory("VmRSS:") <= before + 8 * kMib, "the staging was kept");
    require(memory("VmHWM:") >= before + 40 * kMib, "the staging was never used");
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, StreamMemory, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// The result and, for the packed ones, a bounded staging: no second copy of a large object.
TEST(BytesMemory, OfALargeObjectIsHeldOnce) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep shadow memory";
  spawn_processes(3, "shm", [](Communicator& comm) {
    const std::uint64_t bytes = comm.rank() == 0 ? 0 : 100 * kMib;
    const ObjectBytes object(bytes, std::byte{7});
    const std::uint64_t before = memory("VmRSS:");
    const auto all = gather_objects(comm, object, 0);
    const std::uint64_t raised = memory("VmHWM:") - before;
    require(raised <= (comm.rank() == 0 ? 232 : 32) * kMib,
            "rank " + std::to_string(comm.rank()) + " rose by " + std::to_string(raised / kMib) +
                " MiB");
    if (comm.rank() == 0) require(all[2] == ObjectBytes(100 * kMib, std::byte{7}), "wrong bytes");
  });
}

}  // namespace
}  // namespace unisono::test
