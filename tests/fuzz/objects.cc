// What ranks announce about their objects, and encoded objects.
#include "unisono/objects.h"

#include <algorithm>
#include <optional>

#include "objects/announcement.h"
#include "tests/fuzz/target.h"
#include "unisono/object_serializer.h"

namespace unisono::fuzz {
namespace {

// ---- Announcements ------------------------------------------------------------------------------

constexpr std::size_t kRanks = 4;

void fuzz_announcement(std::span<const std::byte> input) {
  using namespace objects;
  Input in(input);
  std::vector<Words> table(1 + in.byte() % kRanks);
  for (Words& words : table) {
    for (std::uint64_t& word : words) word = in.number<std::uint64_t>();
  }
  const auto agreement = judge(table);
  if (!agreement) {
    require(
        agreement.error().rank() >= 0 && agreement.error().rank() < static_cast<Rank>(table.size()),
        "an error of no rank");
    return;
  }
  require(agreement->bytes.size() == table.size() && agreement->staging > 0, "half an agreement");
  std::uint64_t limit = ~std::uint64_t{0}, total = 0;
  for (const Words& words : table) limit = std::min(limit, words[2]);
  for (const std::uint64_t bytes : agreement->bytes) {
    require(bytes <= limit, "an object above the limit");
    require(!__builtin_add_overflow(total, bytes, &total), "a total that overflows");
  }
}

std::vector<Bytes> announcement_corpus() {
  using namespace objects;
  std::vector<Bytes> inputs;
  for (int kind = 1; kind <= static_cast<int>(Kind::kScatterValues); ++kind) {
    Announcement announcement;
    announcement.kind = static_cast<Kind>(kind);
    announcement.limit = 1 << 20;
    announcement.staging = 4096;
    announcement.root = is_rooted(announcement.kind) ? 1 : -1;
    announcement.element_bytes = announcement.kind == Kind::kPlainList ? 4 : 0;
    Bytes table{std::byte{kRanks - 1}};
    for (int rank = 0; rank < static_cast<int>(kRanks); ++rank) {
      announcement.bytes = announcement.root < 0 || announcement.root == rank ? 40 : 0;
      announcement.produces = rank == 1;
      table = table + bytes_of(to_words(announcement));
    }
    inputs.push_back(table);
  }
  return inputs;
}

// ---- Encoded values -----------------------------------------------------------------------------

struct Plain {
  std::uint32_t a;
  std::uint16_t b, c;
};

// Whatever is taken is what write() would have written.
template <typename T>
void check_value(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, 2);
  std::optional<T> value;
  try {
    value = Serializer<T>::read(reader);
    reader.finish();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kProtocol && error.rank() == 2, "an error of nobody");
    return;
  }
  ByteWriter writer;
  Serializer<T>::write(writer, *value);
  const Bytes again = writer.take();
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()), "another value");
}

void fuzz_serializer(std::span<const std::byte> input) {
  Input in(input);
  const int type = in.byte() % 7;
  const std::span<const std::byte> bytes = in.rest();
  switch (type) {
    case 0:
      return check_value<std::string>(bytes);
    case 1:
      return check_value<std::vector<std::string>>(bytes);
    case 2:
      return check_value<std::vector<std::vector<std::uint16_t>>>(bytes);
    case 3:
      return check_value<std::vector<bool>>(bytes);
    case 4:
      return check_value<std::vector<Plain>>(bytes);
    case 5:
      return check_value<std::vector<std::vector<std::string>>>(bytes);
    default:
      return check_value<double>(bytes);
  }
}

template <typename T>
Bytes encoded(int type, const T& value) {
  ByteWriter writer;
  Serializer<T>::write(writer, value);
  return bytes_of(static_cast<std::uint8_t>(type)) + writer.take();
}

std::vector<Bytes> serializer_corpus() {
  return {encoded(0, std::string("text")),
          encoded(1, std::vector<std::string>{"a", "", "bcd"}),
          encoded(2, std::vector<std::vector<std::uint16_t>>{{1, 2}, {}, {3}}),
          encoded(3, std::vector<bool>{true, false}),
          encoded(4, std::vector<Plain>{{1, 2, 3}}),
          encoded(5, std::vector<std::vector<std::string>>{{"a"}, {}}),
          encoded(6, 1.5)};
}

// ---- Lists, cut into pieces ---------------------------------------------------------------------

// What the bytes say, read the simple way; nothing where they are no list.
std::optional<std::vector<Bytes>> elements_of(std::span<const std::byte> bytes) {
  std::vector<Bytes> elements;
  while (!bytes.empty()) {
    std::uint64_t size = 0;
    if (bytes.size() < sizeof size) return std::nullopt;
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes = bytes.subspan(sizeof size);
    if (size > bytes.size()) return std::nullopt;
    elements.emplace_back(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
  }
  return elements;
}

void fuzz_framed_list(std::span<const std::byte> input) {
  Input in(input);
  ObjectOptions options;
  options.staging_bytes = 1 + in.byte();
  const std::span<const std::byte> bytes = in.rest();
  const auto expected = elements_of(bytes);
  std::vector<Bytes> elements;
  bool refused = false;
  // A world of one rank, whose own bytes come back to it in pieces.
  spawn(1, [&](Communicator& communicator) {
    try {
      detail::all_gather_framed(
          communicator, {.bytes = {bytes.begin(), bytes.end()}, .failure = nullptr},
          [&](Rank, std::span<const std::byte> element) {
            elements.emplace_back(element.begin(), element.end());
          },
          options);
    } catch (const Error& error) {
      require(error.code() == ErrorCode::kProtocol && error.rank() == 0, "an undocumented error");
      refused = true;
    }
  });
  require(refused != expected.has_value(), "a list is judged differently when it is cut");
  if (expected) require(elements == *expected, "other elements");
}

std::vector<Bytes> framed_list_corpus() {
  const auto element = [](std::size_t bytes) {
    return bytes_of(std::uint64_t{bytes}) + Bytes(bytes, std::byte{0x41});
  };
  const Bytes small{std::byte{2}}, large{std::byte{255}};
  return {small + element(0) + element(1) + element(20), large + element(300) + element(3), large,
          small + element(4) + bytes_of(std::uint64_t{9}), small + bytes_of(~std::uint64_t{0})};
}

}  // namespace

void add_objects(Targets* targets) {
  targets->push_back({"announcement", fuzz_announcement, announcement_corpus, 10'000});
  targets->push_back({"serializer", fuzz_serializer, serializer_corpus, 5000});
  targets->push_back({"framed_list", fuzz_framed_list, framed_list_corpus, 50});
}

}  // namespace unisono::fuzz
