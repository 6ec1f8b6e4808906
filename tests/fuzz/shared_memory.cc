// What processes of the same user can send or write to the ranks of a host: messages of their
// exchange of descriptors, the ring of a ring, and what they say that they have registered.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/memfd.h"
#include "tests/fuzz/frame_sink.h"
#include "tests/fuzz/target.h"
#include "transports/shm/descriptor_exchange.h"
#include "transports/shm/descriptor_message.h"
#include "transports/shm/message_ring.h"
#include "transports/shm/registered_memory.h"

namespace unisono::fuzz {
namespace {

using namespace shm;

/// What an input opens must be closed when it ends.
class NothingLeftOpen {
 public:
  void check() const { require(open() == before_, "a descriptor is left open"); }

 private:
  static std::size_t open() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  std::size_t before_ = open();
};

// More than a message has room for.
constexpr std::size_t kTooMany = kDescriptorsPerMessage + 1;

// One datagram: its bytes, with `count` descriptors of `path`.
void send_datagram(int fd, std::span<const std::byte> bytes, std::size_t count,
                   const char* path = "/dev/null") {
  alignas(cmsghdr) char control[CMSG_SPACE(kTooMany * sizeof(int))] = {};
  const UniqueFd null(::open(path, O_RDONLY | O_CLOEXEC));
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (count > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      const int each = null.get();
      std::memcpy(CMSG_DATA(part) + i * sizeof each, &each, sizeof each);
    }
  }
  // The other side may have hung up.
  static_cast<void>(::sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL));
}

struct Datagram {
  Bytes bytes;
  std::size_t descriptors = 0;

  bool is_cut() const { return descriptors > kDescriptorsPerMessage; }
  /// What it says, where it says something.
  std::optional<Message> message() const {
    Message message;
    if (bytes.size() != sizeof message) return std::nullopt;
    std::memcpy(&message, bytes.data(), sizeof message);
    return message.magic == kDescriptorMessageMagic ? std::optional(message) : std::nullopt;
  }
};

// So few that all their descriptors may be open at once.
std::vector<Datagram> datagrams_of(Input* in) {
  std::vector<Datagram> datagrams;
  while (!in->empty() && datagrams.size() < 8) {
    const std::size_t count = in->byte() % 6;
    const std::span<const std::byte> piece = in->piece();
    datagrams.push_back({{piece.begin(), piece.end()}, count == 5 ? kTooMany : count});
  }
  return datagrams;
}

constexpr const char* kJob = "job";

Message message_of(MessageKind kind) {
  Message message;
  message.magic = kDescriptorMessageMagic;
  message.kind = kind;
  message.index = 1;
  message.job_hash = hash_of(kJob);
  return message;
}

Bytes input_of(int descriptors, const Bytes& datagram) {
  return bytes_of(static_cast<std::uint8_t>(descriptors)) + as_piece(datagram);
}

// ---- One message --------------------------------------------------------------------------------

void fuzz_shm_message(std::span<const std::byte> input) {
  const NothingLeftOpen guard;
  {
    Input in(input);
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "no sockets");
    const UniqueFd near(pair[0]), far(pair[1]);
    std::vector<UniqueFd> descriptors;
    for (const Datagram& datagram : datagrams_of(&in)) {
      send_datagram(far.get(), datagram.bytes, datagram.descriptors);
      const std::size_t before = descriptors.size();
      const auto message = receive_message(near.get(), &descriptors, Clock::now());
      require(message.has_value() == (datagram.message() && !datagram.is_cut()),
              "a datagram is judged differently");
      if (!message) continue;
      require(std::memchr(message->text, 0, sizeof message->text) != nullptr, "an endless text");
      require(descriptors.size() - before == datagram.descriptors, "descriptors are lost");
    }
    for (const UniqueFd& fd : descriptors) {
      require((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0, "open to other programs");
    }
  }
  guard.check();
}

