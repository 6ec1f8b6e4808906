// What stands behind a communicator of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <thread>
#include <utility>

#include "bindings/python/src/interpreter.h"
#include "unisono/communicator.h"

namespace nb = nanobind;

namespace unisono::python {

/// A communicator, its own or (in spawn()) one that the library lends. Its calls let the GIL go.
class Member {
 public:
  explicit Member(Communicator&& own) : own_(std::move(own)) {}
  explicit Member(Communicator* lent) : value_(lent) {}
  ~Member();
  Member(const Member&) = delete;

  Communicator& value() { return *value_; }
  /// Threads in a call that may wait.
  std::atomic<int>& calls() { return calls_; }
  /// From now on this is an empty communicator. Returns once no thread uses the lent one any more.
  /// Needs the GIL, which it lets go meanwhile.
  void end_loan();

  /// Begins and ends a use by this thread, with the GIL. A thread may nest its uses. Raises
  /// RuntimeError while another thread uses the communicator, and in a callback of its own call.
  void begin_use();
  void end_use() { --uses_; }
  /// In a forked child, which does not have the other threads.
  void forget_threads() {
    calls_ = uses_ = loan_users_ = 0;
    is_in_callback_ = false;
  }
  /// Whether its thread runs a callback of its call, which must not use it. Needs the GIL.
  void set_in_callback(bool is_inside) { is_in_callback_ = is_inside; }

  /// At the interpreter's end: threads that are in a call get kAborted, and the communicator is
  /// closed once they have left it, or left open after a second.
  void end();

 private:
  friend class Kept;
  Communicator own_;
  std::atomic<Communicator*> value_ = &own_;
  std::atomic<int> calls_ = 0;
  int uses_ = 0;          // guarded by the GIL, as loan_users_
  int loan_users_ = 0;    // who may have the lent one's address
  std::thread::id user_;  // of the uses_
  bool is_in_callback_ = false;
};

/// While it lives the communicator that it found stays, lent or not. Needs the GIL at its beginning
/// and end.
class Kept {
 public:
  explicit Kept(Member& member) : member_(member), is_lent_(&member.value() != &member.own_) {
    if (is_lent_) ++member_.loan_users_;
  }
  ~Kept() {
    if (is_lent_) --member_.loan_users_;
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  Member& member_;
  const bool is_lent_;
};

/// The one thread that uses a communicator. Needs the GIL.
class Turn {
 public:
  explicit Turn(Member& member) : member_(member), kept_(member) { member_.begin_use(); }
  ~Turn() { member_.end_use(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Member& member_;
  Kept kept_;
};

/// What any thread may do beside the one that uses the communicator: without the GIL.
class Beside {
 public:
  explicit Beside(Member& member) : kept_(member) {}

 private:
  Kept kept_;
  WithoutGil released_;
};

/// While it lives the communicator's thread runs a callback of the call. Needs the GIL.
class InCallback {
 public:
  explicit InCallback(Member& member) : member_(member) { member_.set_in_callback(true); }
  ~InCallback() { member_.set_in_callback(false); }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  Member& member_;
};

/// A thread in a call that may wait: in its turn, without the GIL, and counted.
class Inside {
 public:
  explicit Inside(Member& member) : turn_(member), counted_(member.calls()) {}

 private:
  Turn turn_;
  Counted counted_;  // until the thread has the GIL again
  WithoutGil released_;
};

void define_communicators(nb::module_& module);
void define_joining(nb::module_& module);  // init(), join(), spawn()

}  // namespace unisono::python
