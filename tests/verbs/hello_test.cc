// Link messages: round trips, every field's bound, truncation at every byte, random and mutated
// bytes; and which queue pairs belong together.
#include "transports/verbs/hello.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace unisono::verbs {
namespace {

using testing::HasSubstr;

QueuePairEnd end_on(std::uint8_t rail, std::uint8_t ordinal = 0) {
  QueuePairEnd end;
  end.rail = rail;
  end.ordinal = ordinal;
  end.infiniband = rail % 2 == 1;
  end.needs_grh = rail == 3;
  end.roce_v1 = rail == 2;
  end.mtu = 3;
  end.lid = 0x1234;
  end.pkey = 0xffff;
  end.rd_atomic = 16;
  end.number = 0xabcdef;
  end.first_packet = 0x123456;
  for (std::size_t i = 0; i < end.gid.size(); ++i) {
    end.gid[i] = static_cast<std::uint8_t>(i + rail);
  }
  return end;
}

Hello a_hello() {
  Hello hello;
  hello.epoch = 0xfedcba98;
  hello.ring_address = 0x7f0011223340;
  hello.ring_bytes = 256 * 1024;
  hello.ring_keys = {1, 2, 0xffffffff, 4};
  hello.immediates = 512;
  hello.has_sums = true;
  hello.consumed = (std::uint64_t{1} << 40) + 64;
  hello.read = 77;
  hello.lent = 99;
  for (std::uint64_t i = 0; i < 3; ++i) {
    hello.sources.push_back({0x1000 * i, {1, 2, 3, static_cast<std::uint32_t>(i)}});
  }
  hello.queue_pairs = {end_on(0), end_on(1, 5), end_on(2), end_on(3, 15)};
  return hello;
}

// From memory whose end a sanitizer watches.
Result<LinkMessage> decode(const std::string& bytes) {
  const auto copy = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return decode_link_message({copy.get(), bytes.size()});
}

void expect_equal(const QueuePairEnd& a, const QueuePairEnd& b) {
  EXPECT_EQ(a.rail, b.rail);
  EXPECT_EQ(a.ordinal, b.ordinal);
  EXPECT_EQ(a.infiniband, b.infiniband);
  EXPECT_EQ(a.needs_grh, b.needs_grh);
  EXPECT_EQ(a.roce_v1, b.roce_v1);
  EXPECT_EQ(a.mtu, b.mtu);
  EXPECT_EQ(a.lid, b.lid);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_EQ(a.rd_atomic, b.rd_atomic);
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.first_packet, b.first_packet);
  EXPECT_EQ(a.gid, b.gid);
}

void expect_equal(const Hello& a, const Hello& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.ring_address, b.ring_address);
  EXPECT_EQ(a.ring_bytes, b.ring_bytes);
  EXPECT_EQ(a.ring_keys, b.ring_keys);
  EXPECT_EQ(a.immediates, b.immediates);
  EXPECT_EQ(a.has_sums, b.has_sums);
  EXPECT_EQ(a.consumed, b.consumed);
  EXPECT_EQ(a.read, b.read);
  EXPECT_EQ(a.lent, b.lent);
  ASSERT_EQ(a.sources.size(), b.sources.size());
  for (std::size_t i = 0; i < a.sources.size(); ++i) {
    EXPECT_EQ(a.sources[i].address, b.sources[i].address);
    EXPECT_EQ(a.sources[i].keys, b.sources[i].keys);
  }
  ASSERT_EQ(a.queue_pairs.size(), b.queue_pairs.size());
  for (std::size_t i = 0; i < a.queue_pairs.size(); ++i)
    expect_equal(a.queue_pairs[i], b.queue_pairs[i]);
}

TEST(LinkMessage, HelloRoundTrips) {
  const Result<LinkMessage> got = decode(encode(a_hello()));
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_EQ(got->type, LinkMessageType::kHello);
  expect_equal(got->hello, a_hello());
}

TEST(LinkMessage, LargestHelloRoundTripsWithinTheBound) {
  Hello hello = a_hello();
  hello.ring_bytes = static_cast<std::uint32_t>(kRingBytesMax);
  hello.ring_address = ~std::uint64_t{0} - kRingBytesMax + 1;
  hello.immediates = kImmediatesMax;
  hello.consumed = hello.read = hello.lent = kPositionMax;
  hello.sources.assign(kLentMax, {~std::uint64_t{0}, {1, 2, 3, 4}});
  hello.queue_pairs.clear();
  for (std::size_t i = 0; i < kQueuePairsMax; ++i) {
    hello.queue_pairs.push_back(
        end_on(static_cast<std::uint8_t>(i % kRailsMax), static_cast<std::uint8_t>(i / kRailsMax)));
  }
  const std::string bytes = encode(hello);
  EXPECT_LE(bytes.size(), kLinkMessageBytesMax);
  const Result<LinkMessage> got = decode(bytes);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  expect_equal(got->hello, hello);
}

