// After a job its key is nowhere in the memory of the process: not in what was freed either.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "rendezvous/arbiter/arbiter_server.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

// Held so that the search does not find itself.
constexpr char kVeil = '\x55';
std::string veiled_text(const JobKey& key) {
  std::string out;
  for (const std::uint8_t byte : key.bytes()) {
    out += static_cast<char>("0123456789abcdef"[byte >> 4] ^ kVeil);
    out += static_cast<char>("0123456789abcdef"[byte & 15] ^ kVeil);
  }
  return out;
}

struct Range {
  std::uintptr_t first, end;
};

// What can be written and belongs to this process alone or to its shared memory.
std::vector<Range> writable_memory() {
  std::vector<Range> ranges;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Range range{};
    char permissions[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &range.first, &range.end, permissions) == 3 &&
        permissions[0] == 'r' && permissions[1] == 'w') {
      ranges.push_back(range);
    }
  }
  return ranges;
}

// How often the text behind `veiled` begins in [first, end).
std::size_t count_in(const char* first, const char* end, const std::string& veiled) {
  std::size_t found = 0;
  while (first < end) {
    first = static_cast<const char*>(
        std::memchr(first, veiled[0] ^ kVeil, static_cast<std::size_t>(end - first)));
    if (first == nullptr || static_cast<std::size_t>(end - first) < veiled.size()) break;
    if (std::equal(veiled.begin(), veiled.end(), first,
                   [](char hidden, char open) { return (open ^ kVeil) == hidden; })) {
      ++found;
    }
    ++first;
  }
  return found;
}

// The pieces that are read are never unveiled: the search must not find its own buffer.
std::size_t occurrences(const std::string& veiled) {
  constexpr std::size_t kPiece = 1 << 20;
  const UniqueFd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  std::vector<char> piece(kPiece);
  std::size_t found = 0;
  for (const Range& range : writable_memory()) {
    // Reserved address space of sanitizers is not read to its end.
    if (range.end - range.first > (std::uintptr_t{1} << 30)) continue;
    for (std::uintptr_t at = range.first; at < range.end; at += kPiece - veiled.size()) {
      const ssize_t got = ::pread(memory.get(), piece.data(), std::min(kPiece, range.end - at),
                                  static_cast<off_t>(at));
      if (got <= 0) break;
      found += count_in(piece.data(), piece.data() + got, veiled);
    }
  }
  return found;
}

TEST(Secrets, AreFoundWhileTheyAreThere) {
  const JobKey key = JobKey::random();
  const auto text = key.to_hex();
  EXPECT_GE(occurrences(veiled_text(key)), 1u);
}

class SecretsOf : public testing::TestWithParam<RendezvousPoint::Kind> {};

TEST_P(SecretsOf, AJobAreGoneWithIt) {
  const RendezvousPoint point =
      GetParam() == RendezvousPoint::Kind::kFile ? file_point() : abstract_point();
  std::string hidden;
  {
    auto outcomes = meet(world_of(point, 3));
    expect_one_world(outcomes);
    ASSERT_TRUE(outcomes[0].client != nullptr);
    hidden = veiled_text(outcomes[0].client->world().key);
    leave_all(&outcomes);
  }
  end_arbiters();
  EXPECT_EQ(occurrences(hidden), 0u) << "copies of the key's text are left";
}

INSTANTIATE_TEST_SUITE_P(Places, SecretsOf,
                         testing::Values(RendezvousPoint::Kind::kAbstract,
                                         RendezvousPoint::Kind::kFile),
                         [](const auto& info) {
                           return info.param == RendezvousPoint::Kind::kFile ? "File" : "Abstract";
                         });

}  // namespace
}  // namespace unisono::rendezvous
