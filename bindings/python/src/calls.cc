#include "bindings/python/src/calls.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <utility>

#include "bindings/python/src/errors.h"

namespace unisono::python {
namespace {

// Of a call whose `out` was left away: whether this rank's array is written to.
Use use_in_place(const Call& call, Rank rank) {
  switch (call.collective) {
    case Collective::kSend:
      return Use::kRead;
    case Collective::kBroadcast:
      return rank == call.root ? Use::kRead : Use::kWrite;
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kGatherV:
      return rank == call.root ? Use::kWrite : Use::kRead;
    default:
      return Use::kWrite;
  }
}

bool reduces(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScan:
    case Collective::kExscan:
      return true;
    default:
      return false;
  }
}

// Whether this rank must give an input. Where blocks are uneven one of no elements may be missing.
bool needs_input(const Call& call, Rank rank) {
  switch (call.collective) {
    case Collective::kBarrier:
    case Collective::kReceive:
    case Collective::kAllGatherV:
    case Collective::kReduceScatterV:
    case Collective::kGatherV:
    case Collective::kScatterV:
    case Collective::kAllToAllV:
      return false;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return rank == call.root;
    default:
      return true;
  }
}

std::string text_of(nb::handle given, const char* operation, const char* argument) {
  if (given.is_none()) return {};
  if (!nb::isinstance<nb::str>(given)) {
    refuse(operation, std::string(argument) + " is of type " + Py_TYPE(given.ptr())->tp_name +
                          ": give a text, or None for the default");
  }
  return nb::cast<std::string>(given);
}

std::string described(const Array& array) {
  return array.type().type
             ? array.type().name
             : array.type().name + " (" + std::to_string(array.item_bytes()) + " bytes)";
}

}  // namespace

BorrowedCall::BorrowedCall(Member& member, const Given& given)
    : operation_(name_of(given.collective).data()) {
  const Kept kept(member);  // arrays and counts run Python, and a body may end meanwhile
  const Communicator& communicator = member.value();
  call_.collective = given.collective;
  call_.root = given.root;
  call_.peer = given.peer;
  call_.tag = given.tag;
  set_options(given);
  borrow(given, communicator.rank());
  set_op(member, given.op);
  set_type();
  set_counts(given.in_counts, "in_counts", &in_counts_, &call_.in_counts);
  set_counts(given.in_displacements, "in_displacements", &in_displacements_,
             &call_.in_displacements);
  set_counts(given.out_counts, "counts", &out_counts_, &call_.out_counts);
  set_counts(given.out_displacements, "displacements", &out_displacements_,
             &call_.out_displacements);
  set_sizes(given, communicator);
}

BorrowedCall::~BorrowedCall() {
  if (user_ && user_->failure()) abort_communicator();
}

Status BorrowedCall::check_is_whole(const Received& got) const {
  if (got.count % item_bytes_ == 0) return Status();
  return Status(ErrorCode::kInvalidArgument,
                "the message of rank " + std::to_string(got.source) + " with tag " +
                    std::to_string(got.tag) + " has " + std::to_string(got.count) +
                    " bytes and that is no whole number of elements of " +
                    std::to_string(item_bytes_) + " bytes; receive it as what it was sent as",
                got.source);
}

// Nobody may care any more: the communicator may be gone, or the library refuse.
void BorrowedCall::abort_communicator() const noexcept {
  const nb::error_scope kept;  // this may run while an exception is on its way
  try {
    const nb::object alive = member_();
    if (alive.is_none()) return;
    Member& member = nb::cast<Member&>(alive);
    const Beside beside(member);
    member.value().abort(user_->text());
  } catch (const std::exception&) {
  }
}

void BorrowedCall::borrow(const Given& given, Rank rank) {
  const auto stream = call_.options.stream;
  const bool is_one_buffer = given.out.is_none();
  const Use use = is_one_buffer ? use_in_place(call_, rank) : Use::kRead;
  const char* const name =
      call_.collective == Collective::kSend || call_.collective == Collective::kBroadcast ? "data"
                                                                                          : "in_";
  in_.borrow(given.in, operation_, name, use, stream);
  out_.borrow(given.out, operation_, "out", Use::kWrite, stream);
}

