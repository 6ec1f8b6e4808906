// What ranks and communicators cost in memory, as the kernel counts it, and counts beyond 2^31.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/support/rank_job.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr long kMib = 1024;  // in KiB

// The number behind `name` of a /proc file, in KiB; 0 when it is not there.
long read_kib(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    long value = 0;
    if (word == name && file >> value) return value;
  }
  return 0;
}

// Shared pages count by their share, so the sum over processes is what the machine gives.
long memory_kib() { return read_kib("/proc/self/smaps_rollup", "Pss:"); }

TEST(Memory, OfEightLocalRanksStaysBelowSixteenMebibytesEach) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep shadow memory";
  const auto body = [](Communicator& comm) {
    {
      std::vector<float> data(1 << 19, 1.0f);
      std::vector<float> other(data.size());
      comm.all_reduce(data, other, ops::sum);
      comm.broadcast(data, 0);
      comm.all_to_all(data.data(), other.data(), data.size() / 8, DataType::kFloat32);
      // Rings to and from everyone, written once around.
      for (int distance = 1; distance < comm.size(); ++distance) {
        const Rank from = (comm.rank() + comm.size() - distance) % comm.size();
        Request request = comm.receive_async(other.data(), other.size(), DataType::kFloat32, from);
        comm.send(data, (comm.rank() + distance) % comm.size());
        request.wait();
      }
    }
    comm.barrier();
    const long used = memory_kib();
    comm.barrier();
    if (comm.rank() == 0)
      std::printf("a rank of eight holds %.1f MiB\n", static_cast<double>(used) / 1024);
    if (used == 0) throw std::runtime_error("the kernel does not tell");
    if (used >= 16 * kMib) {
      throw std::runtime_error("rank " + std::to_string(comm.rank()) + " holds " +
                               std::to_string(used / kMib) + " MiB");
    }
  };
  try {
    spawn(8, body, {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout});
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(Memory, OfAHundredCommunicatorsStaysBelow256Mebibytes) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep shadow memory";
  for (const char* transport : {"auto", "tcp"}) {
    run_ranks(4, transport, [transport](Communicator& comm) {
      const long before = memory_kib();
      std::vector<Communicator> many;
      for (int i = 0; i < 100; ++i) many.push_back(comm.duplicate());
      std::vector<float> data(4000, 1.0f);
      for (Communicator& each : many) each.all_reduce(data, ops::max);
      comm.barrier();
      const long used = memory_kib() - before;
      comm.barrier();
      if (comm.rank() != 0) return;
      std::printf("100 communicators of 4 ranks over %s: %.1f MiB\n", transport,
                  static_cast<double>(used) / 1024);
      EXPECT_LT(used, 256 * kMib);
    });
  }
}

TEST(Memory, ComesBackWhenCommunicatorsClose) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep freed memory";
  run_ranks(2, "auto", [](Communicator& comm) {
    const auto make_and_close = [&] {
      for (int i = 0; i < 100; ++i) {
        Communicator part = comm.duplicate();
        std::vector<float> data(100'000, 1.0f);
        part.all_reduce(data, ops::sum);
      }
    };
    make_and_close();
    comm.barrier();
    const long before = memory_kib();
    make_and_close();
    comm.barrier();
    EXPECT_LT(memory_kib() - before, 32 * kMib);
    comm.barrier();
  });
}

TEST(Memory, OfClosedCommunicatorsIsNotKept) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers keep freed memory";
  run_ranks(2, "loopback", [](Communicator& comm) {
    const auto make_and_close = [&] {
      for (int i = 0; i < 2000; ++i) {
        Communicator part = comm.duplicate();
        part.barrier();
      }
    };
    make_and_close();
    comm.barrier();
    const long before = memory_kib();
    make_and_close();
    comm.barrier();
    // Two ranks and 2000 communicators: below 512 bytes each.
    EXPECT_LT(memory_kib() - before, 2 * kMib);
    comm.barrier();
  });
}

// 2^31 + 8 bytes that are only there where written.
class HugeBuffer {
 public:
  explicit HugeBuffer(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::runtime_error("no memory for a huge buffer");
  }
  ~HugeBuffer() { munmap(data_, bytes_); }
  HugeBuffer(const HugeBuffer&) = delete;
  std::int8_t* data() { return static_cast<std::int8_t*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(Counts, BeyondTwoToThe31Work) {
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 8;
  const long available = read_kib("/proc/meminfo", "MemAvailable:");
  if (is_sanitized()) GTEST_SKIP() << "too slow under a sanitizer";
  if (available < 7 * 1024 * kMib) {
    GTEST_SKIP() << "needs 7 GiB of free memory; " << available / 1024 << " MiB are there";
  }
  run_ranks(2, "auto", [](Communicator& comm) {
    const CallOptions patient{.timeout = std::chrono::seconds(100)};
    HugeBuffer data(kCount);
    std::fill(data.data(), data.data() + kCount, static_cast<std::int8_t>(comm.rank() + 1));
    data.data()[kCount - 1] = static_cast<std::int8_t>(comm.rank() + 10);
    comm.all_reduce(data.data(), data.data(), kCount, DataType::kInt8, ops::sum, patient);
    const auto wrong = std::find_if(data.data(), data.data() + kCount - 1,
                                    [](std::int8_t value) { return value != 3; });
    EXPECT_EQ(wrong - data.data(), static_cast<std::ptrdiff_t>(kCount - 1));
    EXPECT_EQ(data.data()[kCount - 1], 21);
  });
}

}  // namespace
}  // namespace unisono::test
