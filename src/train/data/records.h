// Records end to end in one array: samples as they are held in memory. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/train/data.h"

namespace unisono::train {

struct Records {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint64_t> ends;  ///< of each record in `bytes`

  std::size_t size() const { return ends.size(); }
  /// What the records take, room to grow included.
  std::size_t held_bytes() const {
    return bytes.capacity() + ends.capacity() * sizeof(std::uint64_t);
  }
  SampleSource::Record operator[](std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : static_cast<std::size_t>(ends[index - 1]);
    return {bytes.data() + begin, static_cast<std::size_t>(ends[index]) - begin};
  }
  void add(SampleSource::Record record) {
    bytes.insert(bytes.end(), record.begin(), record.end());
    ends.push_back(bytes.size());
  }
  /// Room for `count` records of `source`, where that can be told.
  void reserve(std::size_t count, const SampleSource& source) {
    ends.reserve(count);
    if (source.record_bytes_min() == source.record_bytes_max()) {
      bytes.reserve(count * source.record_bytes_max());
    }
  }
};

}  // namespace unisono::train
