// What ranks tell each other to bring queue pairs up, and the ring that a peer writes by RDMA.
#include <algorithm>
#include <memory>

#include "tests/fuzz/target.h"
#include "tests/verbs/sum_head.h"
#include "transports/verbs/hello.h"
#include "transports/verbs/receive_ring.h"
#include "transports/verbs/send_ring.h"

namespace unisono::fuzz {
namespace {

using namespace verbs;

std::string encode_again(const LinkMessage& message) {
  switch (message.type) {
    case LinkMessageType::kHello:
      return encode(message.hello);
    case LinkMessageType::kReady:
      return encode_ready(message.epoch);
    case LinkMessageType::kLeaving:
      return encode_leaving(message.position);
    case LinkMessageType::kFailed:
      return encode_failed(message.text);
  }
  throw Broken("a message of no type");
}

void check_hello(const Hello& hello) {
  require(hello.queue_pairs.size() <= kQueuePairsMax && hello.sources.size() <= kLentMax,
          "more queue pairs or sources than allowed");
  require(hello.ring_bytes <= kRingBytesMax && hello.immediates <= kImmediatesMax &&
              hello.consumed <= kPositionMax && hello.consumed % kLine == 0,
          "a number beyond its limits");
  require(hello.sources.size() <= hello.lent, "sources that were never lent");
  if (!hello.queue_pairs.empty()) {
    require(hello.ring_bytes >= kRingBytesMin && hello.immediates > 0,
            "queue pairs without a ring");
  }
  std::vector<bool> taken(hello.queue_pairs.size());
  for (const EndPair& pair : pair_ends(hello.queue_pairs, hello.queue_pairs)) {
    require(pair.lower < taken.size() && pair.higher < taken.size() && !taken[pair.higher],
            "a queue pair of no pair or of two");
    taken[pair.higher] = true;
  }
}

void fuzz_link_message(std::span<const std::byte> input) {
  const std::string_view bytes = Input(input).text();
  const auto message = decode_link_message(bytes);
  if (!message) {
    require(message.error().code() == ErrorCode::kProtocol, "an undocumented error");
    return;
  }
  require(bytes.size() <= kLinkMessageBytesMax, "a message above its limit");
  if (message->type == LinkMessageType::kHello) check_hello(message->hello);
  require(encode_again(*message) == bytes, "another message");
}

std::vector<Bytes> message_corpus() {
  Hello hello;
  hello.epoch = 2;
  hello.ring_address = 4096;
  hello.ring_bytes = kRingBytesMin;
  hello.immediates = 64;
  hello.consumed = 128;
  hello.lent = 3;
  hello.sources.resize(2);
  Hello rails = hello;
  for (int i = 0; i < 4; ++i) {
    QueuePairEnd end;
    end.rail = static_cast<std::uint8_t>(i / 2);
    end.ordinal = static_cast<std::uint8_t>(i % 2);
    end.mtu = 3;
    end.pkey = 0xffff;
    end.number = 17;
    rails.queue_pairs.push_back(end);
  }
  std::vector<Bytes> inputs;
  for (const std::string& text : {encode(hello), encode(rails), encode(Hello{}), encode_ready(7),
                                  encode_leaving(640), encode_failed("the port went down")}) {
    inputs.push_back(to_bytes(text));
  }
  return inputs;
}

// ---- The ring -----------------------------------------------------------------------------------

constexpr std::size_t kRing = kRingBytesMin;

struct AlignedFree {
  void operator()(std::byte* at) const { std::free(at); }
};

// `sums_again`: whoever writes the ring knows how to sum what is looked at next.
void fuzz_ring(Input in, std::optional<Rank> summed_by, bool sums_again) {
  const std::span<const std::byte> orders = in.take(64);
  const std::unique_ptr<std::byte, AlignedFree> memory(
      static_cast<std::byte*>(std::aligned_alloc(kLine, kRing)));
  const std::span<std::byte> ring_bytes(memory.get(), kRing);
  std::fill(ring_bytes.begin(), ring_bytes.end(), std::byte{0});
  const std::span<const std::byte> content = in.take(kRing);
  std::copy(content.begin(), content.end(), ring_bytes.begin());
  ReceiveRing ring(ring_bytes, summed_by);
  for (Input order(orders); !order.empty();) {
    const int what = order.byte();
    Status status;
    if (what % 4 == 0) {
      status = ring.written(order.number<std::uint32_t>());
    } else if (what % 4 == 1) {
      status = ring.written_up_to(order.number<std::uint64_t>());
    } else if (what % 4 == 2) {
      // As far as a correct peer may say.
      status = ring.written_up_to(ring.consumed() + (what / 4) * kLine);
    } else {
      ring.restart();
    }
    require(ring.consumed() <= ring.written() && ring.written() - ring.consumed() <= kRing,
            "more is written than there is room for");
    for (int i = 0; i < 100; ++i) {
      ReceiveRing::Record record;
      const std::uint64_t before = ring.consumed();
      if (sums_again) verbs::test::sum_head_at(ring_bytes, before);
      const auto got = ring.peek(&record);
      if (!got) {
        const bool is_sum = got.error().code() == ErrorCode::kCorrupted;
        require(is_sum ? summed_by.has_value() : got.error().code() == ErrorCode::kProtocol,
                "an undocumented error");
        require(!sums_again || !is_sum || ring.consumed() > before,
                "a sum that is right is refused");
        // Behind a skip there is a head that is not summed yet.
        if (sums_again && is_sum) continue;
        return;
      }
      require(ring.written() - ring.consumed() <= kRing && ring.consumed() <= ring.written(),
              "read further than written");
      if (!*got) break;
      require(record.header.reserved == 0, "a mark of the ring leaves it");
      require(record.header.payload_bytes <= kFramePayloadMax, "a payload above the limit");
      require(record.payload.empty() ||
                  (record.payload.data() >= memory.get() &&
                   record.payload.data() + record.payload.size() <= memory.get() + kRing),
              "a payload outside of the ring");
      if (i % 3 != 2) ring.pop();
    }
  }
}

void fuzz_receive_ring(std::span<const std::byte> input) {
  fuzz_ring(Input(input), std::nullopt, false);
}
void fuzz_summed_ring(std::span<const std::byte> input) {
  Input in(input);
  const bool sums_again = in.byte() % 2 == 1;
  fuzz_ring(in, Rank{1}, sums_again);
}

FrameHeader header_of(RecordKind kind, std::size_t payload_bytes) {
  FrameHeader header;
  header.reserved = static_cast<std::uint16_t>(kind);
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  return header;
}

std::vector<Bytes> ring_corpus() {
  // Records of 20 bytes, a lent one, a skip to the end.
  const FrameHeader whole = header_of(RecordKind::kWhole, 20);
  const FrameHeader lent = header_of(RecordKind::kLent, 20);
  const FrameHeader skip = header_of(RecordKind::kSkip, kRing - 5 * kLine);
  const Bytes line(kLine, std::byte{2});
  Bytes orders(64, std::byte{2 + 4 * 2});
  Bytes all(64, std::byte{2 + 4 * 63});
  const Bytes content = bytes_of(whole) + line + bytes_of(lent) + line + bytes_of(skip);
  Bytes restarts = orders;
  for (std::size_t i = 1; i < restarts.size(); i += 3) restarts[i] = std::byte{3};
  return {orders + content, all + content, restarts + content, Bytes(64, std::byte{1}) + content,
          Bytes{}};
}

// As a correct peer writes them, and others that are summed as they are looked at.
std::vector<Bytes> summed_corpus() {
  Bytes memory(kRing);
  SendRing ring(memory, true);
  FrameHeader header;
  header.payload_bytes = 1000;
  for (int record = 0; record < 3; ++record) {
    ring.append_whole(header, Bytes(header.payload_bytes, std::byte{2}));
  }
  ring.append_lent(header, {}, 7);
  Bytes few(64, std::byte{2 + 4 * 2});
  Bytes all(64, std::byte{2 + 4 * 63});
  FrameHeader skip = header_of(RecordKind::kSkip, kLine);
  skip.total_bytes = sum_of_skip(skip, 0);
  const Bytes line(kLine, std::byte{2});
  // The last one would cross the ring's end.
  const Bytes hostile = bytes_of(skip) + line + bytes_of(header_of(RecordKind::kWhole, 20)) + line +
                        line + bytes_of(header_of(RecordKind::kLent, 20)) + line +
                        bytes_of(header_of(RecordKind::kSkip, kRing - 10 * kLine)) +
                        Bytes(kRing - 10 * kLine) + bytes_of(header_of(RecordKind::kWhole, 1000)) +
                        line;
  const Bytes as_it_is(1, std::byte{0});
  const Bytes summed(1, std::byte{1});
  return {as_it_is + few + memory,  as_it_is + all + memory, summed + few + memory,
          as_it_is + all + hostile, summed + few + hostile,  summed + all + hostile};
}

}  // namespace

void add_verbs(Targets* targets) {
  targets->push_back({"link_message", fuzz_link_message, message_corpus, 10'000});
  targets->push_back({"receive_ring", fuzz_receive_ring, ring_corpus, 3000});
  targets->push_back({"summed_ring", fuzz_summed_ring, summed_corpus, 3000});
}

}  // namespace unisono::fuzz
