// What a legal program may do to the receiver's bookkeeping: any number of messages, receives and
// collectives that the other rank has not come to yet, in any order. All arrive, and what is kept
// of them stays within the credit.
#include <deque>
#include <numeric>
#include <random>

#include "tests/engine/messenger_fixture.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kCredit = 2048;  // of 32 announcements
constexpr std::size_t kEager = 32;

/// From one messenger to the other; takes so many frames and is then full.
class Wire final : public Transport, private Endpoint {
 public:
  explicit Wire(Rank peer) : peer_(peer) {}
  void connect(Wire& other) { other_ = &other; }
  std::size_t carried(FrameKind kind) const { return carried_[static_cast<std::size_t>(kind)]; }

  std::string_view name() const override { return "wire"; }
  EndpointTraits traits() const override {
    return {.eager_bytes_max = kEager, .eager_credit_bytes = kCredit};
  }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return Status(); }
  Endpoint& endpoint(Rank) override { return *this; }
  bool has_unsent() const override { return false; }
  void close(TimePoint, FrameSink&) override {}
  bool poll(FrameSink& sink) override {
    if (arriving_.empty()) return false;
    const Outbox::Frame frame = std::move(arriving_.front());
    arriving_.pop_front();
    const Placement placement = sink.place(peer_, frame.header);
    if (placement.kind == Placement::Kind::kInto) {
      std::copy(frame.payload.begin(), frame.payload.end(), placement.target);
    }
    sink.received(peer_, frame.header);
    return true;
  }

 private:
  static constexpr std::size_t kFramesMax = 5;
  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t) override {
    if (other_->arriving_.size() >= kFramesMax) return PostResult::kFull;
    other_->arriving_.push_back({header, {payload.begin(), payload.end()}});
    ++carried_[static_cast<std::size_t>(header.kind)];
    return PostResult::kDone;
  }
  void cancel(std::uint64_t) override {}
  void abandon(const std::byte*, std::size_t) override {}

  Rank peer_;
  Wire* other_ = nullptr;
  std::deque<Outbox::Frame> arriving_;
  std::size_t carried_[16] = {};
};

/// Rank 0 sends to rank 1. A message's bytes are its number, as often as it is long.
class Credit : public testing::Test {
 public:
  Credit() : to_receiver(1), to_sender(0), sender(2, events, 0), receiver(2, events, 0) {
    to_receiver.connect(to_sender);
    to_sender.connect(to_receiver);
    sender.set_route(1, to_receiver);
    receiver.set_route(0, to_sender);
    for (Messenger* each : {&sender, &receiver}) each->open(kCommunicator, std::vector<Rank>{0, 1});
  }
  ~Credit() override { EXPECT_TRUE(events.none()); }

  bool poll() {
    const bool sent = sender.poll();
    return receiver.poll() || sent;
  }
  void settle() {
    while (poll()) {
    }
  }
  static MessageKey tag_key(Tag tag, std::uint64_t sequence = 0) {
    return {kCommunicator, FrameClass::kPointToPoint, tag, sequence};
  }
  void send(const MessageKey& key, std::size_t bytes) {
    const std::uint64_t number = key.sequence;
    payloads.emplace_back(bytes / sizeof number, number);
    const auto slot = static_cast<std::uint32_t>(payloads.size());
    if (sender.send(1, key, {}, std::as_bytes(std::span(payloads.back())), sent, slot)) {
      ++sent.done[slot];
    }
  }
  void send(Tag tag, std::size_t bytes) { send(tag_key(tag, next_++), bytes); }

  struct Got {
    std::vector<std::uint64_t> numbers;
    TaggedResult result;
    bool done = false;
    std::uint64_t number() const { return numbers.empty() ? ~std::uint64_t{0} : numbers.front(); }
  };
  Got& receive(Tag tag, Rank from = 0, std::size_t room = 64) {
    Got& to = got.emplace_back();
    to.numbers.resize(room / sizeof(std::uint64_t), ~std::uint64_t{0});
    to.done =
        receiver.receive_tagged(from, tag_key(tag), reinterpret_cast<std::byte*>(to.numbers.data()),
                                room, &to.result, received, static_cast<std::uint32_t>(got.size()));
    return to;
  }
  Got& receive(const MessageKey& key, std::size_t bytes) {
    Got& to = got.emplace_back();
    to.numbers.resize(bytes / sizeof(std::uint64_t), ~std::uint64_t{0});
    to.done = receiver.receive(0, key, {}, reinterpret_cast<std::byte*>(to.numbers.data()), bytes,
                               received, static_cast<std::uint32_t>(got.size()));
    return to;
  }
  /// All receives so far are over, each once.
  bool all_received() {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool told = received.done.count(static_cast<std::uint32_t>(i + 1)) > 0;
      if (told == got[i].done) return false;
    }
    return true;
  }

  Events events;
  Wire to_receiver, to_sender;
  Messenger sender, receiver;
  Owner sent, received;
  std::deque<std::vector<std::uint64_t>> payloads;
  std::deque<Got> got;

 private:
  std::uint64_t next_ = 0;
};

