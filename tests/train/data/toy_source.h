// A source whose records say which sample they are, that counts what is read of it and fails where
// it is told to. Any thread may use it.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "unisono/train/data.h"

namespace unisono::train::test {

/// Sample i has 4 + i % 7 bytes: its index, then i % 251 over and over.
class ToySource : public SampleSource {
 public:
  explicit ToySource(std::size_t size) : size_(size) {}

  std::size_t size() const override { return size_; }
  int classes() const override { return 10; }
  Shape input_shape() const override { return {2}; }
  std::size_t targets_per_sample() const override { return 1; }
  std::string describe() const override { return "toy of " + std::to_string(size_); }
  std::size_t record_bytes_min() const override { return 4; }
  std::size_t record_bytes_max() const override { return 10; }
  bool is_seekable() const override { return true; }
  void load(std::span<const std::size_t> indices, const Take& take) const override {
    for (const std::size_t index : indices) {
      if (index == failing) throw std::runtime_error("sample " + std::to_string(index) + " burnt");
      std::vector<std::uint8_t> record(4 + index % 7, static_cast<std::uint8_t>(index % 251));
      for (int byte = 0; byte < 4; ++byte) {
        record[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(index >> (8 * byte));
      }
      {
        const std::lock_guard lock(mutex_);
        read_.insert(index);
      }
      take(index, record);
    }
  }
  void decode(Record record, std::span<float> input,
              std::span<std::int32_t> targets) const override {
    const std::size_t index = index_of(record);
    input[0] = static_cast<float>(index);
    input[1] = record.size() > 4 ? static_cast<float>(record.back()) : -1.0F;
    targets[0] = static_cast<std::int32_t>(index % 10);
  }
  std::size_t length(Record record) const override { return record.size(); }

  static std::size_t index_of(Record record) {
    return record[0] | std::size_t{record[1]} << 8 | std::size_t{record[2]} << 16;
  }
  std::multiset<std::size_t> read() const {
    const std::lock_guard lock(mutex_);
    return read_;
  }

  std::size_t failing = ~std::size_t{0};

 private:
  std::size_t size_;
  mutable std::mutex mutex_;
  mutable std::multiset<std::size_t> read_;
};

/// The indices that a data set's samples say they are, in its order.
inline std::vector<std::size_t> indices_in(const Dataset& data) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < data.size(); ++i) {
    float input[2];
    std::int32_t target = -1;
    data.read(i, input, std::span(&target, 1));
    indices.push_back(static_cast<std::size_t>(input[0]));
    if (static_cast<std::size_t>(target) != indices.back() % 10) {
      throw std::runtime_error("sample " + std::to_string(i) + " has target " +
                               std::to_string(target));
    }
  }
  return indices;
}

}  // namespace unisono::train::test
