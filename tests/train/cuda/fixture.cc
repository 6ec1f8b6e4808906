#include "tests/train/cuda/fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/train/cuda/cublas_under_test.h"
#include "train/model/random.h"

namespace unisono::test {

Floats random_values(std::size_t count, std::uint64_t seed) {
  train::Random random(seed);
  Floats values(count);
  for (float& value : values) value = random.symmetric(1);
  return values;
}

std::shared_ptr<train::Backend> make_backend() {
  use_cublas_under_test();
  return train::make_cuda_backend(0);
}

DeviceFloats::DeviceFloats(train::Backend& backend, const Floats& values)
    : backend_(backend),
      count_(values.size()),
      data_(static_cast<float*>(backend.take(values.size() * sizeof(float)))) {
  backend_.write(values.data(), count_, data_);
}

Floats DeviceFloats::values() const {
  Floats values(count_);
  backend_.read(data_, count_, values.data());
  return values;
}

Floats computed(train::Backend& backend, const Floats& initial,
                const std::function<void(float*)>& compute) {
  const auto once = [&] {
    const DeviceFloats output(backend, initial);
    compute(output);
    return output.values();
  };
  const Floats first = once();
  const Floats second = once();
  const bool same = initial.empty() ||
                    std::memcmp(first.data(), second.data(), initial.size() * sizeof(float)) == 0;
  EXPECT_TRUE(same) << "the same call gave other bits";
  return first;
}

Floats unwritten(std::size_t count) {
  return Floats(count, std::numeric_limits<float>::quiet_NaN());
}

void expect_near(const Floats& values, const Doubles& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double bound = tolerance * std::max(1.0, std::abs(expected[i]));
    // Written so that a NaN fails.
    if (std::abs(static_cast<double>(values[i]) - expected[i]) <= bound) continue;
    FAIL() << "element " << i << " of " << values.size() << " is " << values[i] << ", not "
           << expected[i];
  }
}

Doubles widened(const Floats& values) { return {values.begin(), values.end()}; }

Floats joined(const Floats& first, const Floats& second) {
  Floats both = first;
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

Doubles joined(const Doubles& first, const Doubles& second) {
  Doubles both = first;
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

Variable::Variable(const char* name, const char* value) : name_(name) {
  const char* before = std::getenv(name);
  was_set_ = before != nullptr;
  if (was_set_) before_ = before;
  setenv(name, value, 1);
}

Variable::~Variable() {
  if (was_set_) {
    setenv(name_, before_.c_str(), 1);
  } else {
    unsetenv(name_);
  }
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace unisono::test
