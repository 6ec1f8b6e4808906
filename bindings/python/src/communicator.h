// What stands behind a communicator of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
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
  /// The lent communicator is gone: this is an empty one.
  void end_loan() { value_ = &own_; }

  /// At the interpreter's end: threads that are in a call get kAborted, and the communicator is
  /// closed once they have left it, or left open after a second.
  void end();

 private:
  Communicator own_;
  Communicator* value_ = &own_;
  std::atomic<int> calls_ = 0;
};

/// A thread in a call that may wait: without the GIL, and counted.
class Inside {
 public:
  explicit Inside(Member& member) : counted_(member.calls()) {}

 private:
  Counted counted_;  // until the thread has the GIL again
  WithoutGil released_;
};

void define_communicators(nb::module_& module);
void define_joining(nb::module_& module);  // init(), join(), spawn()

}  // namespace unisono::python