std::vector<Bytes> message_corpus() {
  Message endless = message_of(MessageKind::kRefused);
  std::memset(endless.text, 'x', sizeof endless.text);
  return {input_of(1, bytes_of(message_of(MessageKind::kHello))),
          input_of(4, bytes_of(message_of(MessageKind::kDescriptors))) +
              input_of(0, bytes_of(message_of(MessageKind::kBarrier))),
          input_of(0, bytes_of(endless)),
          input_of(5, bytes_of(message_of(MessageKind::kDescriptors))),
          input_of(2, Bytes(5, std::byte{1})),
          // Once taken for a connection that closed, with its descriptors left open.
          input_of(2, {}), input_of(0, bytes_of(endless) + Bytes(1, std::byte{1}))};
}

// ---- The exchange -------------------------------------------------------------------------------

UniqueFd connected_to(const std::string& name) {
  sockaddr_un address;
  const auto bytes = make_address(name, &address);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  require(
      bytes.has_value() && ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), *bytes) == 0,
      "cannot connect");
  return fd;
}

LocalPeers peers_of(int self, const std::string& leader) {
  LocalPeers peers;
  peers.job_id = kJob;
  peers.self = self;
  peers.world_ranks = {4, 5};
  peers.addresses = {leader, leader};
  return peers;
}

