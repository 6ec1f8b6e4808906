// What tests of other users need: processes that are somebody else.
// Thread rule: the test's main thread.
#pragma once

#include <sys/types.h>

#include <functional>

namespace unisono::test {

inline constexpr uid_t kAnotherUser = 12345;

/// Does it in a child that is another user, which then lives on until end() is called. Needs root.
pid_t as_another_user(const std::function<void()>& act);
void end(pid_t child);

/// Whether a process may make a user namespace; in one that maps nobody it is the overflow user.
bool may_make_user_namespaces();
/// Makes one for this process; exits with 77 where that fails.
void enter_user_namespace();

}  // namespace unisono::test
