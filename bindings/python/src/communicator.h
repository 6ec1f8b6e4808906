// What stands behind a communicator of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <utility>

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
  /// The lent communicator is gone: this is an empty one.
  void end_loan() { value_ = &own_; }

  /// At the interpreter's end: threads that are in a call get kAborted, and the communicator is
  /// closed once they have left it, or left open after a second.
  void end();

 private:
  friend class Inside;
  Communicator own_;
  Communicator* value_ = &own_;
  std::atomic<int> calls_ = 0;  ///< threads in a call that may wait
};

/// A thread in a call that may wait: without the GIL, and counted.
class Inside {
 public:
  explicit Inside(Member& member) : member_(member) { ++member_.calls_; }
  ~Inside() { --member_.calls_; }

 private:
  Member& member_;
  nb::gil_scoped_release released_;
};

void define_communicators(nb::module_& module);

}  // namespace unisono::python
