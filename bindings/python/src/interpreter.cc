#include "bindings/python/src/interpreter.h"

#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

namespace unisono::python {
namespace {

// Never destroyed: the library's threads may outlive this module's statics.
struct State {
  std::shared_mutex door;
  bool is_over = false;  // guarded by door
  std::mutex mutex;
  std::vector<std::unique_ptr<Mortal>> buried;  // guarded by mutex
  bool is_drain_asked = false;                  // guarded by mutex
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

int drain(void*) {
  destroy_buried();
  return 0;
}

}  // namespace

bool with_interpreter(const std::function<void()>& action) {
  const std::shared_lock door(state().door);
  if (state().is_over) return false;
  const nb::gil_scoped_acquire gil;
  action();
  return true;
}

void bury(std::unique_ptr<Mortal> mortal) noexcept {
  bool ask = false;
  {
    const std::lock_guard lock(state().mutex);
    state().buried.push_back(std::move(mortal));
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
  std::vector<std::unique_ptr<Mortal>> dead;
  {
    const std::lock_guard lock(state().mutex);
    state().is_drain_asked = false;
    dead.swap(state().buried);
  }
}

std::atomic<int>& WithoutGil::threads() {
  static std::atomic<int> count = 0;
  return count;
}

void close_interpreter() {
  destroy_buried();
  const nb::gil_scoped_release released;
  for (int tries = 0; WithoutGil::threads() > 0 && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::unique_lock door(state().door);
  state().is_over = true;
}

void define_interpreter(nb::module_& module) {
  module.def("close_interpreter", &close_interpreter);
  module.def("destroy_buried", &destroy_buried);
}

}  // namespace unisono::python
