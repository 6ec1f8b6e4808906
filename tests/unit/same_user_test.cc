// A user whom the namespace does not map looks like every other such user, and is nobody's peer.
#include "base/same_user.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "base/unique_fd.h"
#include "tests/support/other_user.h"

namespace unisono {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Pair {
  UniqueFd one, other;
};

Pair make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return {};
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status check_of_own_pair() { return check_same_user(make_pair().one.get()); }

// Of a socket that this process's parent has made: the process at its other end.
Status check_of_another_process() {
  const Pair pair = make_pair();
  const pid_t child = ::fork();
  if (child == 0) {
    const Status found = check_same_user(pair.one.get());
    std::fprintf(stderr, "peer: %s\n", found.message().c_str());
    ::_exit(found.ok() ? 0 : found.code() == ErrorCode::kAuthentication ? 1 : 2);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 2) {
    return {ErrorCode::kSystem, "no answer"};
  }
  return WEXITSTATUS(status) == 0 ? Status() : Status(ErrorCode::kAuthentication, "refused");
}

TEST(SameUser, IsAProcessOfOnesOwn) {
  if (!check_own_user()) GTEST_SKIP() << "SKIPPED: this user is not mapped here";
  EXPECT_TRUE(check_of_own_pair().ok());
  EXPECT_TRUE(check_of_another_process().ok());
  EXPECT_TRUE(check_same_user(::geteuid(), "the file").ok());
  const Status other = check_same_user(::geteuid() + 1, "the file");
  EXPECT_EQ(other.code(), ErrorCode::kAuthentication);
  EXPECT_THAT(other.message(), HasSubstr("the file belongs to user"));
}

// In a new namespace that maps nobody this process runs as the overflow user.
[[noreturn]] void check_unmapped() {
  test::enter_user_namespace();
  const Status own = check_own_user(), peer = check_of_another_process();
  std::fprintf(stderr, "own: %s\n", own.message().c_str());
  // A process cannot take itself for somebody else.
  if (!check_of_own_pair()) ::_exit(2);
  const bool refused = own.code() == ErrorCode::kAuthentication &&
                       peer.code() == ErrorCode::kAuthentication &&
                       !check_same_user(::geteuid(), "the file").ok();
  ::_exit(refused ? 0 : 1);
}

TEST(SameUser, IsNobodyWhomTheNamespaceDoesNotMap) {
  if (!test::may_make_user_namespaces())
    GTEST_SKIP() << "SKIPPED: no user namespaces may be made here";
  EXPECT_EXIT(check_unmapped(), testing::ExitedWithCode(0),
              AllOf(HasSubstr("own: this process runs as user 65534"), HasSubstr("UNISONO_JOB_KEY"),
                    HasSubstr("peer: this process runs as user 65534")));
}

}  // namespace
}  // namespace unisono