// A leader to whom strangers come first, each with one message, and then the rank it waits for.
void lead(Input* in, LocalListener* listener) {
  enum class Taken { kNothing, kStranger, kRefusal };
  Taken taken = Taken::kNothing;
  for (const Datagram& datagram : datagrams_of(in)) {
    send_datagram(connected_to(listener->address()).get(), datagram.bytes, datagram.descriptors);
    const auto message = datagram.message();
    if (!message || taken != Taken::kNothing) continue;
    // It was a rank of this host, and will not come again.
    if (datagram.is_cut()) taken = Taken::kRefusal;
    if (message->job_hash != hash_of(kJob) || message->index != 1) continue;
    if (message->kind == MessageKind::kRefused) taken = Taken::kRefusal;
    if (message->kind == MessageKind::kHello && datagram.descriptors == 1) {
      taken = Taken::kStranger;  // it knows the job and is of the same user
    }
  }
  send_datagram(connected_to(listener->address()).get(), bytes_of(message_of(MessageKind::kHello)),
                1, "/dev/zero");
  const LocalPeers peers = peers_of(0, listener->address());
  const UniqueFd heap(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  DescriptorExchange exchange(peers, Clock::now() + std::chrono::minutes(1));
  const Status gathered = exchange.gather(*listener, heap.get());
  require(gathered.ok() == (taken != Taken::kRefusal), "a refusal is judged differently");
  if (!gathered.ok()) return;
  require(exchange.heaps().size() == 2 && exchange.heaps()[0] && exchange.heaps()[1],
          "an exchange without a rank");
  struct stat of_rank {
  }, zero{};
  require(::fstat(exchange.heaps()[1]->get(), &of_rank) == 0 && ::stat("/dev/zero", &zero) == 0,
          "no descriptor");
  require((of_rank.st_rdev != zero.st_rdev) == (taken == Taken::kStranger), "a stranger is let in");
}

// A rank whose leader says anything.
void follow(Input* in, LocalListener* listener) {
  const LocalPeers peers = peers_of(1, listener->address());
  const UniqueFd heap(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  DescriptorExchange exchange(peers, Clock::now() + std::chrono::minutes(1));
  require(exchange.gather(*listener, heap.get()).ok(), "no leader");
  const UniqueFd leader(::accept4(listener->fd(), nullptr, nullptr, SOCK_CLOEXEC));
  constexpr std::size_t kExpected = 3;  // the segment and two heaps
  std::size_t sum = 0;
  bool wrong = false;
  for (const Datagram& datagram : datagrams_of(in)) {
    send_datagram(leader.get(), datagram.bytes, datagram.descriptors);
    if (sum == kExpected || wrong) continue;
    const auto message = datagram.message();
    sum += datagram.descriptors;
    wrong = !message || datagram.is_cut() || message->kind != MessageKind::kDescriptors ||
            datagram.descriptors == 0 || sum > kExpected;
  }
  ::shutdown(leader.get(), SHUT_WR);
  UniqueFd segment;
  const Status shared = exchange.share(-1, &segment);
  require(shared.ok() == (!wrong && sum == kExpected), "memory is judged differently");
  if (!shared.ok()) return;
  require(segment && exchange.heaps().size() == 2 && exchange.heaps()[0] && exchange.heaps()[1],
          "an exchange without memory");
  static_cast<void>(exchange.barrier());
}

void fuzz_shm_exchange(std::span<const std::byte> input) {
  // A stranger is worth a line to people; here there are many.
  log::set_level(log::Level::kError);
  const NothingLeftOpen guard;
  {
    Input in(input);
    auto listener = LocalListener::open();
    require(listener.has_value(), "no listener");
    in.byte() % 2 == 0 ? lead(&in, listener->get()) : follow(&in, listener->get());
  }
  guard.check();
  log::set_level(log::Level::kWarning);
}

std::vector<Bytes> exchange_corpus() {
  const Bytes leads{std::byte{0}}, follows{std::byte{1}};
  const Bytes hello = bytes_of(message_of(MessageKind::kHello));
  const Bytes refused = bytes_of(message_of(MessageKind::kRefused));
  const Bytes descriptors = bytes_of(message_of(MessageKind::kDescriptors));
  Message other = message_of(MessageKind::kHello);
  other.job_hash = 1;
  Message far_off = message_of(MessageKind::kHello);
  far_off.index = 1 << 20;
  return {
      leads,
      leads + input_of(1, hello),
      leads + input_of(0, hello) + input_of(2, hello),
      leads + input_of(0, refused),
      leads + input_of(1, bytes_of(other)) + input_of(1, bytes_of(far_off)),
      follows + input_of(3, descriptors) + input_of(0, bytes_of(message_of(MessageKind::kBarrier))),
      follows + input_of(1, descriptors) + input_of(2, descriptors),
      follows + input_of(1, descriptors) + input_of(0, descriptors),
      follows + input_of(4, descriptors),
      follows + input_of(0, refused)};
}

// ---- Where it is --------------------------------------------------------------------------------

void fuzz_shm_address(std::span<const std::byte> input) {
  const std::string name(Input(input).text());
  sockaddr_un address;
  const auto bytes = make_address(name, &address);
  const std::size_t room = sizeof address.sun_path - 1;
  require(bytes.has_value() == (!name.empty() && name.size() <= room), "another bound");
  if (!bytes) return;
  require(*bytes <= sizeof address && address.sun_path[0] == '\0', "an address of another kind");
  require(std::memcmp(address.sun_path + 1, name.data(), name.size()) == 0, "another address");
}

std::vector<Bytes> address_corpus() {
  return {to_bytes("unisono-0123"), Bytes(107, std::byte{'a'}), Bytes(108, std::byte{'a'}), {}};
}

// ---- A ring ------------------------------------------------------------------------------

class RingSink final : public StrictSink {
 public:
  using StrictSink::StrictSink;
  Placement place(Rank peer, const FrameHeader& header) override {
    require(static_cast<int>(header.frame_class) >= 1 && static_cast<int>(header.frame_class) <= 2,
            "an unknown class");
    return StrictSink::place(peer, header);
  }
};

struct RingMemory {
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  RingMemory()
      : base(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, kRingBytesMin))),
        geometry(*RingGeometry::of({base.get(), kRingBytesMin})) {
    std::memset(base.get(), 0, kRingBytesMin);
  }
  std::unique_ptr<std::byte, Free> base;
  RingGeometry geometry;
};

/// Reads what is lent as zeros, or nothing at all, by the dice.
class DicedLoans final : public shm::Loans {
 public:
  explicit DicedLoans(Dice* dice) : Loans(0), dice_(dice) {}
  MemoryHandle lend(Rank, const FrameHeader&, std::span<const std::byte>) const override {
    return {};
  }
  Status collect(Rank, const MemoryHandle&, std::span<std::byte> out) const override {
    if (dice_->below(4) == 0) return Status(ErrorCode::kSystem, "not readable");
    std::fill(out.begin(), out.end(), std::byte{0});
    return Status();
  }

