// Tickets and descriptor sockets of peers that are no correct peers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "cuda/memory/descriptor_server.h"
#include "cuda/memory/ticket_check.h"
#include "tests/cuda/memory_fixture.h"
#include "tests/cuda/memory_owner.h"
#include "tests/support/log_guard.h"
#include "transports/shm/descriptor_message.h"

namespace unisono::test {
namespace {

using cuda::BufferTicket;
using cuda::DescriptorServer;
using ::testing::HasSubstr;
using Kind = BufferTicket::Kind;

struct Lie {
  const char* name;
  std::function<void(BufferTicket&)> tell;
  const char* words;  ///< in the message
};

std::vector<Lie> lies_of_any() {
  return {
      {"kind", [](auto& t) { t.kind = static_cast<Kind>(5); }, "kind 5"},
      {"reserved", [](auto& t) { t.reserved[2] = 1; }, "reserved"},
      {"no process", [](auto& t) { t.process = 0; }, "process 0"},
      {"negative process", [](auto& t) { t.process = -7; }, "process -7"},
      {"no key", [](auto& t) { t.process_key = 0; }, "key 0"},
      {"no base", [](auto& t) { t.base = 0; }, "base 0"},
      {"no bytes", [](auto& t) { t.allocation_bytes = 0; }, "allocation of 0 bytes"},
      {"all bytes", [](auto& t) { t.allocation_bytes = UINT64_MAX; }, "an allocation of"},
      {"past the end", [](auto& t) { t.base = t.address = UINT64_MAX - 4096; }, "an allocation of"},
      {"address below", [](auto& t) { t.address = t.base - 1; }, "4096 bytes at"},
      {"address above", [](auto& t) { t.address = t.base + t.allocation_bytes + 1; }, "bytes at"},
      {"end above", [](auto& t) { t.address = t.base + t.allocation_bytes - 4095; }, "bytes at"},
      {"address wraps", [](auto& t) { t.address = UINT64_MAX - 100; }, "4096 bytes at"},
  };
}

std::vector<Lie> lies_of_windows() {
  return {
      {"no number", [](auto& t) { t.allocation_id = 0; }, "window 0"},
      {"endless name", [](auto& t) { t.socket.fill('u'); }, "without end"},
      {"no name", [](auto& t) { t.socket.fill('\0'); }, "socket name of 0"},
      {"another name", [](auto& t) { t.socket[0] = 'x'; }, "socket name"},
      {"odd size", [](auto& t) { t.allocation_bytes = kMiB + 1; }, "multiples of"},
  };
}

class HostileTicket : public ::testing::Test {
 protected:
  void expect_refused(const BufferTicket& good, const std::vector<Lie>& lies) {
    for (const Lie& lie : lies) {
      BufferTicket bad = good;
      lie.tell(bad);
      const auto mapped = memory_->open(bad, other_process(4), 4096);
      ASSERT_FALSE(mapped) << lie.name;
      EXPECT_EQ(mapped.error().code(), ErrorCode::kProtocol) << lie.name;
      EXPECT_EQ(mapped.error().rank(), 4) << lie.name;
      EXPECT_THAT(mapped.error().message(), HasSubstr("rank 4")) << lie.name;
      EXPECT_THAT(mapped.error().message(), HasSubstr(lie.words)) << lie.name;
    }
    EXPECT_EQ(fake()->counts().imports, 0u);
    EXPECT_EQ(fake()->counts().virtual_parts, 0u);
    EXPECT_TRUE(memory_->open(good, other_process(4), 4096));
    memory_->forget(4);
    memory_->side_work().finish();
  }

  LogGuard log_;
  std::unique_ptr<cuda::DeviceMemory> memory_ = open_device();
  MemoryOwner owner_;
};

TEST_F(HostileTicket, OfAWindowIsRefused) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto good = owner_.ticket_of(*owner_.allocate(2 * kMiB), 4096);
  ASSERT_TRUE(good);
  expect_refused(*good, lies_of_any());
  expect_refused(*good, lies_of_windows());
}

TEST_F(HostileTicket, OfAnIpcHandleIsRefused) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto good = owner_.ticket_of(*owner_.cuda_malloc(2 * kMiB), 4096);
  ASSERT_TRUE(good);
  expect_refused(*good, lies_of_any());
  expect_refused(
      *good, {{"no handle", [](auto& t) { t.ipc_handle.fill(0); }, "empty IPC handle"},
              {"too many bytes", [](auto& t) { t.allocation_bytes = 64 * kMiB; }, "it has only"}});
}

