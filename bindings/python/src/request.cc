#include "bindings/python/src/request.h"

#include <nanobind/stl/vector.h>

#include <chrono>
#include <utility>
#include <vector>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/interpreter.h"

namespace unisono::python {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long a signal such as Ctrl-C may have to wait.
constexpr milliseconds kSlice{100};

struct Callback : Mortal {
  explicit Callback(nb::object called) : function(std::move(called)) {}
  nb::object function;
};

void report_unraisable(nb::python_error& error) {
  error.restore();
  PyErr_WriteUnraisable(nullptr);
}

std::vector<Request*> requests_of(const std::vector<PendingCall*>& calls) {
  std::vector<Request*> requests;
  requests.reserve(calls.size());
  for (PendingCall* const call : calls) {
    requests.push_back(call == nullptr ? nullptr : &call->request());
  }
  return requests;
}

void wait_for_all(const std::vector<PendingCall*>& calls) {
  // One after the other, so that signals are handled; waiting for one moves them all.
  for (PendingCall* const call : calls) {
    call->wait_until_over(nb::none());
  }
  for (const PendingCall* const call : calls) call->raise_failure();
}

std::size_t wait_for_any(const std::vector<PendingCall*>& calls) {
  const std::vector<Request*> requests = requests_of(calls);
  std::size_t found = 0;
  {
    const WithoutGil released;
    found = wait_any(requests);
  }
  calls[found]->settle();
  return found;
}

// The collector sees what a call that is over has left. The arrays and the operator of one that is
// under way belong to the library: they must not be ended, whoever else still knows them.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<PendingCall>(self)->failure().ptr());
  return 0;
}

int clear(PyObject* self) {
  nb::inst_ptr<PendingCall>(self)->failure().reset();
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {0, nullptr}};

}  // namespace

PendingCall::PendingCall(nb::object member, Request request, std::unique_ptr<BorrowedCall> call)
    : member_(std::move(member)),
      request_(std::move(request)),
      call_(std::move(call)),
      item_bytes_(call_->item_bytes()) {}

PendingCall::~PendingCall() {
  if (call_ == nullptr) return;
  if (in_user_function()) {
    bury(std::make_unique<PendingCall>(std::move(*this)));
    return;
  }
  std::shared_ptr<void> owner(call_.release(), [](void* given) {
    bury(std::unique_ptr<Mortal>(static_cast<BorrowedCall*>(given)));
  });
  {
    const WithoutGil released;
    request_.detach(std::move(owner));
  }
  destroy_buried();
}

Status PendingCall::status() const {
  const Status status = request_.status();
  if (!status) return status;
  if (is_settled()) return whole_;
  // What came is the library's until the call is over.
  return is_known_over_ != nullptr && *is_known_over_ ? check_is_whole() : Status();
}

// Fails where a message ended inside an element. Of other calls the bytes say nothing: the request
// may have been an earlier receive's.
Status PendingCall::check_is_whole() const {
  if (call_->call().collective != Collective::kReceive) return Status();
  return call_->check_is_whole({source(), tag(), request_.bytes()});
}

void PendingCall::settle() {
  if (is_settled()) return;
  if (request_.status()) whole_ = check_is_whole();
  const std::unique_ptr<BorrowedCall> call = std::move(call_);
  failure_ = call->failure();
}

void PendingCall::raise_failure() const {
  raise_if(failure_);
  if (error_) std::rethrow_exception(error_);
  if (!whole_) throw Error(whole_, {.operation = "receive"});
}

bool PendingCall::test() {
  bool is_over = false;
  {
    const WithoutGil released;
    is_over = request_.test();
  }
  if (is_over) settle();
  return is_over;
}

bool PendingCall::wait(nb::handle timeout) {
  if (!wait_until_over(timeout)) return false;
  raise_failure();
  return true;
}

bool PendingCall::wait_until_over(nb::handle timeout) {
  const milliseconds limit = milliseconds_of(timeout, "wait");
  const auto end = Clock::now() + limit;
  for (bool is_over = false; !is_over;) {
    milliseconds slice = kSlice;
    if (limit.count() > 0) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      if (left.count() <= 0 && !test()) return false;
      slice = std::max(milliseconds(0), std::min(slice, left));
    }
    try {
      const WithoutGil released;
      is_over = request_.wait_for(slice);
    } catch (const Error&) {
      error_ = std::current_exception();
      is_over = true;
    }
    // What is over is not lost to a signal: the interpreter handles it next.
    if (!is_over && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  settle();
  destroy_buried();
  return true;
}

void PendingCall::on_completion(nb::object function) {
  // Copied with the std::function, destroyed by whoever is the last to have it.
  const std::shared_ptr<Callback> callback(new Callback(std::move(function)), [](Callback* given) {
    bury(std::unique_ptr<Mortal>(given));
  });
  if (is_known_over_ == nullptr) is_known_over_ = std::make_shared<bool>(false);
  const WithoutGil released;
  request_.on_completion([callback, is_over = is_known_over_](const Status&) {
    with_interpreter([&] {
      *is_over = true;
      try {
        callback->function();
      } catch (nb::python_error& error) {
        report_unraisable(error);
      }
    });
  });
}

void define_requests(nb::module_& module) {
  nb::class_<PendingCall>(module, "PendingCall", nb::type_slots(slots))
      .def("test", &PendingCall::test)
      .def("wait", nb::overload_cast<nb::handle>(&PendingCall::wait),
           nb::arg("timeout") = nb::none())
      .def("on_completion", &PendingCall::on_completion)
      .def("status",
           [](const PendingCall& call) {
             const Status status = call.status();
             return nb::make_tuple(static_cast<int>(status.code()), status.rank(),
                                   status.message().c_str());
           })
      .def_prop_ro("is_settled", &PendingCall::is_settled)
      .def_prop_ro("source", &PendingCall::source)
      .def_prop_ro("tag", &PendingCall::tag)
      .def_prop_ro("count", &PendingCall::count);
  module.def("wait_all", &wait_for_all);
  module.def("wait_any", &wait_for_any);
}

}  // namespace unisono::python