 private:
  Dice* dice_;
};

void fuzz_message_ring(std::span<const std::byte> input) {
  Input in(input);
  Dice dice(in.number<std::uint16_t>());
  RingMemory memory;
  const std::span<const std::byte> lines =
      in.take(static_cast<std::size_t>(memory.geometry.line_count) * kLineBytes);
  if (!lines.empty()) std::memcpy(memory.geometry.line(0), lines.data(), lines.size());
  RingSink sink(&dice);
  // Two buffers, of which the other rank has one, in memory of their exact size.
  std::vector<std::byte> pieces(2 * memory.geometry.buffer_bytes);
  PassedBuffers buffers(1, true);
  buffers.add_own(pieces.data(), memory.geometry.buffer_bytes);
  buffers.add_theirs(pieces.data() + memory.geometry.buffer_bytes, memory.geometry.buffer_bytes);
  const DicedLoans loans(&dice);
  RingReceiver receiver(memory.geometry, 1, dice.below(2) == 0 ? nullptr : &loans, &buffers);
  // Nobody writes any more, so a record may be read again and again: as often as this.
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t what = dice.below(4);
    if (what == 0) static_cast<void>(buffers.take());  // sent back
    if (what == 1) {
      std::vector<std::byte> room(dice.below(1100));
      AwaitedMessage awaited{0, 0, room};
      if (receiver.take_awaited(awaited) == TakeResult::kTaken) continue;
    }
    const RingReceiver::Took took = receiver.take(sink);
    if (took == RingReceiver::Took::kNothing) return;
    if (took == RingReceiver::Took::kEnd) {
      require(receiver.end().ok() ? !receiver.reading() : receiver.end().rank() == 1,
              "an end without its reason");
      return;
    }
  }
}

std::vector<Bytes> ring_corpus() {
  const auto seed = bytes_of(std::uint16_t{1});
  const auto lines_of = [](const RingMemory& memory) {
    return Bytes(memory.geometry.line(0),
                 memory.geometry.line(0) + memory.geometry.line_count * kLineBytes);
  };
  const auto write = [&](std::initializer_list<std::uint32_t> sizes, RingLeft how) {
    RingMemory memory;
    std::vector<std::byte> piece(memory.geometry.buffer_bytes);
    PassedBuffers buffers(1, false);  // so that its number is one that the receiver has not
    buffers.add_own(piece.data(), piece.size());
    RingSender sender(memory.geometry, &buffers);
    const Bytes payload(kRingBytesMin, std::byte{0x33});
    for (const std::uint32_t size : sizes) {
      FrameHeader header;
      header.payload_bytes = size;
      header.total_bytes = size;
      static_cast<void>(sender.push(header, std::span(payload).first(size)));
    }
    if (how != RingLeft::kNot) sender.leave(how);
    return seed + lines_of(memory);
  };
  RingMemory lent;
  FrameHeader header;
  header.payload_bytes = 100;
  const Bytes payload(100, std::byte{1});
  static_cast<void>(RingSender(lent.geometry)
                        .lend(header, payload, {MemoryPath::kPointer, payload.size(), 4096}));
  return {seed,
          write({0, 5, 16, 17, 64, 300}, RingLeft::kGoodbye),
          write({3000}, RingLeft::kUnfinished),
          write({900, 900, 900, 10}, RingLeft::kNot),
          write({1}, RingLeft::kAbandoned),
          seed + lines_of(lent)};
}

// ---- Registered memory --------------------------------------------------------------------------

// What a peer may publish of one range, as words of an input.
struct Published {
  std::int64_t fd;
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t offset;
  std::uint64_t bytes;
};