TEST_F(HostileTicket, WithAHandleOfNobodyIsTheDriversToRefuse) {
  auto ticket = *owner_.ticket_of(*owner_.cuda_malloc(kMiB), 4096);
  ticket.ipc_handle.fill(0x5a);
  const auto mapped = memory_->open(ticket, other_process(4), 4096);
  ASSERT_FALSE(mapped);
  EXPECT_THAT(mapped.error().message(), HasSubstr("rank 4"));
}

TEST_F(HostileTicket, ThatClaimsMoreThanAWindowHasMapsNothing) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  auto ticket = *owner_.ticket_of(*owner_.allocate(2 * kMiB), 4096);
  ticket.allocation_bytes = 64 * kMiB;
  EXPECT_FALSE(memory_->open(ticket, other_process(4), 4096));
  EXPECT_EQ(fake()->counts().virtual_parts, 0u);
}

// What a rank has told of its own buffers all members know.
TEST_F(HostileTicket, WithThisProcesssKeyIsNotBelieved) {
  void* const own = *memory_->allocate(kMiB);
  const BufferTicket told = *memory_->ticket_of(own, kMiB);
  BufferTicket forged = *owner_.ticket_of(*owner_.allocate(kMiB), 4096);
  forged.process_key = told.process_key;
  forged.process = told.process;
  forged.device_uuid = told.device_uuid;
  for (const BufferTicket& ticket : {forged, told}) {
    const auto mapped = memory_->open(ticket, other_process(4), 4096);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code(), ErrorCode::kProtocol);
    EXPECT_EQ(mapped.error().rank(), 4);
  }
  EXPECT_TRUE(memory_->open(told, this_process(4), 4096));
  EXPECT_TRUE(memory_->release(own));
}

TEST_F(HostileTicket, OfAThreadWithAnotherProcesssKeyIsNotBelieved) {
  const auto ticket = *owner_.ticket_of(*owner_.allocate(kMiB), 4096);
  EXPECT_EQ(memory_->open(ticket, this_process(4), 4096).status().code(), ErrorCode::kProtocol);
}

// A rank that comes first, and hands out memory of its own in the name of another one's process.
TEST_F(HostileTicket, InTheNameOfAnotherProcessIsNotTakenForThatOnes) {
  MemoryOwner liar;
  void* const theirs = *owner_.allocate(kMiB);
  void* const liars = *liar.allocate(kMiB);
  ASSERT_TRUE(owner_.fill(theirs, 4096, 7));
  ASSERT_TRUE(liar.fill(liars, 4096, 9));
  const BufferTicket honest = *owner_.ticket_of(theirs, 4096);
  const BufferTicket own = *liar.ticket_of(liars, 4096);
  ASSERT_EQ(honest.allocation_id, own.allocation_id) << "each the first of its process";
  BufferTicket forged = honest;
  forged.socket = own.socket;
  const auto of_liar = memory_->open(forged, other_process(5), 4096);
  ASSERT_TRUE(of_liar) << of_liar.error().message();
  EXPECT_EQ(common_byte(*memory_, *of_liar, 4096), 9);
  const auto mapped = memory_->open(honest, other_process(4), 4096);
  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ(common_byte(*memory_, *mapped, 4096), 7);
}

TEST_F(HostileTicket, WithThisProcesssPidIsAnotherProcesss) {
  // As of a container whose process has the same number.
  void* const theirs = *owner_.allocate(kMiB);
  ASSERT_TRUE(owner_.fill(theirs, 4096, 7));
  auto ticket = *owner_.ticket_of(theirs, 4096);
  ticket.process = ::getpid();
  const auto mapped = memory_->open(ticket, other_process(4), 4096);
  ASSERT_TRUE(mapped) << mapped.error().message();
  // Both processes may have it at one address.
  EXPECT_EQ(common_byte(*memory_, *mapped, 4096), 7);
}

TEST_F(HostileTicket, OfNoDeviceMemoryIsNotMapped) {
  int host = 0;
  for (const auto& ticket :
       {*memory_->ticket_of(nullptr, 0), *memory_->ticket_of(&host, sizeof host)}) {
    const auto mapped = memory_->open(ticket, other_process(4), 1);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code(), ErrorCode::kInvalidArgument);
  }
}

UniqueFd any_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TimePoint soon() { return Clock::now() + std::chrono::seconds(5); }

