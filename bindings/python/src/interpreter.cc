#include "bindings/python/src/interpreter.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

namespace unisono::python {
namespace {

// Never destroyed: the library's threads may outlive this module's statics.
struct State {
  std::shared_mutex door;
  bool is_over = false;          // guarded by door
  std::thread::id ends_it;       // whose Python goes on then; guarded by door
  std::atomic<int> threads = 0;  // in calls of the library
  std::mutex mutex;
  std::vector<std::unique_ptr<Mortal>> buried;  // guarded by mutex
  bool is_drain_asked = false;                  // guarded by mutex
  std::atomic<bool> has_buried = false;         // a hint, for those who do not lock
};

State*& instance() {
  static State* pointer = new State;
  return pointer;
}

State& state() { return *instance(); }

thread_local bool is_in_user_function = false;

int drain(void*) {
  destroy_buried();
  return 0;
}

}  // namespace

InUserFunction::InUserFunction() : was_inside_(std::exchange(is_in_user_function, true)) {}
InUserFunction::~InUserFunction() { is_in_user_function = was_inside_; }
bool in_user_function() { return is_in_user_function; }

bool with_interpreter(const std::function<void()>& action) {
  const std::shared_lock door(state().door);
  if (state().is_over) return false;
  const nb::gil_scoped_acquire gil;
  action();
  return true;
}

bool enter_interpreter(const std::function<void()>& action) {
  std::optional<nb::gil_scoped_acquire> gil;
  {
    const std::shared_lock door(state().door);
    if (state().is_over) return false;
    gil.emplace();
  }
  action();
  return true;
}

void bury(std::unique_ptr<Mortal> mortal) noexcept {
  bool ask = false;
  {
    const std::lock_guard lock(state().mutex);
    state().buried.push_back(std::move(mortal));
    state().has_buried = true;
    ask = !std::exchange(state().is_drain_asked, true);
  }
  if (!ask) return;
  const std::shared_lock door(state().door, std::try_to_lock);
  // When the queue of pending calls is full, or the interpreter ends: the next call here drains.
  if (!door || state().is_over || Py_AddPendingCall(drain, nullptr) != 0) {
    const std::lock_guard lock(state().mutex);
    state().is_drain_asked = false;
  }
}

void destroy_buried() {
  if (!state().has_buried) return;
  std::vector<std::unique_ptr<Mortal>> dead;
  {
    const std::lock_guard lock(state().mutex);
    state().is_drain_asked = false;
    if (is_in_user_function) return;  // a later call of the library finds them
    state().has_buried = false;
    dead.swap(state().buried);
  }
}

std::atomic<int>& WithoutGil::threads() {
  if (is_in_user_function) {
    PyErr_SetString(PyExc_RuntimeError, "a user operator must not call unisono");
    throw nb::python_error();
  }
  return state().threads;
}

Counted hold_interpreter() { return Counted(state().threads); }

// An interpreter that ends would end the thread here, by an exception that this frame cannot let
// pass.
WithoutGil::~WithoutGil() {
  {
    const std::shared_lock door(state().door);
    if (!state().is_over || state().ends_it == std::this_thread::get_id()) {
      PyEval_RestoreThread(thread_);
      return;
    }
  }
  for (;;) ::pause();  // a daemon thread of a program that ends
}

void close_interpreter() {
  destroy_buried();
  const nb::gil_scoped_release released;
  for (int tries = 0; state().threads > 0 && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::unique_lock door(state().door);
  state().is_over = true;
  state().ends_it = std::this_thread::get_id();
}

void forget_threads() {
  // The old state is left as it is: threads that are gone hold its locks, and peers of the parent
  // may use what was buried.
  auto* const fresh = new State;
  fresh->is_over = state().is_over;
  fresh->ends_it = state().ends_it;
  instance() = fresh;
}

void define_interpreter(nb::module_& module) {
  module.def("forget_threads", &forget_threads);
  module.def("close_interpreter", &close_interpreter);
  module.def("destroy_buried", &destroy_buried);
}

}  // namespace unisono::python