// A file of this process that a peer could have registered.
struct RegisteredFile {
  explicit RegisteredFile(int seals, std::size_t bytes)
      : fd(make_memfd("registered", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    struct stat facts {};
    require(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0 &&
                ::fcntl(fd.get(), F_ADD_SEALS, seals) == 0 && ::fstat(fd.get(), &facts) == 0,
            "no file");
    device = facts.st_dev;
    inode = facts.st_ino;
  }
  UniqueFd fd;
  std::uint64_t device, inode;
};

constexpr std::size_t kFileBytes = 3 * kPageBytes + 5;

// The words are added to those of a file, so that small ones come close to what is right.
void publish(RegisteredEntry& entry, const RegisteredFile& file, const Published& words) {
  entry.generation += 1;
  entry.fd = static_cast<std::int64_t>(static_cast<std::uint64_t>(file.fd.get()) +
                                       static_cast<std::uint64_t>(words.fd));
  entry.device = file.device + words.device;
  entry.inode = file.inode + words.inode;
  entry.offset = words.offset;
  entry.bytes = words.bytes;
}

void fuzz_registered_memory(std::span<const std::byte> input) {
  const NothingLeftOpen guard;
  {
    Input in(input);
    const RegisteredFile sealed(F_SEAL_SHRINK, kFileBytes), loose(F_SEAL_GROW, kFileBytes);
    RegisteredTable table{};
    RegisteredViews views({{&table, ::getpid()}});
    for (int i = 0; i < 8 && !in.empty(); ++i) {
      const bool is_sealed = in.byte() % 4 != 0;
      const std::uint64_t number = in.byte();
      const auto words = in.number<Published>();
      if (number < kRegisteredMax) {
        publish(table.entries[number], is_sealed ? sealed : loose, words);
      }
      const auto view = views.open(0, number);
      const bool is_right = is_sealed && number < kRegisteredMax && words.fd == 0 &&
                            words.device == 0 && words.inode == 0 && words.bytes > 0 &&
                            words.offset <= kFileBytes && words.bytes <= kFileBytes - words.offset;
      // Another descriptor may be the same file.
      require(!is_right || view.has_value(), "a right range is refused");
      if (!view) continue;
      require(is_sealed && (*view)->bytes() == words.bytes, "a wrong range is mapped");
      for (std::size_t at = 0; at < words.bytes; at += kPageBytes / 2) {
        require((*view)->base()[at] == std::byte{0}, "another file is mapped");
      }
    }
  }
  guard.check();
}

std::vector<Bytes> registered_corpus() {
  const auto entry = [](int sealed, int number, const Published& words) {
    return Bytes{static_cast<std::byte>(sealed), static_cast<std::byte>(number)} + bytes_of(words);
  };
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  return {entry(1, 0, {0, 0, 0, 0, kFileBytes}) + entry(1, 0, {0, 0, 0, 100, 5000}),
          entry(1, 63, {0, 0, 0, kPageBytes, 1}) + entry(1, 64, {0, 0, 0, 0, 1}),
          entry(0, 1, {0, 0, 0, 0, kPageBytes}),
          entry(1, 2, {0, 0, 0, 1, kFileBytes}) + entry(1, 2, {0, 0, 0, kMost, 2}),
          entry(1, 3, {0, 0, 0, 0, kMost}) + entry(1, 3, {0, 0, 0, kFileBytes, 0}),
          entry(1, 4, {1, 0, 0, 0, 100}) + entry(1, 4, {-1, 0, 1, 0, 100}),
          entry(1, 5, {std::int64_t{1} << 40, 1, 0, 0, 100})};
}

}  // namespace

void add_shared_memory(Targets* targets) {
  targets->push_back({"shm_message", fuzz_shm_message, message_corpus, 500});
  targets->push_back({"shm_exchange", fuzz_shm_exchange, exchange_corpus, 300});
  targets->push_back({"shm_address", fuzz_shm_address, address_corpus, 3000});
  targets->push_back({"message_ring", fuzz_message_ring, ring_corpus, 3000});
  targets->push_back({"registered_memory", fuzz_registered_memory, registered_corpus, 1000});
}

}  // namespace unisono::fuzz