TEST(LinkMessage, HelloOfARankWithoutPortsNeedsNoRing) {
  Hello hello;
  hello.epoch = 4;
  hello.consumed = 128;
  const Result<LinkMessage> got = decode(encode(hello));
  ASSERT_TRUE(got.has_value()) << got.error().message();
  expect_equal(got->hello, hello);
  hello.queue_pairs.push_back(end_on(0));
  EXPECT_FALSE(decode(encode(hello)).has_value());
}

TEST(LinkMessage, ReadyRoundTrips) {
  for (const std::uint32_t epoch : {0u, 7u, 0xffffffffu}) {
    const Result<LinkMessage> got = decode(encode_ready(epoch));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->type, LinkMessageType::kReady);
    EXPECT_EQ(got->epoch, epoch);
  }
}

TEST(LinkMessage, FailedRoundTripsAndIsCutToItsBound) {
  for (const std::string& text : {std::string(), std::string("port down"), std::string(512, 'x')}) {
    const Result<LinkMessage> got = decode(encode_failed(text));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->type, LinkMessageType::kFailed);
    EXPECT_EQ(got->text, text);
  }
  const Result<LinkMessage> cut = decode(encode_failed(std::string(5000, 'x')));
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->text.size(), kFailureTextBytesMax);
}

TEST(LinkMessage, BytesAreLittleEndianWhateverTheHost) {
  EXPECT_EQ(encode_ready(0x04030201), std::string("uvbl\x03\x00\x02\x01\x02\x03\x04", 11));
}

struct Violation {
  const char* field;
  void (*make)(Hello&);
};

TEST(LinkMessage, EveryFieldBeyondItsBoundIsRefusedByName) {
  const std::vector<Violation> violations = {
      {"ring bytes 0", [](Hello& h) { h.ring_bytes = 0; }},
      {"ring bytes 4032", [](Hello& h) { h.ring_bytes = 4032; }},
      {"ring bytes 4128", [](Hello& h) { h.ring_bytes = 4128; }},
      {"ring bytes 1073741888", [](Hello& h) { h.ring_bytes = (1u << 30) + 64; }},
      {"ring bytes 4294967232", [](Hello& h) { h.ring_bytes = 0xffffffc0; }},
      {"ring address 0", [](Hello& h) { h.ring_address = 0; }},
      {"ring address", [](Hello& h) { h.ring_address = ~std::uint64_t{0} - h.ring_bytes + 2; }},
      {"immediates 0", [](Hello& h) { h.immediates = 0; }},
      {"immediates 16777217", [](Hello& h) { h.immediates = kImmediatesMax + 1; }},
      {"consumed position 65", [](Hello& h) { h.consumed = 65; }},
      {"consumed position", [](Hello& h) { h.consumed = kPositionMax + 64; }},
      {"count of read payloads", [](Hello& h) { h.read = kPositionMax + 1; }},
      {"count of lent payloads", [](Hello& h) { h.lent = ~std::uint64_t{0}; }},
      {"count of sources 3", [](Hello& h) { h.lent = 2; }},
      {"rail 4", [](Hello& h) { h.queue_pairs[1].rail = kRailsMax; }},
      {"ordinal 16", [](Hello& h) { h.queue_pairs[2].ordinal = kQueuePairsMax; }},
      {"MTU code 0", [](Hello& h) { h.queue_pairs[0].mtu = 0; }},
      {"MTU code 6", [](Hello& h) { h.queue_pairs[2].mtu = 6; }},
      {"concurrent reads 0", [](Hello& h) { h.queue_pairs[0].rd_atomic = 0; }},
      {"queue pair number 16777216", [](Hello& h) { h.queue_pairs[0].number = 1u << 24; }},
      {"packet number 4294967295", [](Hello& h) { h.queue_pairs[0].first_packet = ~0u; }},
      {"twice", [](Hello& h) { h.queue_pairs[2] = h.queue_pairs[0]; }},
  };
  for (const Violation& violation : violations) {
    Hello hello = a_hello();
    violation.make(hello);
    const Result<LinkMessage> got = decode(encode(hello));
    ASSERT_FALSE(got.has_value()) << violation.field;
    EXPECT_EQ(got.error().code(), ErrorCode::kProtocol);
    EXPECT_THAT(got.error().message(), HasSubstr(violation.field));
  }
}