constexpr std::uint64_t kMany = 70'000;

class CreditOf : public Credit, public testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, CreditOf, testing::Values(8, 64),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(CreditOf, MessagesThatNobodyHasPostedAReceiveForWaitAtTheirSender) {
  for (std::uint64_t i = 0; i < kMany; ++i) send(Tag{1}, GetParam());
  settle();
  const std::size_t unexpected =
      to_receiver.carried(FrameKind::kEager) + to_receiver.carried(FrameKind::kAnnounce);
  EXPECT_LE(unexpected, kCredit / sizeof(FrameHeader));
  for (std::uint64_t i = 0; i < kMany; ++i) {
    Got& to = receive(Tag{1});
    settle();
    ASSERT_EQ(to.number(), i);
    got.pop_front();
    received.done.clear();
  }
  EXPECT_EQ(sent.done.size(), kMany);
}

TEST_P(CreditOf, MessageOfALaterTagIsReceivedFirst) {
  for (const Rank from : {Rank{0}, kAnyRank}) {
    for (const bool posted_first : {true, false}) {
      Got* to = posted_first ? &receive(Tag{2}, from) : nullptr;
      for (int i = 0; i < 100; ++i) send(Tag{1}, GetParam());
      settle();
      send(Tag{2}, GetParam());
      settle();
      if (!posted_first) to = &receive(Tag{2}, from);
      settle();
      EXPECT_TRUE(all_received());
      EXPECT_EQ(to->number(), payloads.back().front());
    }
  }
  for (int i = 0; i < 400; ++i) receive(Tag{1});
  settle();
  EXPECT_TRUE(all_received());
  EXPECT_EQ(sent.done.size(), payloads.size());
}

TEST_P(CreditOf, MessagesOfOneTagAreFetchedOneAfterTheOther) {
  for (int i = 0; i < 5; ++i) receive(Tag{2});
  for (int i = 0; i < 100; ++i) send(Tag{1}, GetParam());
  settle();
  for (int i = 0; i < 5; ++i) send(Tag{2}, GetParam());
  settle();
  EXPECT_TRUE(all_received());
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(got[i].number(), 100 + i);
}

TEST_P(CreditOf, MessagesThatAreReceivedGiveTheirCreditBack) {
  for (const bool posted_first : {true, false}) {
    for (int i = 0; i < 200; ++i) {
      if (posted_first) receive(Tag{1});
      send(Tag{1}, GetParam());
      settle();
      if (!posted_first) receive(Tag{1});
      settle();
    }
  }
  EXPECT_TRUE(all_received());
  EXPECT_EQ(to_sender.carried(FrameKind::kWant), 0u);
}

TEST_P(CreditOf, CollectiveMessageComesThoughEarlierOnesHaveTakenTheCredit) {
  for (const bool posted_first : {false, true}) {
    const MessageKey key = key_of(posted_first);
    if (posted_first) receive(key, GetParam());
    for (int i = 0; i < 100; ++i) send(Tag{1}, GetParam());
    settle();
    send(key, GetParam());
    settle();
    if (!posted_first) receive(key, GetParam());
    settle();
    EXPECT_TRUE(all_received());
    EXPECT_EQ(got.back().number(), key.sequence);
  }
}