void BorrowedCall::set_op(Member& member, nb::handle op) {
  if (op.is_none()) return;
  if (!nb::isinstance<Op>(op)) {
    refuse(operation_, "op is of type " + std::string(Py_TYPE(op.ptr())->tp_name) +
                           ": give an operator, such as unisono.SUM");
  }
  op_ = nb::borrow(op);
  user_ = nb::cast<const Op&>(op_).user_call();
  call_.op = nb::cast<const Op&>(op_).value(user_.get());
  if (!user_) return;
  if (call_.options.stream) {
    refuse(operation_, "user operators do not run in a stream: leave stream away");
  }
  member_ = nb::weakref(nb::find(member));
}

void BorrowedCall::set_type() {
  const Array& first = in_.is_given() ? in_ : out_;
  if (in_.is_given() && out_.is_given() &&
      (in_.type().type != out_.type().type || in_.item_bytes() != out_.item_bytes())) {
    refuse(operation_, "in_ has elements of " + described(in_) + " and out of " + described(out_) +
                           ": give arrays of one type");
  }
  if (!first.is_given()) {
    if (call_.collective != Collective::kBarrier) refuse(operation_, "no array is given");
    return;
  }
  item_bytes_ = std::max<std::size_t>(first.item_bytes(), 1);
  if (first.type().type) {
    call_.type = *first.type().type;
    return;
  }
  if (reduces(call_.collective)) {
    refuse(operation_, "elements of " + described(first) +
                           " cannot be reduced: give integers, floats of 8 to 64 bits, complex "
                           "numbers or bool, in the byte order of the machine");
  }
  call_.type = DataType::kUint8;
  scale_ = item_bytes_;
}

void BorrowedCall::set_counts(nb::handle given, const char* what, std::vector<std::size_t>* list,
                              std::span<const std::size_t>* view) {
  if (given.is_none()) return;
  if (!nb::try_cast(given, *list)) {
    // Arrays of integers, and what else can be iterated.
    list->clear();
    for (const nb::handle number : nb::list(nb::borrow(given))) {
      const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
      if (!index.is_valid()) throw nb::python_error();
      std::size_t value = 0;
      if (!nb::try_cast(index, value)) refuse(operation_, std::string(what) + " is negative");
      list->push_back(value);
    }
  }
  for (std::size_t& value : *list) {
    if (__builtin_mul_overflow(value, scale_, &value) || value >> 48 != 0) {
      refuse(operation_, std::string(what) + " has a number that no buffer can have");
    }
  }
  *view = *list;
}

void BorrowedCall::set_options(const Given& given) {
  call_.options.timeout = milliseconds_of(given.timeout, operation_);
  algorithm_ = text_of(given.algorithm, operation_, "algorithm");
  call_.options.algorithm = algorithm_;
  call_.options.order = order_of(text_of(given.order, operation_, "order"), operation_);
  call_.options.stream = stream_of(given.stream, operation_);
}

void BorrowedCall::set_sizes(const Given& given, const Communicator& communicator) {
  call_.in = in_.data();
  call_.out = out_.data();
  if (communicator.empty()) return;  // the library says what is wrong
  if (given.out.is_none() && in_.is_given() && call_.collective != Collective::kSend) {
    if (call_.collective == Collective::kAllToAllV) {
      refuse(operation_, "out is missing, and this call is never in place");
    }
    call_.out = in_.data();
    communicator.place_call(&call_, in_.elements() * scale_);
  } else {
    if (!in_.is_given() && needs_input(call_, communicator.rank())) {
      refuse(operation_, "in_ is missing: for a call in place give its array as in_, without out");
    }
    communicator.size_call(&call_, in_.elements() * scale_, out_.elements() * scale_);
  }
}

Order order_of(const std::string& text, const char* operation) {
  Order order = Order::kAny;
  if (!text.empty() && !parse(text, &order)) {
    refuse(operation, "order is '" + text + "': give 'any', 'canonical' or 'exact'");
  }
  return order;
}

std::chrono::milliseconds milliseconds_of(nb::handle seconds, const char* operation) {
  if (seconds.is_none()) return std::chrono::milliseconds(0);
  const double value = PyFloat_AsDouble(seconds.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!(value > 0) || value > 1e9) {
    refuse(operation, "timeout is " + std::to_string(value) +
                          " seconds: give a positive number of them, or None for the default");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(value * 1000)));
}

}  // namespace unisono::python
