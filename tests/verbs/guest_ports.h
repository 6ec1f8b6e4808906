// What the tests that run in a guest of tests/vm know about its devices: which there are, how a
// port is unplugged, and what the kernel counts on them. One thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "unisono/unisono.hpp"

namespace unisono::test {

/// "rxe0", "rxe1", ...: of this kernel, whether usable or not.
std::vector<std::string> guest_devices();

/// As a cable that is pulled or put back; false, with the test failed, where that did not work.
bool set_port(const std::string& device, bool up);

/// Takes ports down while it lives.
class Unplugged {
 public:
  explicit Unplugged(std::vector<std::string> devices);
  ~Unplugged();
  Unplugged(const Unplugged&) = delete;
  Unplugged& operator=(const Unplugged&) = delete;

 private:
  std::vector<std::string> devices_;
};

/// What the kernel keeps for all processes, device by device: the lines of `rdma resource show`.
std::vector<std::string> kernel_resources();
/// Waits for what is on its way out, then compares.
testing::AssertionResult are_back(const std::vector<std::string>& before);

/// Sets variables of the environment while it lives.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<std::string, std::string>> variables);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> names_;
};

/// What a job of ranks as threads ends with; of code kOk where nothing went wrong.
Error error_of_job(int ranks, const std::string& transport,
                   const std::function<void(Communicator&)>& body);
/// The sum of 1, 2, ... over the ranks, in each of `count` floats; throws where it is wrong.
void add_up(Communicator& comm, std::size_t count);

}  // namespace unisono::test