TEST(Unasked, MessageThatItsEndpointWantsNoGrantForGoesAtOnceWhereThereIsCredit) {
  constexpr std::size_t kUnasked = 4 * kEagerBytes;
  Fixture fixture;
  fixture.to(1).unasked_bytes = kUnasked;
  const Bytes payload(kUnasked + 1);
  const auto send = [&](FrameClass frame_class, std::uint32_t index, std::size_t bytes) {
    fixture.messenger.send(1, {kCommunicator, frame_class, index, 0}, {},
                           std::span(payload).first(bytes), fixture.owner, index);
  };
  send(FrameClass::kPointToPoint, 1, kUnasked);
  const std::vector<FrameHeader> sent = fixture.to(1).of(FrameKind::kEager);
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].payload_bytes, kUnasked);
  send(FrameClass::kPointToPoint, 2, kUnasked + 1);
  EXPECT_THAT(fixture.to(1).of(FrameKind::kAnnounce), SizeIs(1));
  send(FrameClass::kCollective, 0, kUnasked);  // its receiver decides by the size alone
  EXPECT_THAT(fixture.to(1).frames, SizeIs(2));
  send(FrameClass::kPointToPoint, 3, kUnasked);
  send(FrameClass::kPointToPoint, 4, kUnasked);
  send(FrameClass::kPointToPoint, 5, kUnasked);  // less credit is left than it takes
  EXPECT_THAT(fixture.to(1).of(FrameKind::kEager), SizeIs(3));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kAnnounce), SizeIs(2));
}

TEST(Returned, CreditTravelsWithMessagesWhereBothSend) {
  Fixture fixture;
  constexpr std::size_t kCost = kEagerBytes + sizeof(FrameHeader);
  const Bytes payload(kEagerBytes);
  Bytes target(kEagerBytes);
  constexpr std::uint64_t kRounds = 100;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    fixture.messenger.send(1, key_of(round), {}, payload, fixture.owner, 0);
    fixture.messenger.receive(1, key_of(round), {}, target.data(), target.size(), fixture.owner, 0);
    FrameHeader theirs = header_of(FrameKind::kEager, key_of(round), kEagerBytes, kEagerBytes);
    theirs.offset = kCost;  // for the one just sent
    fixture.frame(1, theirs, payload);
  }
  EXPECT_TRUE(fixture.events.none());
  EXPECT_THAT(fixture.to(1).of(FrameKind::kCredit), IsEmpty());
  const std::vector<FrameHeader> sent = fixture.to(1).of(FrameKind::kEager);
  ASSERT_THAT(sent, SizeIs(kRounds)) << "and it could be spent again";
  EXPECT_EQ(sent[0].offset, 0u);
  for (std::size_t i = 1; i < sent.size(); ++i) ASSERT_EQ(sent[i].offset, kCost) << i;
}

TEST(Returned, CreditThatWasNotSpentIsRefused) {
  for (const FrameKind kind : {FrameKind::kCredit, FrameKind::kEager}) {
    Fixture fixture;
    const Bytes payload(36);
    fixture.messenger.send(1, key_of(0), {}, payload, fixture.owner, 0);  // 100 of credit
    const auto give_back = [&](std::uint64_t sequence, std::size_t bytes) {
      if (kind == FrameKind::kCredit) {
        fixture.frame(1, header_of(kind, key_of(0), bytes));
      } else {
        fixture.frame(1, header_of(kind, key_of(sequence), 36, 36, bytes), payload);
      }
    };
    give_back(0, 100);
    EXPECT_TRUE(fixture.events.none());
    give_back(1, kind == FrameKind::kCredit ? ~std::size_t{0} : 1);
    EXPECT_THAT(fixture.events.violations,
                ElementsAre(testing::HasSubstr("more credit than it had been sent for")));
  }
}

// Its sender refuses to hear of more.
TEST(Wanted, AreNoMoreTagsThanMayBeNamed) {
  constexpr Tag kTags = 1 << 14;
  Fixture fixture;
  fixture.spend_credit(1);
  std::vector<TaggedResult> results(kTags + 1);
  Bytes room(8);
  for (Tag i = 0; i <= kTags; ++i) {
    const MessageKey key{kCommunicator, FrameClass::kPointToPoint, 2000 + i, 0};
    fixture.messenger.receive_tagged(1, key, room.data(), 8, &results[i], fixture.owner, i);
  }
  EXPECT_EQ(fixture.to(1).of(FrameKind::kWant).size(), kTags);
}

TEST_F(Credit, OperationIsNotStarvedByThoseBehindIt) {
  // Rank 0 has come to 100 operations; the first needs a message that it sends last.
  for (std::uint64_t operation = 1; operation < 100; ++operation) send(key_of(operation), 8);
  settle();
  receive(key_of(0), 8);
  settle();
  send(key_of(0), 8);
  settle();
  EXPECT_TRUE(all_received());
  for (std::uint64_t operation = 1; operation < 100; ++operation) receive(key_of(operation), 8);
  settle();
  EXPECT_TRUE(all_received());
  EXPECT_EQ(sent.done.size(), 100u);
}

