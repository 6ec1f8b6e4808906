// Jobs on several hosts (tests/support/host_job.h) whose ranks have a device. Thread rule: as
// there.
#pragma once

#include <functional>
#include <vector>

#include "tests/cuda/driver_under_test.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/support/host_job.h"

namespace unisono::test {

inline void spawn_device_hosts(const HostJob& job, const std::function<void(Communicator&)>& body) {
  if (fake() != nullptr) cuda::register_kernel_twins(*fake());
  spawn_hosts(job, body);
}
inline void run_device_hosts(const HostJob& job, const std::function<void(Communicator&)>& body) {
  if (fake() != nullptr) cuda::register_kernel_twins(*fake());
  run_hosts(job, body);
}

}  // namespace unisono::test