TEST(LinkMessage, FieldsAtTheirBoundsAreAccepted) {
  const std::vector<void (*)(Hello&)> changes = {
      [](Hello& h) { h.epoch = 0; },
      [](Hello& h) { h.ring_bytes = kRingBytesMin; },
      [](Hello& h) { h.ring_address = 1; },
      [](Hello& h) { h.immediates = 1; },
      [](Hello& h) { h.has_sums = false; },
      [](Hello& h) { h.consumed = h.read = 0; },
      [](Hello& h) { h.lent = 3; },
      [](Hello& h) { h.lent = 0, h.sources.clear(); },
      [](Hello& h) { h.queue_pairs[0].mtu = 1; },
      [](Hello& h) { h.queue_pairs[0].mtu = 5; },
      [](Hello& h) { h.queue_pairs[0].rd_atomic = 255; },
      [](Hello& h) { h.queue_pairs[0].number = h.queue_pairs[0].first_packet = (1u << 24) - 1; },
      [](Hello& h) { h.queue_pairs[0].number = h.queue_pairs[0].first_packet = 0; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Hello hello = a_hello();
    changes[i](hello);
    const Result<LinkMessage> got = decode(encode(hello));
    ASSERT_TRUE(got.has_value()) << i << ": " << got.error().message();
    expect_equal(got->hello, hello);
  }
}

// Offsets of the bytes of an encoded hello that a Hello cannot express.
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kTypeAt = 6;
constexpr std::size_t kSumsAt = 7 + 4 + 8 + 4 + 4 * kRailsMax + 4;
constexpr std::size_t kSourceCountAt = kSumsAt + 1 + 3 * 8;

TEST(LinkMessage, CountsBeyondTheirBoundsAreRefused) {
  std::string bytes = encode(a_hello());
  ASSERT_EQ(bytes[kSourceCountAt], 3);
  bytes[kSourceCountAt] = kLentMax + 1;
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("count of sources 17"));

  bytes = encode(a_hello());
  const std::size_t end_count_at = kSourceCountAt + 1 + 3 * (8 + 4 * kRailsMax);
  ASSERT_EQ(bytes[end_count_at], 4);
  bytes[end_count_at] = kQueuePairsMax + 1;
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("count of queue pairs 17"));

  bytes = encode(a_hello());
  const std::size_t link_layer_at = end_count_at + 3;
  ASSERT_EQ(bytes[link_layer_at], 0);
  bytes[link_layer_at] = 2;
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("link layer 2"));
  bytes[link_layer_at] = 0;
  bytes[link_layer_at + 1] = 2;
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("mark of global headers 2"));
  bytes[link_layer_at + 1] = 0;
  bytes[link_layer_at + 2] = 2;
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("mark of RoCE v1 2"));

  bytes = encode(a_hello());
  ASSERT_EQ(bytes[kSumsAt], 1);
  bytes[kSumsAt] = 2;
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("mark of checksums 2"));

  bytes = encode_failed(std::string(512, 'x'));
  bytes[kTypeAt + 1] = 1;  // 513 bytes of text, and they are there
  bytes += 'x';
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("text 513"));
}

TEST(LinkMessage, AnotherVersionIsRefusedByNumber) {
  for (std::string bytes : {encode(a_hello()), encode_ready(1), encode_failed("no")}) {
    bytes[kVersionAt] = 4;
    const Result<LinkMessage> got = decode(bytes);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code(), ErrorCode::kProtocol);
    EXPECT_THAT(got.error().message(), HasSubstr("version 4"));
    bytes[kVersionAt] = 2;
    EXPECT_FALSE(decode(bytes).has_value());
    bytes[kVersionAt] = 3;
    bytes[kVersionAt + 1] = 1;
    EXPECT_FALSE(decode(bytes).has_value());
  }
}

TEST(LinkMessage, UnknownTypesAndMarksAreRefused) {
  std::string bytes = encode_ready(1);
  for (const int type : {0, 5, 255}) {
    bytes[kTypeAt] = static_cast<char>(type);
    EXPECT_THAT(decode(bytes).status().message(), HasSubstr("type"));
  }
  bytes = encode_ready(1);
  bytes[0] = 'x';
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("mark"));
}

TEST(LinkMessage, TruncatedAnywhereIsRefused) {
  for (const std::string& bytes :
       {encode(a_hello()), encode_ready(1), encode_leaving(128), encode_failed("why")}) {
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const Result<LinkMessage> got = decode(bytes.substr(0, length));
      ASSERT_FALSE(got.has_value()) << length;
      EXPECT_EQ(got.error().code(), ErrorCode::kProtocol);
    }
  }
}

