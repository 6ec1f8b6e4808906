// A rank's program as the tests of device collectives see it: a context, a stream and device memory
// of the user's own, and jobs whose ranks have a device.
// Thread rule: each rank has its own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/collective/collective_case.h"
#include "tests/cuda/driver_under_test.h"
#include "unisono/unisono.hpp"

namespace unisono::test {

class DeviceUser final : public CaseMemory {
 public:
  static constexpr std::size_t kArenaBytes = std::size_t{64} << 20;

  explicit DeviceUser(int ordinal = 0);
  ~DeviceUser() override;
  DeviceUser(const DeviceUser&) = delete;

  CUstream stream() const { return stream_; }
  CaseMemory& memory() { return *this; }

  std::byte* take(std::size_t bytes) override;
  void clear() override { used_ = 0; }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void read(std::byte* to, const std::byte* from, std::size_t bytes) override;
  /// Waits for the stream.
  void finish() override;

  template <typename T>
  T* make(const std::vector<T>& values) {
    std::byte* const place = take(values.size() * sizeof(T));
    write(place, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T));
    return reinterpret_cast<T*>(place);
  }
  template <typename T>
  std::vector<T> look(const T* place, std::size_t count) {
    std::vector<T> values(count);
    read(reinterpret_cast<std::byte*>(values.data()), reinterpret_cast<const std::byte*>(place),
         count * sizeof(T));
    return values;
  }

 private:
  void check(CUresult result, const char* what) const;

  std::shared_ptr<const cuda::CudaApi> api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr arena_ = 0;
  std::size_t used_ = 0;
};

struct DeviceJob {
  int ranks = 2;
  bool processes = false;
  std::string transport = "auto";
  std::vector<int> devices = {0};  ///< SpawnOptions::devices
};

/// Of the verification matrix; under a sanitizer every third of them, unless TEST_FULL=1.
std::vector<CollectiveCase> device_cases(std::size_t job, int ranks);
/// How many ranks the cases are run with; fewer ways under a sanitizer, unless TEST_FULL=1.
std::vector<int> device_rank_counts();

/// Ranks that use these devices; what a body throws fails the test.
void run_device_ranks(const DeviceJob& job, const std::function<void(Communicator&)>& body);

/// Ranks that are threads, and a thread that makes the calls of all of them meanwhile: `calls`, of
/// which what it throws fails the test.
void run_for_device_ranks(const DeviceJob& job,
                          const std::function<void(const std::vector<Communicator*>&)>& calls);

/// In a rank that is a process a complaint is what it throws.
void require(bool holds, const std::string& complaint);

/// The case in the user's stream and memory; throws what is wrong with its result.
void run_one(Communicator& comm, CollectiveCase c, DeviceUser& user);

/// What the call throws; "" when it does not.
template <typename Body>
std::string failure_of(const Body& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return std::string(name_of(error.code())) + ": " + error.what();
  }
}

}  // namespace unisono::test
