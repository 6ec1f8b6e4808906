// See guest_ports.h.
#include "tests/verbs/guest_ports.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "tests/support/rank_job.h"

namespace unisono::test {

std::vector<std::string> guest_devices() {
  std::vector<std::string> devices;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/sys/class/infiniband", error), end;
       !error && entry != end; entry.increment(error)) {
    devices.push_back(entry->path().filename().string());
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

bool set_port(const std::string& device, bool up) {
  const std::string command = "guest-port " + device + (up ? " up" : " down");
  const int status = std::system(command.c_str());
  EXPECT_EQ(status, 0) << command;
  return status == 0;
}

Unplugged::Unplugged(std::vector<std::string> devices) : devices_(std::move(devices)) {
  for (const std::string& device : devices_) set_port(device, false);
}

Unplugged::~Unplugged() {
  for (const std::string& device : devices_) set_port(device, true);
}

std::vector<std::string> kernel_resources() {
  std::vector<std::string> lines;
  std::FILE* pipe = popen("rdma resource show", "r");
  if (pipe == nullptr) throw std::runtime_error("rdma resource show cannot be run");
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) lines.emplace_back(line.data());
  if (pclose(pipe) != 0) throw std::runtime_error("rdma resource show failed");
  return lines;
}

testing::AssertionResult are_back(const std::vector<std::string>& before) {
  const TimePoint deadline = Clock::now() + std::chrono::seconds(5);
  std::vector<std::string> now = kernel_resources();
  while (now != before && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    now = kernel_resources();
  }
  if (now == before) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the kernel had " << testing::PrintToString(before)
                                     << " and has " << testing::PrintToString(now);
}

Environment::Environment(std::initializer_list<std::pair<std::string, std::string>> variables) {
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
}

Environment::~Environment() {
  for (const std::string& name : names_) unsetenv(name.c_str());
}

Error error_of_job(int ranks, const std::string& transport,
                   const std::function<void(Communicator&)>& body) {
  try {
    spawn(ranks, body, {.transport = transport, .timeout = kCallTimeout});
  } catch (const Error& error) {
    return error;
  }
  return Error(Status(), {});
}

void add_up(Communicator& comm, std::size_t count) {
  std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(data, ops::sum);
  const auto expected = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  const auto wrong =
      std::find_if(data.begin(), data.end(), [&](float value) { return value != expected; });
  if (wrong == data.end()) return;
  throw std::runtime_error("element " + std::to_string(wrong - data.begin()) + " of " +
                           std::to_string(count) + " is " + std::to_string(*wrong) + ", not " +
                           std::to_string(expected));
}

}  // namespace unisono::test