TEST(LinkMessage, BytesBehindTheEndAreRefused) {
  for (const std::string& bytes :
       {encode(a_hello()), encode_ready(1), encode_leaving(128), encode_failed("why")}) {
    EXPECT_THAT(decode(bytes + '\0').status().message(), HasSubstr("behind its end"));
  }
  EXPECT_FALSE(decode(encode_ready(1) + std::string(1 << 20, 'x')).has_value());
}

TEST(LinkMessage, RandomAndMutatedBytesAreHarmless) {
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const Result<LinkMessage> got = decode(bytes);
    ASSERT_FALSE(got.has_value());
    ASSERT_EQ(got.error().code(), ErrorCode::kProtocol);
  }
  int accepted = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string bytes = encode(a_hello());
    for (std::size_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const Result<LinkMessage> got = decode(bytes);
    if (!got) {
      ASSERT_EQ(got.error().code(), ErrorCode::kProtocol);
    } else if (got->type == LinkMessageType::kHello) {
      // What is accepted is a hello in its only form.
      ASSERT_EQ(encode(got->hello), bytes);
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 1000);
}

/// ::ffff:10.0.0.1
std::array<std::uint8_t, 16> ipv4_gid() {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1};
}

std::vector<QueuePairEnd> random_ends(std::mt19937& random) {
  std::set<std::pair<int, int>> places;
  for (std::size_t count = random() % 9; count > 0; --count) {
    places.emplace(random() % kRailsMax, random() % 3);
  }
  std::vector<QueuePairEnd> ends;
  for (const auto& [rail, ordinal] : places) {
    QueuePairEnd end = end_on(static_cast<std::uint8_t>(rail), static_cast<std::uint8_t>(ordinal));
    end.infiniband = random() % 4 == 0;
    end.roce_v1 = !end.infiniband && random() % 4 == 0;
    if (random() % 4 == 0) end.gid = ipv4_gid();
    const std::uint16_t keys[] = {0xffff, 0xffff, 0x7fff, 0x8001, 0x0001};
    end.pkey = keys[random() % std::size(keys)];
    ends.push_back(end);
  }
  std::shuffle(ends.begin(), ends.end(), random);
  return ends;
}

bool hear_each_other(const QueuePairEnd& a, const QueuePairEnd& b) {
  const bool one_is_full = a.pkey >= 0x8000 || b.pkey >= 0x8000;
  const bool one_family = a.infiniband || (a.gid == ipv4_gid()) == (b.gid == ipv4_gid());
  return a.infiniband == b.infiniband && a.roce_v1 == b.roce_v1 && one_family &&
         a.pkey % 0x8000 == b.pkey % 0x8000 && one_is_full;
}

TEST(PairEnds, RandomListsKeepEveryRule) {
  std::mt19937 random(12);
  int crossed = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::vector<QueuePairEnd> lower = random_ends(random);
    const std::vector<QueuePairEnd> higher = random_ends(random);
    const std::vector<EndPair> pairs = pair_ends(lower, higher);
    std::set<std::size_t> lower_used;
    std::set<std::size_t> higher_used;
    bool same_rail = false;
    bool other_rail = false;
    for (const EndPair& pair : pairs) {
      ASSERT_LT(pair.lower, lower.size());
      ASSERT_LT(pair.higher, higher.size());
      ASSERT_TRUE(lower_used.insert(pair.lower).second);
      ASSERT_TRUE(higher_used.insert(pair.higher).second);
      ASSERT_TRUE(hear_each_other(lower[pair.lower], higher[pair.higher]));
      (lower[pair.lower].rail == higher[pair.higher].rail ? same_rail : other_rail) = true;
    }
    bool same_possible = false;
    for (std::size_t a = 0; a < lower.size(); ++a) {
      for (std::size_t b = 0; b < higher.size(); ++b) {
        if (!hear_each_other(lower[a], higher[b])) continue;
        const bool same = lower[a].rail == higher[b].rail;
        same_possible |= same;
        // Two that are left over would have been a pair.
        if ((same || !same_rail) && !lower_used.count(a)) {
          ASSERT_TRUE(higher_used.count(b) == 1);
        }
      }
    }
    if (same_possible) {
      ASSERT_FALSE(other_rail);
    }
    crossed += other_rail;
  }
  EXPECT_GT(crossed, 100);
}