UniqueFd visit(const std::string& name) {
  sockaddr_un address;
  const auto length = shm::make_address(name, &address);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), *length), 0);
  return fd;
}

class DescriptorServerTest : public ::testing::Test {
 protected:
  void expect_service() {
    const auto got = cuda::request_descriptor(server_->address(), offered_, soon());
    EXPECT_TRUE(got) << got.status().message();
  }
  bool is_closed(const UniqueFd& visitor) {
    char byte;
    return shm::wait_readable(visitor.get(), soon()) && ::read(visitor.get(), &byte, 1) <= 0;
  }

  LogGuard log_;
  std::shared_ptr<DescriptorServer> server_ = *DescriptorServer::of_process();
  std::uint64_t offered_ = server_->offer([]() -> Result<UniqueFd> { return any_descriptor(); });
};

TEST_F(DescriptorServerTest, IsOneAndGoesWithItsLastUser) {
  EXPECT_EQ(*DescriptorServer::of_process(), server_);
  expect_service();
  const std::string address = server_->address();
  const std::uint64_t before = offered_;
  server_.reset();
  const auto refused = cuda::request_descriptor(address, before, soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kRankFailed);
  server_ = *DescriptorServer::of_process();
  EXPECT_NE(server_->address(), address);
  EXPECT_GT(server_->offer([] { return any_descriptor(); }), before);
}

