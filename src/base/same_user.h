// Whether another process, or the owner of a file, is this process's user. Inside a user namespace
// the kernel shows every user that the namespace does not map as one and the same, the overflow
// user: a process that appears as that one itself cannot tell its own from anybody else's.
//
// Thread rule: any thread. Set-up only.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace unisono {

/// kAuthentication where this process's user cannot be told from others.
Status check_own_user();
/// Ok when `uid` is this process's user and nobody else; `whose` begins the refusal.
Status check_same_user(uid_t uid, const std::string& whose);
/// The same of the process at the other end of a UNIX socket; always ok where it is this one.
Status check_same_user(int socket);

}  // namespace unisono
