// How long a rank tries the addresses at which the arbiter may be, where names have several, some
// lead nowhere, and resolvers are slow.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <netdb.h>
#include <netinet/in.h>

#include <string>
#include <thread>
#include <vector>

#include "base/network.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"
#include "tests/support/map_store.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kName = "several.addresses.test";
// What that name stands for, and how long it takes to find out.
std::vector<std::string> addresses_of_name;
Duration resolving{};
// A family that no kernel knows, in the place of an address.
constexpr const char* kUnknownFamily = "unknown";

using Resolve = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

int resolve_name(Resolve resolve, const char* port, const addrinfo* hints, addrinfo** out) {
  std::this_thread::sleep_for(resolving);
  addrinfo** end = out;
  for (const std::string& address : addresses_of_name) {
    const bool is_known = address != kUnknownFamily;
    if (resolve(is_known ? address.c_str() : "127.0.0.1", port, hints, end) != 0) return EAI_FAIL;
    if (!is_known) (*end)->ai_family = AF_MAX;
    end = &(*end)->ai_next;
  }
  return 0;
}

// Listens, and answers nobody: its queue is full.
class Mute {
 public:
  explicit Mute(std::uint32_t host, std::uint16_t port = 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(host);
    address.sin_port = htons(port);
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(listen_at(at, sizeof address, {.backlog = 0}, &socket_), 0);
    address.sin_port = htons(socket_.port);
    filler_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(filler_.get(), at, sizeof address), 0);
  }
  std::uint16_t port() const { return socket_.port; }

 private:
  ListeningSocket socket_;
  UniqueFd filler_;
};

constexpr std::uint32_t kFirstHost = INADDR_LOOPBACK + 1, kSecondHost = INADDR_LOOPBACK + 2;

class Connecting : public testing::Test {
 protected:
  ~Connecting() override {
    addresses_of_name.clear();
    resolving = Duration();
  }
};

TEST_F(Connecting, EachAddressOfANameHasItsTimeHoweverLongThatTookToResolve) {
  const Mute first(kFirstHost), second(kSecondHost, first.port());
  constexpr milliseconds kEach(30);
  addresses_of_name = {"127.0.0.2", "127.0.0.3"};
  resolving = 2 * kEach;
  const TimePoint start = Clock::now();
  const auto fd = connect_tcp(kName, first.port(), start + kPatience, {}, kEach);
  EXPECT_THAT(fd.status().message(), HasSubstr("Connection timed out"));
  EXPECT_GE(Clock::now() - start, resolving + 2 * kEach);
}

TEST_F(Connecting, AFamilyThatTheKernelLacksHidesNoOther) {
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  const std::uint16_t port = listener->port;
  addresses_of_name = {kUnknownFamily, "127.0.0.1", kUnknownFamily};
  EXPECT_TRUE(connect_tcp(kName, port, Clock::now() + kPatience));
  *listener = Listener();
  EXPECT_THAT(connect_tcp(kName, port, Clock::now() + kPatience).status().message(),
              HasSubstr("Connection refused"));
  addresses_of_name = {kUnknownFamily};
  EXPECT_THAT(connect_tcp(kName, port, Clock::now() + kPatience).status().message(),
              HasSubstr("cannot create a TCP socket"));
}

TEST_F(Connecting, WaitsForNoAddressOnceThatIsInVain) {
  const Mute mute(kFirstHost);
  const auto go_on = [] { return Status(ErrorCode::kAborted, "in vain"); };
  const auto fd = connect_tcp("127.0.0.2", mute.port(), Clock::now() + kPatience, go_on, kPatience);
  EXPECT_EQ(fd.status().message(), "in vain");
}

TEST_F(Connecting, TriesNoFurtherAddressOnceThatIsInVain) {
  const auto next = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(next.has_value());
  const Mute mute(kFirstHost, next->port);
  Contact contact;
  contact.job_id = random_id();
  contact.has_key = true;
  contact.key = JobKey::random();
  contact.tcp = {{"127.0.0.2", next->port}, {"127.0.0.1", next->port}};
  test::MapStore store;
  store.set("unisono/rendezvous", to_text(contact).view());
  RendezvousPoint point;
  point.kind = RendezvousPoint::Kind::kStore;
  point.store = &store;
  point.go_on = [] { return Status(ErrorCode::kAborted, "in vain"); };
  const auto outcomes = meet({world_of(point, 2)[1]});
  EXPECT_EQ(outcomes[0].status.message(), "in vain");
  EXPECT_FALSE(wait_ready(next->fd.get(), false, TimePoint::min())) << "it was tried";
}

}  // namespace
}  // namespace unisono::rendezvous

// In the place of the system's, for one name.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** out) {
  namespace test = unisono::rendezvous;
  static const auto resolve = reinterpret_cast<test::Resolve>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_ours = host != nullptr && std::string_view(host) == test::kName;
  return is_ours ? test::resolve_name(resolve, port, hints, out) : resolve(host, port, hints, out);
}