TEST(PairEnds, BothSidesFindTheSamePairs) {
  std::mt19937 random(13);
  for (int round = 0; round < 20000; ++round) {
    std::vector<QueuePairEnd> lower = random_ends(random);
    std::vector<QueuePairEnd> higher = random_ends(random);
    using Place = std::pair<int, int>;
    const auto places = [](const std::vector<QueuePairEnd>& a, const std::vector<QueuePairEnd>& b,
                           bool swapped) {
      std::vector<std::pair<Place, Place>> found;
      for (const EndPair& pair : pair_ends(a, b)) {
        const Place first{a[pair.lower].rail, a[pair.lower].ordinal};
        const Place second{b[pair.higher].rail, b[pair.higher].ordinal};
        swapped ? found.emplace_back(second, first) : found.emplace_back(first, second);
      }
      return found;
    };
    const auto found = places(lower, higher, false);
    ASSERT_TRUE(std::is_sorted(found.begin(), found.end()));
    auto mirrored = places(higher, lower, true);
    std::sort(mirrored.begin(), mirrored.end());
    ASSERT_EQ(found, mirrored);
    std::shuffle(lower.begin(), lower.end(), random);
    std::shuffle(higher.begin(), higher.end(), random);
    ASSERT_EQ(places(lower, higher, false), found) << "the order of the lists does not matter";
  }
}

TEST(PairEnds, PrefersRailsOfTheSameNumber) {
  QueuePairEnd a = end_on(0);
  QueuePairEnd b = a;
  b.rail = 2;
  const std::vector<EndPair> pairs = pair_ends({a, b}, {b, a});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].lower, 0u);
  EXPECT_EQ(pairs[0].higher, 1u);
  EXPECT_EQ(pairs[1].lower, 1u);
  EXPECT_EQ(pairs[1].higher, 0u);
  // A rail without its like stays alone while others have theirs.
  EXPECT_EQ(pair_ends({a, b}, {a}).size(), 1u);
}

TEST(PairEnds, CrossesRailsOnlyWhereNoNumberIsShared) {
  const auto on_rail_2 = [](std::uint8_t ordinal) {
    QueuePairEnd end = end_on(0, ordinal);
    end.rail = 2;
    return end;
  };
  const std::vector<EndPair> pairs =
      pair_ends({end_on(0, 1), end_on(0)}, {on_rail_2(0), on_rail_2(1)});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].lower, 1u);
  EXPECT_EQ(pairs[0].higher, 0u);
  EXPECT_EQ(pairs[1].lower, 0u);
  EXPECT_EQ(pairs[1].higher, 1u);
}

TEST(PairEnds, NeverPairsRoceVersionsOrAddressFamiliesThatDiffer) {
  const QueuePairEnd v2 = end_on(0);
  QueuePairEnd v1 = v2;
  v1.roce_v1 = true;
  EXPECT_TRUE(pair_ends({v2}, {v1}).empty());
  EXPECT_EQ(pair_ends({v1}, {v1}).size(), 1u);
  QueuePairEnd ipv4 = v2;
  ipv4.gid = ipv4_gid();
  EXPECT_TRUE(pair_ends({v2}, {ipv4}).empty());
  // InfiniBand has neither.
  QueuePairEnd infiniband = end_on(1);
  QueuePairEnd mapped = infiniband;
  mapped.gid = ipv4_gid();
  EXPECT_EQ(pair_ends({infiniband}, {mapped}).size(), 1u);
  // The ports of one number do not fit; those that do take their place.
  QueuePairEnd v1_on_other = end_on(2);
  QueuePairEnd v2_on_other = v1_on_other;
  v2_on_other.roce_v1 = false;
  const std::vector<EndPair> pairs = pair_ends({v2, v1_on_other}, {v1, v2_on_other});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].higher, 1u);
  EXPECT_EQ(pairs[1].higher, 0u);
}

TEST(PairEnds, NeverPairsLinkLayersOrPartitionsThatDiffer) {
  const QueuePairEnd ethernet = end_on(0);
  QueuePairEnd infiniband = end_on(0);
  infiniband.infiniband = true;
  EXPECT_TRUE(pair_ends({ethernet}, {infiniband}).empty());
  QueuePairEnd other = end_on(0);
  other.pkey = 0x8001;
  EXPECT_TRUE(pair_ends({ethernet}, {other}).empty());
  QueuePairEnd limited = end_on(0);
  limited.pkey = 0x7fff;
  EXPECT_EQ(pair_ends({ethernet}, {limited}).size(), 1u);
  EXPECT_TRUE(pair_ends({limited}, {limited}).empty());
}

TEST(PairEnds, NothingPairsWithNothing) {
  EXPECT_TRUE(pair_ends({}, {}).empty());
  EXPECT_TRUE(pair_ends({end_on(0)}, {}).empty());
}

}  // namespace
}  // namespace unisono::verbs
