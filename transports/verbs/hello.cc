// The wire form of link messages and the pairing of queue pairs. See hello.h.
#include "transports/verbs/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/assert.h"
#include "base/little_endian.h"
#include "transports/verbs/port_address.h"

namespace unisono::verbs {
namespace {

// In front of every message: tells it from anything else that might come this way.
constexpr std::uint32_t kMagic = 0x6c627675;  // "uvbl"
constexpr std::uint16_t kVersion = 3;
constexpr std::uint32_t kQueuePairNumberMax = (1u << 24) - 1;
constexpr std::uint32_t kPacketNumberMax = (1u << 24) - 1;

class Writer {
 public:
  explicit Writer(LinkMessageType type) {
    number(kMagic);
    number(kVersion);
    number(static_cast<std::uint8_t>(type));
  }
  template <typename T>
  void number(T value) {
    append_little_endian(value, &bytes_);
  }
  void text(std::string_view text) {
    number(static_cast<std::uint16_t>(text.size()));
    bytes_ += text;
  }
  std::string finish() {
    UNISONO_ASSERT(bytes_.size() <= kLinkMessageBytesMax, "a link message exceeds its bound");
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Reads until the first violation, then yields zeros; status() has the violation.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T number(const char* field, std::uint64_t min = 0,
           std::uint64_t max = std::numeric_limits<T>::max()) {
    const std::uint64_t value = read_little_endian(take(field, sizeof(T)));
    if (!require(value >= min && value <= max, field, value, min, max)) return 0;
    return static_cast<T>(value);
  }
  std::string text(const char* field, std::size_t bytes_max) {
    const auto bytes = number<std::uint16_t>(field, 0, bytes_max);
    return std::string(take(field, bytes));
  }
  bool require(bool holds, const char* field, std::uint64_t value, std::uint64_t min,
               std::uint64_t max) {
    if (!holds) fail(fmt::format("has {} {}; {} to {} are allowed", field, value, min, max));
    return failure_.ok();
  }
  void fail(const std::string& what) {
    if (!failure_.ok()) return;
    failure_ = {ErrorCode::kProtocol, "a verbs link message " + what};
  }
  bool ok() const { return failure_.ok(); }
  Status finish() {
    if (!bytes_.empty()) fail(fmt::format("has {} bytes behind its end", bytes_.size()));
    return failure_;
  }

 private:
  std::string_view take(const char* field, std::size_t count) {
    if (count > bytes_.size()) fail(fmt::format("ends before its {}", field));
    if (!failure_.ok()) return {};
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  Status failure_;
};

void write_end(Writer* writer, const QueuePairEnd& end) {
  writer->number(end.rail);
  writer->number(end.ordinal);
  writer->number(static_cast<std::uint8_t>(end.infiniband));
  writer->number(static_cast<std::uint8_t>(end.needs_grh));
  writer->number(static_cast<std::uint8_t>(end.roce_v1));
  writer->number(end.mtu);
  writer->number(end.lid);
  writer->number(end.pkey);
  writer->number(end.rd_atomic);
  writer->number(end.number);
  writer->number(end.first_packet);
  for (const std::uint8_t byte : end.gid) writer->number(byte);
}

QueuePairEnd read_end(Reader* reader) {
  QueuePairEnd end;
  end.rail = reader->number<std::uint8_t>("rail", 0, kRailsMax - 1);
  end.ordinal = reader->number<std::uint8_t>("queue pair ordinal", 0, kQueuePairsMax - 1);
  end.infiniband = reader->number<std::uint8_t>("link layer", 0, 1) == 1;
  end.needs_grh = reader->number<std::uint8_t>("mark of global headers", 0, 1) == 1;
  end.roce_v1 = reader->number<std::uint8_t>("mark of RoCE v1", 0, 1) == 1;
  end.mtu = reader->number<std::uint8_t>("MTU code", 1, 5);
  end.lid = reader->number<std::uint16_t>("LID");
  end.pkey = reader->number<std::uint16_t>("partition key");
  end.rd_atomic = reader->number<std::uint8_t>("number of concurrent reads", 1);
  end.number = reader->number<std::uint32_t>("queue pair number", 0, kQueuePairNumberMax);
  end.first_packet = reader->number<std::uint32_t>("packet number", 0, kPacketNumberMax);
  for (std::uint8_t& byte : end.gid) byte = reader->number<std::uint8_t>("GID");
  return end;
}

bool has_twice(const std::vector<QueuePairEnd>& ends) {
  for (auto end = ends.begin(); end != ends.end(); ++end) {
    const bool again = std::any_of(ends.begin(), end, [&](const QueuePairEnd& other) {
      return other.rail == end->rail && other.ordinal == end->ordinal;
    });
    if (again) return true;
  }
  return false;
}

// What the ring's fields must be depends on whether there is a queue pair to write it through.
void check_ring(Reader* reader, const Hello& hello) {
  if (hello.queue_pairs.empty() && hello.ring_bytes == 0) return;
  reader->require(hello.ring_bytes >= kRingBytesMin && hello.ring_bytes <= kRingBytesMax,
                  "ring bytes", hello.ring_bytes, kRingBytesMin, kRingBytesMax);
  if (hello.ring_bytes % kLine != 0) {
    reader->fail(
        fmt::format("has ring bytes {}; multiples of {} are allowed", hello.ring_bytes, kLine));
  }
  const std::uint64_t address_max =
      std::numeric_limits<std::uint64_t>::max() - hello.ring_bytes + 1;
  reader->require(hello.ring_address >= 1 && hello.ring_address <= address_max, "ring address",
                  hello.ring_address, 1, address_max);
  reader->require(hello.immediates >= 1, "immediates", hello.immediates, 1, kImmediatesMax);
}

Hello read_hello(Reader* reader) {
  Hello hello;
  hello.epoch = reader->number<std::uint32_t>("epoch");
  hello.ring_address = reader->number<std::uint64_t>("ring address");
  hello.ring_bytes = reader->number<std::uint32_t>("ring bytes", 0, kRingBytesMax);
  for (std::uint32_t& key : hello.ring_keys) key = reader->number<std::uint32_t>("ring key");
  hello.immediates = reader->number<std::uint32_t>("immediates", 0, kImmediatesMax);
  hello.has_sums = reader->number<std::uint8_t>("mark of checksums", 0, 1) == 1;
  hello.consumed = reader->number<std::uint64_t>("consumed position", 0, kPositionMax);
  if (hello.consumed % kLine != 0) {
    reader->fail(fmt::format("has consumed position {}; multiples of {} are allowed",
                             hello.consumed, kLine));
  }
  hello.read = reader->number<std::uint64_t>("count of read payloads", 0, kPositionMax);
  hello.lent = reader->number<std::uint64_t>("count of lent payloads", 0, kPositionMax);
  const std::uint64_t sources_max = std::min<std::uint64_t>(kLentMax, hello.lent);
  hello.sources.resize(reader->number<std::uint8_t>("count of sources", 0, sources_max));
  for (Source& source : hello.sources) {
    source.address = reader->number<std::uint64_t>("source address");
    for (std::uint32_t& key : source.keys) key = reader->number<std::uint32_t>("source key");
  }
  const auto ends = reader->number<std::uint8_t>("count of queue pairs", 0, kQueuePairsMax);
  for (int i = 0; i < ends && reader->ok(); ++i) {
    hello.queue_pairs.push_back(read_end(reader));
  }
  if (has_twice(hello.queue_pairs)) reader->fail("has one rail and queue pair ordinal twice");
  check_ring(reader, hello);
  return hello;
}

// Indices in order of rail and ordinal.
std::vector<std::size_t> in_order(const std::vector<QueuePairEnd>& ends) {
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(ends[a].rail, ends[a].ordinal) < std::tie(ends[b].rail, ends[b].ordinal);
  });
  return order;
}

bool can_talk(const QueuePairEnd& a, const QueuePairEnd& b) {
  const bool one_layer = a.infiniband == b.infiniband;
  const bool one_roce =
      a.infiniband || (a.roce_v1 == b.roce_v1 && is_ipv4(a.gid) == is_ipv4(b.gid));
  const bool one_partition = ((a.pkey ^ b.pkey) & ~kFullMember & 0xffff) == 0;
  // Two limited members of a partition do not hear each other.
  return one_layer && one_roce && one_partition && ((a.pkey | b.pkey) & kFullMember) != 0;
}

// Each in its order takes the first that is left. Seen from the other side the same pairs result,
// because all agree on who comes first.
std::vector<EndPair> pair_where(const std::vector<QueuePairEnd>& lower,
                                const std::vector<QueuePairEnd>& higher, bool same_rail) {
  std::vector<EndPair> pairs;
  std::vector<std::size_t> left = in_order(higher);
  for (const std::size_t mine : in_order(lower)) {
    const auto theirs = std::find_if(left.begin(), left.end(), [&](std::size_t candidate) {
      return can_talk(lower[mine], higher[candidate]) &&
             (!same_rail || lower[mine].rail == higher[candidate].rail);
    });
    if (theirs == left.end()) continue;
    pairs.push_back({mine, *theirs});
    left.erase(theirs);
  }
  return pairs;
}

}  // namespace

std::string encode(const Hello& hello) {
  UNISONO_ASSERT(hello.sources.size() <= kLentMax && hello.queue_pairs.size() <= kQueuePairsMax,
                 "a hello with too many sources or queue pairs");
  Writer writer(LinkMessageType::kHello);
  writer.number(hello.epoch);
  writer.number(hello.ring_address);
  writer.number(hello.ring_bytes);
  for (const std::uint32_t key : hello.ring_keys) writer.number(key);
  writer.number(hello.immediates);
  writer.number(static_cast<std::uint8_t>(hello.has_sums));
  writer.number(hello.consumed);
  writer.number(hello.read);
  writer.number(hello.lent);
  writer.number(static_cast<std::uint8_t>(hello.sources.size()));
  for (const Source& source : hello.sources) {
    writer.number(source.address);
    for (const std::uint32_t key : source.keys) writer.number(key);
  }
  writer.number(static_cast<std::uint8_t>(hello.queue_pairs.size()));
  for (const QueuePairEnd& end : hello.queue_pairs) write_end(&writer, end);
  return writer.finish();
}

std::string encode_ready(std::uint32_t epoch) {
  Writer writer(LinkMessageType::kReady);
  writer.number(epoch);
  return writer.finish();
}

std::string encode_leaving(std::uint64_t position) {
  Writer writer(LinkMessageType::kLeaving);
  writer.number(position);
  return writer.finish();
}

std::string encode_failed(std::string_view text) {
  Writer writer(LinkMessageType::kFailed);
  writer.text(text.substr(0, kFailureTextBytesMax));
  return writer.finish();
}

Result<LinkMessage> decode_link_message(std::string_view bytes) {
  Reader reader(bytes);
  reader.require(bytes.size() <= kLinkMessageBytesMax, "bytes", bytes.size(), 0,
                 kLinkMessageBytesMax);
  reader.number<std::uint32_t>("mark", kMagic, kMagic);
  reader.number<std::uint16_t>("version", kVersion, kVersion);
  LinkMessage message;
  message.type = static_cast<LinkMessageType>(
      reader.number<std::uint8_t>("type", static_cast<std::uint8_t>(LinkMessageType::kHello),
                                  static_cast<std::uint8_t>(LinkMessageType::kFailed)));
  if (reader.ok()) {
    switch (message.type) {
      case LinkMessageType::kHello:
        message.hello = read_hello(&reader);
        break;
      case LinkMessageType::kReady:
        message.epoch = reader.number<std::uint32_t>("epoch");
        break;
      case LinkMessageType::kLeaving:
        message.position = reader.number<std::uint64_t>("position");
        reader.require(message.position % kLine == 0, "position", message.position, 0,
                       ~std::uint64_t{0} / kLine * kLine);
        break;
      case LinkMessageType::kFailed:
        message.text = reader.text("text", kFailureTextBytesMax);
        break;
    }
  }
  UNISONO_TRY(reader.finish());
  return message;
}

std::vector<EndPair> pair_ends(const std::vector<QueuePairEnd>& lower,
                               const std::vector<QueuePairEnd>& higher) {
  std::vector<EndPair> pairs = pair_where(lower, higher, /*same_rail=*/true);
  if (pairs.empty()) pairs = pair_where(lower, higher, /*same_rail=*/false);
  return pairs;
}

}  // namespace unisono::verbs
