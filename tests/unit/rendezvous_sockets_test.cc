// The sockets of a rendezvous: which addresses they take, and who keeps them open.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/network.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"
#include "tests/support/other_user.h"

namespace unisono::rendezvous {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

bool reaches(const std::string& host, std::uint16_t port) {
  return connect_tcp(host, port, Clock::now() + kPatience).has_value();
}

TEST(Sockets, ListenAtTheGivenInterfaceAlone) {
  for (const char* host : {"", "a-name-that-says-no-address"}) {
    const auto listener = listen_tcp(host, 0, "127.0.0.1");
    ASSERT_TRUE(listener.has_value()) << listener.status().message();
    EXPECT_TRUE(reaches("127.0.0.1", listener->port)) << host;
    EXPECT_FALSE(reaches("127.0.0.2", listener->port)) << host;
  }
  const auto everywhere = listen_tcp("", 0);
  EXPECT_TRUE(reaches("127.0.0.2", everywhere->port));
}

TEST(Sockets, NameTheVariableOfAnInterfaceThatIsNotHere) {
  EXPECT_THAT(listen_tcp("", 0, "192.0.2.1").status().message(),
              AllOf(HasSubstr("'192.0.2.1'"), HasSubstr("UNISONO_INTERFACE")));
}

TEST(Sockets, OfARendezvousFileAreThoseOfTheInterface) {
  auto candidates = world_of(file_point(), 2, std::chrono::milliseconds(200));
  candidates.pop_back();
  candidates[0].point.interface_address = "127.0.0.1";
  meet(candidates);  // nobody comes, and the file stays
  const auto contact = read_contact_file(candidates[0].point.name);
  ASSERT_TRUE(contact.has_value()) << contact.status().message();
  ASSERT_EQ(contact->tcp.size(), 1u);
  EXPECT_EQ(contact->tcp[0].first, "127.0.0.1");
}

TEST(Sockets, OfARendezvousFileOnOneHostAreLocalOnly) {
  auto candidates = world_of(file_point(), 2, std::chrono::milliseconds(200));
  candidates.pop_back();
  candidates[0].point.single_host = true;
  meet(candidates);
  const auto contact = read_contact_file(candidates[0].point.name);
  ASSERT_TRUE(contact.has_value()) << contact.status().message();
  EXPECT_TRUE(contact->tcp.empty());
}

TEST(Sockets, HaveNamesThatFitAnAddress) {
  const std::string longest(sizeof(sockaddr_un::sun_path) - 1, 'n');
  EXPECT_TRUE(listen_unix(longest).has_value());
  for (const std::string& name : {std::string(), longest + "n"}) {
    for (const Status& refused : {listen_unix(name).status(), connect_unix(name).status()}) {
      EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(refused.message(), HasSubstr("allowed are 1 to"));
    }
  }
}

TEST(Sockets, OfAnotherUserAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can be somebody else";
  const std::string name = abstract_point().name;
  const pid_t owner = test::as_another_user([&] {
    static const auto listener = listen_unix(name);
    if (!listener) ::_exit(2);
  });
  const Status refused = connect_unix(name).status();
  test::end(owner);
  EXPECT_EQ(refused.code(), ErrorCode::kRendezvous);
  EXPECT_THAT(refused.message(), HasSubstr("belongs to user 12345"));
}

TEST(Sockets, AFileOfAnotherUserIsNoRendezvousFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can give a file away";
  const std::string path = file_point().name;
  {
    const UniqueFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ASSERT_TRUE(file);
    ASSERT_EQ(::fchown(file.get(), test::kAnotherUser, test::kAnotherUser), 0);
  }
  EXPECT_THAT(read_contact_file(path).status().message(), HasSubstr("belongs to user 12345"));
}

TEST(Sockets, AreNotKeptOpenByAForkedChild) {
  const std::string name = abstract_point().name;
  auto unix_listener = listen_unix(name);
  auto tcp_listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(unix_listener.has_value() && tcp_listener.has_value());
  const std::uint16_t port = tcp_listener->port;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char byte;
    static_cast<void>(!::read(ends[0], &byte, 1));
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  ::close(ends[0]);
  *unix_listener = Listener();
  *tcp_listener = Listener();
  // The child has given them up at its first breath.
  EXPECT_TRUE(eventually([&] { return listen_unix(name).has_value(); }));
  EXPECT_TRUE(eventually([&] { return listen_tcp("127.0.0.1", port).has_value(); }));
  ::close(ends[1]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(Network, ShowsAddressesAsTheyAreWritten) {
  EXPECT_EQ(address_text("10.0.0.1", 29501), "10.0.0.1:29501");
  EXPECT_EQ(address_text("::1", 29501), "[::1]:29501");
  const auto listener = listen_tcp("", 0);
  ASSERT_TRUE(listener.has_value());
  const auto connection = connect_tcp("127.0.0.1", listener->port, Clock::now() + kPatience);
  ASSERT_TRUE(connection.has_value());
  EXPECT_EQ(peer_text(connection->get()), "127.0.0.1:" + std::to_string(listener->port));
  const UniqueFd accepted(::accept(listener->fd.get(), nullptr, nullptr));
  EXPECT_THAT(peer_text(accepted.get()), AllOf(HasSubstr("127.0.0.1:"), Not(HasSubstr("ffff"))));
}

TEST(Network, LocalAddressesAreNeverEmptyAndOfTheWantedFamily) {
  ASSERT_FALSE(local_addresses(true).empty());
  ASSERT_FALSE(local_addresses(false).empty());
  for (const std::string& address : local_addresses(false)) {
    EXPECT_THAT(address, Not(HasSubstr(":")));
  }
}

TEST(Network, SocketNamesDiffer) { EXPECT_NE(random_socket_name(), random_socket_name()); }

}  // namespace
}  // namespace unisono::rendezvous
