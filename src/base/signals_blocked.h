// The signal mask of the library's own threads. A program's handlers run on the program's threads:
// on one of the library's they would meet a stack, a lock or a watched page that they know nothing
// of. Signals that a thread's own fault raises stay open, or a blocked one would end the process
// before the program's handler could say why.
//
// Thread rule: the thread that makes another one, around that call.
#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace unisono {

/// A thread inherits the mask of the one that makes it: lives around the making.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t mask;
    sigfillset(&mask);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&mask, own);
    }
    pthread_sigmask(SIG_BLOCK, &mask, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace unisono
