// Every target over its corpus and a bounded number of mutations, the same ones for the same seed.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fuzz/target.h"
#include "tests/support/seed.h"

namespace unisono::fuzz {

/// For GoogleTest's messages.
static void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

namespace {

using test::below;

constexpr std::size_t kBytesMax = 16 * 1024;

// Numbers at which bounds are off by one.
std::uint64_t edge(std::mt19937_64& random) {
  static constexpr std::uint64_t kEdges[]{
      0,      1,      2,      63,         64,         127,        128,   255,       256,
      0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, ~0ull, 1ull << 63};
  return kEdges[below(random, std::size(kEdges))] + below(random, 3) - 1;
}

std::size_t place(const Bytes& bytes, std::mt19937_64& random) {
  return below(random, bytes.size() + 1);
}

void overwrite(Bytes* bytes, const void* with, std::size_t count, std::mt19937_64& random) {
  const std::size_t at = place(*bytes, random);
  if (bytes->empty()) return;
  std::memcpy(bytes->data() + std::min(at, bytes->size() - 1), with,
              std::min(count, bytes->size() - std::min(at, bytes->size() - 1)));
}

void insert(Bytes* bytes, const Bytes& part, std::mt19937_64& random) {
  bytes->insert(bytes->begin() + static_cast<std::ptrdiff_t>(place(*bytes, random)), part.begin(),
                part.end());
}

Bytes part_of(const Bytes& bytes, std::mt19937_64& random) {
  const std::size_t begin = place(bytes, random);
  const std::size_t count = below(random, std::min<std::size_t>(bytes.size() - begin, 200) + 1);
  return {bytes.begin() + static_cast<std::ptrdiff_t>(begin),
          bytes.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

void mutate(Bytes* bytes, const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  const std::uint64_t number = edge(random);
  switch (below(random, 8)) {
    case 0:
      if (!bytes->empty()) {
        (*bytes)[below(random, bytes->size())] ^= static_cast<std::byte>(1 << below(random, 8));
      }
      return;
    case 1:
      return overwrite(bytes, &number, std::size_t{1} << below(random, 4), random);
    case 2: {
      const Bytes part = part_of(*bytes, random);
      const std::size_t at = place(*bytes, random);
      const std::size_t end = std::min(bytes->size(), at + part.size());
      bytes->erase(bytes->begin() + static_cast<std::ptrdiff_t>(at),
                   bytes->begin() + static_cast<std::ptrdiff_t>(end));
      return;
    }
    case 3:
      return insert(bytes, part_of(*bytes, random), random);
    case 4:
      return insert(bytes, part_of(corpus[below(random, corpus.size())], random), random);
    case 5:
      return insert(bytes, Bytes(below(random, 20), static_cast<std::byte>(number)), random);
    case 6:
      bytes->resize(place(*bytes, random));
      return;
    default: {
      const Bytes part = part_of(corpus[below(random, corpus.size())], random);
      return overwrite(bytes, part.data(), part.size(), random);
    }
  }
}

std::string hex(const Bytes& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[static_cast<int>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<int>(byte) & 15];
  }
  return text;
}

// False: it failed, and the next input would say the same.
bool holds(const Target& target, const Bytes& input) {
  // Of its exact size on the heap, so that a byte too many is seen.
  const Bytes exact(input.begin(), input.end());
  try {
    target.run(exact);
    return true;
  } catch (const std::exception& error) {
    ADD_FAILURE() << target.name << ": " << error.what() << "; the input is " << hex(exact);
    return false;
  }
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, HoldsForTheCorpusAndItsMutations) {
  const test::SeedTrace trace;
  const Target target = GetParam();
  const std::vector<Bytes> corpus = target.corpus();
  for (const Bytes& input : corpus) {
    if (!holds(target, input)) return;
  }
  std::uint64_t stream = 0;
  for (const char c : target.name) stream = stream * 31 + static_cast<unsigned char>(c);
  std::mt19937_64 random = test::random_stream(stream);
  for (int i = 0; i < target.mutations; ++i) {
    Bytes input = corpus[below(random, corpus.size())];
    for (std::uint64_t left = 1 + below(random, 4); left > 0; --left) {
      mutate(&input, corpus, random);
    }
    if (input.size() > kBytesMax) input.resize(kBytesMax);
    if (!holds(target, input)) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, testing::ValuesIn(all_targets()),
                         [](const testing::TestParamInfo<Target>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace unisono::fuzz
