// An object of Python on its way: its pickle and the buffers that pickle 5 keeps out of it.
//
//   table     8 bytes: how many sections, then 8 of each: its length; bit 63: it is read-only
//   sections  the pickle, then the buffers
//
// Table and sections are filled up to multiples of 64 bytes: arrays are as aligned as the memory
// that they are read from, up to 64. Numbers are those of the machine, as in the arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bindings/python/src/memory.h"
#include "unisono/types.h"

namespace unisono::python {

struct Section {
  std::span<const std::byte> bytes;
  bool is_read_only = false;
};

/// Sections as one stream of bytes, which is never in memory as a whole.
class ParcelWriter {
 public:
  explicit ParcelWriter(std::vector<Section> sections);
  std::uint64_t size() const { return size_; }
  /// The next bytes of the stream.
  void read(std::span<std::byte> room);

 private:
  std::vector<std::uint64_t> table_;
  std::vector<Section> sections_;  // the table comes first
  std::uint64_t size_ = 0;
  std::size_t section_ = 0;
  std::uint64_t position_ = 0;  // in the section
};

struct ReceivedSection {
  Memory memory;
  bool is_read_only = false;
};

/// Puts each section into memory of its own, as the stream comes.
class ParcelReader {
 public:
  /// The next bytes of a stream of `size`. Throws Error, which names the sender, where no correct
  /// rank sends them.
  void write(Rank source, std::uint64_t size, std::span<const std::byte> bytes);
  /// All sections. Throws Error where the stream ended before they did.
  std::vector<ReceivedSection> take(Rank source);

 private:
  void read_table(Rank source, std::uint64_t size);

  std::vector<std::byte> table_;
  bool has_table_ = false;
  std::vector<ReceivedSection> sections_;
  std::size_t section_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t received_ = 0;
};

/// The sections of a stream that is in memory as a whole, where they are.
std::vector<ReceivedSection> open_parcel(Rank source, std::vector<std::byte> bytes);

}  // namespace unisono::python