TEST_F(DescriptorServerTest, HandsOutOnlyWhatIsOffered) {
  const std::uint64_t failing = server_->offer(
      []() -> Result<UniqueFd> { return Status(ErrorCode::kSystem, "no luck today"); });
  const auto no_luck = cuda::request_descriptor(server_->address(), failing, soon());
  ASSERT_FALSE(no_luck);
  EXPECT_THAT(no_luck.error().message(), HasSubstr("no luck today"));
  server_->withdraw(offered_);
  for (const std::uint64_t id : {offered_, std::uint64_t{0}, UINT64_MAX}) {
    const auto refused = cuda::request_descriptor(server_->address(), id, soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST_F(DescriptorServerTest, SaysWhichWindowsAreGone) {
  const auto failing = []() -> Result<UniqueFd> { return Status(ErrorCode::kSystem, "no luck"); };
  const std::uint64_t there = server_->offer(failing);
  const std::uint64_t freed = server_->offer(failing, [] { return false; });
  const std::uint64_t withdrawn = server_->offer(failing);
  server_->withdraw(withdrawn);
  const std::uint64_t ids[] = {freed, offered_, withdrawn, there, UINT64_MAX};
  EXPECT_EQ(*cuda::request_gone(server_->address(), ids, soon()), 0b10101u);
  EXPECT_EQ(*cuda::request_gone(server_->address(), {}, soon()), 0u);
  for (const std::int32_t count : {-1, static_cast<std::int32_t>(cuda::kAskedMax) + 1, INT32_MAX}) {
    shm::Message question;
    question.magic = shm::kDescriptorMessageMagic;
    question.kind = shm::MessageKind::kWhichAreGone;
    question.index = count;
    const UniqueFd visitor = visit(server_->address());
    ASSERT_TRUE(shm::send_message(visitor.get(), question, {}, soon()));
    EXPECT_TRUE(is_closed(visitor)) << count;
  }
  expect_service();
}

TEST_F(DescriptorServerTest, GarbageEndsItsConnectionOnly) {
  const shm::Message nothing;
  shm::Message wrong_kind;
  wrong_kind.magic = shm::kDescriptorMessageMagic;
  wrong_kind.kind = shm::MessageKind::kBarrier;
  wrong_kind.job_hash = offered_;
  shm::Message with_luggage = wrong_kind;
  with_luggage.kind = shm::MessageKind::kHello;
  const UniqueFd luggage = any_descriptor();
  const int fd = luggage.get();
  const std::string noise(5000, 'x');

  const UniqueFd first = visit(server_->address());
  ASSERT_TRUE(shm::send_message(first.get(), nothing, {}, soon()));
  const UniqueFd second = visit(server_->address());
  ASSERT_TRUE(shm::send_message(second.get(), wrong_kind, {}, soon()));
  const UniqueFd third = visit(server_->address());
  ASSERT_TRUE(shm::send_message(third.get(), with_luggage, std::span(&fd, 1), soon()));
  const UniqueFd fourth = visit(server_->address());
  ASSERT_EQ(::send(fourth.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 5000);
  UniqueFd fifth = visit(server_->address());
  fifth.reset();
  for (const UniqueFd* visitor : {&first, &second, &third, &fourth}) {
    EXPECT_TRUE(is_closed(*visitor));
  }
  expect_service();
}

TEST_F(DescriptorServerTest, SilentVisitorsHoldNobodyUpAndAreSentAway) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(visit(server_->address()));
  expect_service();
  EXPECT_TRUE(is_closed(silent.front()));
  for (int i = 0; i < 200; ++i) silent.push_back(visit(server_->address()));
  EXPECT_TRUE(is_closed(silent[80]));
  server_.reset();
  EXPECT_TRUE(is_closed(silent.back()));
}

TEST_F(DescriptorServerTest, TurnsAwayOtherUsersAndIsTurnedAwayByThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    const auto refused = cuda::request_descriptor(server_->address(), offered_, soon());
    if (refused.status().code() != ErrorCode::kAuthentication) ::_exit(2);
    shm::Message request;
    request.magic = shm::kDescriptorMessageMagic;
    request.job_hash = offered_;
    const UniqueFd visitor = visit(server_->address());
    // The server may have hung up already.
    static_cast<void>(shm::send_message(visitor.get(), request, {}, soon()));
    ::_exit(is_closed(visitor) ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  expect_service();
}

// A socket that answers windows' requests as no correct owner does.
class Impostor {
 public:
  using Answer = std::function<void(int connection)>;
  explicit Impostor(Answer answer) : listener_(*shm::LocalListener::open()) {
    thread_ = std::thread([this, answer = std::move(answer)] {
      if (!shm::wait_readable(listener_->fd(), soon())) return;
      const UniqueFd visitor(::accept(listener_->fd(), nullptr, nullptr));
      std::vector<UniqueFd> none;
      if (shm::receive_message(visitor.get(), &none, soon())) answer(visitor.get());
    });
  }
  ~Impostor() { thread_.join(); }
  const std::string& address() const { return listener_->address(); }

 private:
  std::unique_ptr<shm::LocalListener> listener_;
  std::thread thread_;
};

void reply(int connection, shm::MessageKind kind, std::uint64_t id, int descriptors) {
  shm::Message message;
  message.magic = shm::kDescriptorMessageMagic;
  message.kind = kind;
  message.job_hash = id;
  std::fill(std::begin(message.text), std::end(message.text), 'w');
  const UniqueFd any = any_descriptor();
  const std::vector<int> fds(static_cast<std::size_t>(descriptors), any.get());
  EXPECT_TRUE(shm::send_message(connection, message, fds, soon()));
}

TEST(DescriptorRequest, TakesExactlyOneDescriptorOfTheRightWindow) {
  const std::pair<const char*, Impostor::Answer> answers[] = {
      {"none", [](int c) { reply(c, shm::MessageKind::kDescriptors, 7, 0); }},
      {"two", [](int c) { reply(c, shm::MessageKind::kDescriptors, 7, 2); }},
      {"another window", [](int c) { reply(c, shm::MessageKind::kDescriptors, 8, 1); }},
      {"another kind", [](int c) { reply(c, shm::MessageKind::kBarrier, 7, 1); }},
      {"noise", [](int c) { EXPECT_EQ(::send(c, "noise", 5, MSG_NOSIGNAL), 5); }}};
  for (const auto& [name, answer] : answers) {
    const Impostor impostor(answer);
    const auto got = cuda::request_descriptor(impostor.address(), 7, soon());
    ASSERT_FALSE(got) << name;
    EXPECT_EQ(got.error().code(), ErrorCode::kProtocol) << name;
  }
}

TEST(DescriptorRequest, NoticesAnOwnerThatGoesOrSaysNothing) {
  {
    const Impostor impostor([](int) {});
    const auto got = cuda::request_descriptor(impostor.address(), 7, soon());
    EXPECT_EQ(got.status().code(), ErrorCode::kRankFailed);
  }
  const auto listener = *shm::LocalListener::open();
  const auto got = cuda::request_descriptor(listener->address(), 7,
                                            Clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(got.status().code(), ErrorCode::kTimeout);
}

TEST(DescriptorRequest, TakesALongRefusalForWhatItIs) {
  const Impostor impostor([](int c) { reply(c, shm::MessageKind::kRefused, 7, 1); });
  const auto got = cuda::request_descriptor(impostor.address(), 7, soon());
  EXPECT_EQ(got.status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace unisono::test
