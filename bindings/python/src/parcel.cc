#include "bindings/python/src/parcel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "unisono/error.h"

namespace unisono::python {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kReadOnly = std::uint64_t{1} << 63;
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t padded(std::uint64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

[[noreturn]] void refuse_parcel(Rank source) {
  throw Error(Status(ErrorCode::kProtocol,
                     "rank " + std::to_string(source) +
                         " sent an object that no unisono of Python makes: use the calls for "
                         "Python objects on all ranks, in one version",
                     source),
              {.operation = "objects"});
}

std::uint64_t word(std::span<const std::byte> bytes, std::size_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * kWord, kWord);
  return value;
}

// Bytes of the table, without its padding, of which at least the first word has come.
std::uint64_t table_bytes(Rank source, std::uint64_t size, std::span<const std::byte> bytes) {
  const std::uint64_t count = word(bytes, 0);
  if (count == 0 || count > size / kWord) refuse_parcel(source);
  return (count + 1) * kWord;
}

void check_total(Rank source, std::uint64_t size, std::span<const std::byte> table) {
  std::uint64_t total = padded(table.size());
  for (std::size_t i = 1; i < table.size() / kWord; ++i) {
    const std::uint64_t bytes = word(table, i) & ~kReadOnly;
    if (bytes > size) refuse_parcel(source);
    total += padded(bytes);
    if (total > size) refuse_parcel(source);
  }
  if (total != size) refuse_parcel(source);
}

}  // namespace

ParcelWriter::ParcelWriter(std::vector<Section> sections) {
  table_.push_back(sections.size());
  for (const Section& section : sections) {
    table_.push_back(section.bytes.size() | (section.is_read_only ? kReadOnly : 0));
  }
  sections_.push_back({std::as_bytes(std::span(table_))});
  sections_.insert(sections_.end(), sections.begin(), sections.end());
  for (const Section& section : sections_) size_ += padded(section.bytes.size());
}

void ParcelWriter::read(std::span<std::byte> room) {
  while (!room.empty() && section_ < sections_.size()) {
    const std::span<const std::byte> bytes = sections_[section_].bytes;
    const std::uint64_t end = padded(bytes.size());
    if (position_ == end) {
      ++section_;
      position_ = 0;
      continue;
    }
    const bool is_padding = position_ >= bytes.size();
    const auto length = static_cast<std::size_t>(
        std::min<std::uint64_t>(room.size(), (is_padding ? end : bytes.size()) - position_));
    if (is_padding) {
      std::memset(room.data(), 0, length);
    } else {
      std::memcpy(room.data(), bytes.data() + position_, length);
    }
    position_ += length;
    room = room.subspan(length);
  }
}

void ParcelReader::read_table(Rank source, std::uint64_t size) {
  const std::span<const std::byte> table(
      table_.data(), static_cast<std::size_t>(table_bytes(source, size, table_)));
  check_total(source, size, table);
  for (std::size_t i = 1; i < table.size() / kWord; ++i) {
    const std::uint64_t entry = word(table, i);
    sections_.push_back(
        {allocate_memory(static_cast<std::size_t>(entry & ~kReadOnly)), (entry & kReadOnly) != 0});
  }
  has_table_ = true;
  table_ = {};
}

std::vector<ReceivedSection> ParcelReader::take(Rank source) {
  if (!has_table_ || received_ != size_) refuse_parcel(source);
  return std::move(sections_);
}

void ParcelReader::write(Rank source, std::uint64_t size, std::span<const std::byte> bytes) {
  size_ = size;
  received_ += bytes.size();
  while (!bytes.empty() && !has_table_) {
    const std::uint64_t need =
        table_.size() < kWord ? kWord : padded(table_bytes(source, size, table_));
    if (need > size) refuse_parcel(source);
    const std::size_t length = std::min<std::uint64_t>(bytes.size(), need - table_.size());
    table_.insert(table_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    bytes = bytes.subspan(length);
    if (table_.size() == need && need > kWord) read_table(source, size);
  }
  while (!bytes.empty()) {
    if (section_ == sections_.size()) refuse_parcel(source);
    const Memory& memory = sections_[section_].memory;
    const std::uint64_t end = padded(memory.bytes());  // as much as the memory has room for
    const std::size_t length = std::min<std::uint64_t>(bytes.size(), end - position_);
    if (length > 0) {
      std::memcpy(static_cast<std::byte*>(memory.data()) + position_, bytes.data(), length);
    }
    position_ += length;
    bytes = bytes.subspan(length);
    if (position_ == end) {
      ++section_;
      position_ = 0;
    }
  }
}

std::vector<ReceivedSection> open_parcel(Rank source, std::vector<std::byte> bytes) {
  const auto whole = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  if (whole->size() < kWord) refuse_parcel(source);
  const std::uint64_t length = table_bytes(source, whole->size(), *whole);
  if (length > whole->size()) refuse_parcel(source);
  const std::span<const std::byte> table(whole->data(), static_cast<std::size_t>(length));
  check_total(source, whole->size(), table);
  std::vector<ReceivedSection> sections;
  std::uint64_t first = padded(length);
  for (std::size_t i = 1; i < table.size() / kWord; ++i) {
    const std::uint64_t size = word(table, i) & ~kReadOnly;
    std::shared_ptr<void> place(whole, whole->data() + first);
    sections.push_back({Memory(std::move(place), static_cast<std::size_t>(size)),
                        (word(table, i) & kReadOnly) != 0});
    first += padded(size);
  }
  return sections;
}

}  // namespace unisono::python
