// What the tests of the GPU backend share: the backend over the driver under test, values in its
// memory, comparison with an oracle.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/cuda/cuda_backend.h"

namespace unisono::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// Within [-1, 1), the same for the same seed.
Floats random_values(std::size_t count, std::uint64_t seed);

/// Device 0. Over the fake driver with host twins of the kernels and the fake cuBLAS.
std::shared_ptr<train::Backend> make_backend();

/// Elements in the backend's memory, for a scope.
class DeviceFloats {
 public:
  DeviceFloats(train::Backend& backend, const Floats& values);
  ~DeviceFloats() { backend_.give(data_, bytes()); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  float* data() const { return data_; }
  operator float*() const { return data_; }  // NOLINT: what calls take
  Floats values() const;

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }
  train::Backend& backend_;
  std::size_t count_;
  float* data_;
};

/// `initial` after compute(its place in the backend's memory). Computed twice, which has to give
/// the same bits.
Floats computed(train::Backend& backend, const Floats& initial,
                const std::function<void(float*)>& compute);

/// NaN everywhere: what a call has to write in full.
Floats unwritten(std::size_t count);

/// Every value within `tolerance` of the expected one, relative to the greater of 1 and it.
void expect_near(const Floats& values, const Doubles& expected, double tolerance);

Doubles widened(const Floats& values);
/// End to end.
Floats joined(const Floats& first, const Floats& second);
Doubles joined(const Doubles& first, const Doubles& second);

/// An environment variable for a scope.
class Variable {
 public:
  Variable(const char* name, const char* value);
  ~Variable();
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::string before_;
  bool was_set_;
};

/// What a std::runtime_error of `action` says; empty, and a failure, without one.
std::string error_of(const std::function<void()>& action);

}  // namespace unisono::test