TEST_F(Credit, CreditComesBackThoughLittleOfItIsInUse) {
  // All but a little is taken by messages that nobody receives; the rest must serve for ever.
  for (std::size_t i = 0; i + 4 < kCredit / sizeof(FrameHeader); ++i) send(Tag{1}, 64);
  for (int i = 0; i < 200; ++i) {
    receive(Tag{2});
    send(Tag{2}, 8);
    settle();
  }
  EXPECT_TRUE(all_received());
  EXPECT_EQ(to_sender.carried(FrameKind::kWant), 0u);
  EXPECT_EQ(to_receiver.carried(FrameKind::kEager), 200u);
}

TEST_F(Credit, ReceivesOfCollectivesThatTheSenderHasNotComeToAreGrantedInTheEnd) {
  constexpr std::uint64_t kOperations = 5000;  // more than the grants that are kept
  for (std::uint64_t i = 0; i < kOperations; ++i) receive(key_of(i), 64);
  settle();
  for (std::uint64_t i = 0; i < kOperations; ++i) {
    send(key_of(i), 64);
    if (i % 50 == 0) settle();
  }
  settle();
  EXPECT_TRUE(all_received());
  EXPECT_GT(to_receiver.carried(FrameKind::kAsk), 0u);
  for (std::uint64_t i = 0; i < kOperations; ++i) ASSERT_EQ(got[i].number(), i);
}

// Both ranks take part in the same messages, each in an order of its own, and are served in turns
// of any length. Whatever the order: everything arrives, and of one tag in the order of sending.
class AnyOrder : public Credit, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, AnyOrder, testing::Range(0, 60));

TEST_P(AnyOrder, EverythingArrives) {
  constexpr Tag kTags = 6;
  constexpr int kMessages = 400;
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::vector<Tag> tags(kMessages);
  for (Tag& tag : tags) tag = random() % kTags;
  std::vector<std::uint64_t> operations(kMessages);
  std::iota(operations.begin(), operations.end(), 0);
  std::vector<std::uint64_t> theirs = operations;
  std::vector<Tag> wanted = tags;
  // Neighbours change places, or all do.
  const std::size_t reach = GetParam() % 3 == 0 ? kMessages : 1 + random() % 40;
  const auto shuffle = [&](auto& list) {
    for (std::size_t i = 0; i < list.size(); i += reach) {
      const std::size_t end = std::min(list.size(), i + reach);
      std::shuffle(list.begin() + static_cast<std::ptrdiff_t>(i),
                   list.begin() + static_cast<std::ptrdiff_t>(end), random);
    }
  };
  shuffle(operations);
  shuffle(theirs);
  shuffle(wanted);
  const auto bytes_of = [](std::uint64_t number) { return std::size_t{8} << (number * 7 % 4); };
  const unsigned lead = random() % 4;  // who is ahead of whom
  std::size_t sends = 0, receives = 0;
  std::vector<std::vector<Got*>> by_tag(kTags);
  while (sends < 2 * kMessages || receives < 2 * kMessages) {
    const bool may_choose = sends < 2 * kMessages && receives < 2 * kMessages;
    const bool sends_now = may_choose ? random() % 4 >= lead : sends < 2 * kMessages;
    for (unsigned burst = random() % 30; burst > 0; --burst) {
      if (sends_now && sends < 2 * kMessages) {
        const std::size_t at = sends / 2;
        if (sends++ % 2 == 0) {
          send(tag_key(tags[at], at), bytes_of(at));
        } else {
          send(key_of(operations[at]), bytes_of(operations[at]));
        }
      } else if (!sends_now && receives < 2 * kMessages) {
        const std::size_t at = receives / 2;
        if (receives++ % 2 == 0) {
          by_tag[wanted[at]].push_back(&receive(wanted[at], random() % 2 ? 0 : kAnyRank));
        } else {
          receive(key_of(theirs[at]), bytes_of(theirs[at]));
        }
      }
    }
    for (unsigned turns = random() % 60; turns > 0; --turns) poll();
  }
  settle();
  ASSERT_TRUE(all_received());
  EXPECT_EQ(sent.done.size(), payloads.size());
  for (Tag tag = 0; tag < kTags; ++tag) {
    std::size_t next = 0;
    for (std::uint64_t number = 0; number < kMessages; ++number) {
      if (tags[number] != tag) continue;
      EXPECT_EQ(by_tag[tag][next++]->number(), number);
    }
  }
}

}  // namespace
}  // namespace unisono::test
