#include "bindings/python/src/communicator.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bindings/python/src/calls.h"
#include "bindings/python/src/errors.h"
#include "bindings/python/src/memory.h"
#include "bindings/python/src/request.h"
#include "unisono/addends.h"
#include "unisono/shared_buffer.h"

namespace unisono::python {
namespace {

using nb::literals::operator""_a;

// ---- Calls ---------------------------------------------------------------------------------

nb::tuple as_tuple(const Received& received) {
  return nb::make_tuple(received.source, received.tag, received.count);
}

std::unique_ptr<PendingCall> start(Member& member, const Given& given) {
  destroy_buried();
  auto call = std::make_unique<BorrowedCall>(member, given);
  Request request;
  {
    const Inside inside(member);
    request = member.value().start(call->call());
  }
  return std::make_unique<PendingCall>(nb::find(member), std::move(request), std::move(call));
}

// Started and waited for, because that lets Ctrl-C through, for half a microsecond more. Calls in a
// stream are not: they return before their work is done.
void run(Member& member, const Given& given) {
  if (given.stream.is_none()) {
    const Turn turn(member);
    start(member, given)->wait(member.calls(), nb::none());
    return;
  }
  const BorrowedCall call(member, given);
  const Inside inside(member);
  member.value().run(call.call());
}

nb::tuple receive(Member& member, const Given& given) {
  if (given.stream.is_none()) {
    const Turn turn(member);
    const std::unique_ptr<PendingCall> call = start(member, given);
    call->wait(member.calls(), nb::none());
    return as_tuple({call->source(), call->tag(), call->count()});
  }
  run(member, given);  // what comes is not known yet
  return as_tuple({});
}

/// A call that waits to be run in a group.
struct GroupedCall {
  std::unique_ptr<BorrowedCall> call;
};

std::unique_ptr<GroupedCall> prepare(Member& member, const Given& given) {
  return std::make_unique<GroupedCall>(GroupedCall{std::make_unique<BorrowedCall>(member, given)});
}

// Of bytes, because the two may be of different types.
nb::tuple send_receive(Member& member, const GroupedCall& sent, const GroupedCall& received) {
  const Call& out = sent.call->call();
  const Call& in = received.call->call();
  Received got;
  {
    const Inside inside(member);
    got = member.value().send_receive(out.in, out.count * size_of(out.type), out.peer, in.out,
                                      in.count * size_of(in.type), in.peer, DataType::kUint8,
                                      in.tag, in.options);
  }
  if (const Status whole = received.call->check_is_whole(got); !whole) {
    throw Error(whole, {.operation = "send_receive"});
  }
  got.count /= received.call->item_bytes();
  return as_tuple(got);
}

void run_group(const std::vector<std::pair<Member*, GroupedCall*>>& calls) {
  std::vector<MemberCall> given;
  std::deque<Turn> turns;  // which stay where they are, as the counts
  std::deque<Counted> counted;
  for (const auto& [member, call] : calls) {
    given.push_back({&member->value(), call->call->call()});
    turns.emplace_back(*member);
    counted.emplace_back(member->calls());
  }
  const WithoutGil released;
  group(given);
}

// The calls are over, whether or not they succeeded. The first failure of a user operator.
nb::object end_group(const std::vector<std::pair<Member*, GroupedCall*>>& calls) {
  nb::object failure;
  for (const auto& [member, call] : calls) {
    const std::unique_ptr<BorrowedCall> over = std::move(call->call);
    if (!failure) failure = over->failure();
  }
  return failure;
}

void run_group_of(const nb::list& list) {
  std::vector<std::pair<Member*, GroupedCall*>> calls;
  for (const nb::handle entry : list) {
    calls.emplace_back(nb::cast<Member*>(entry[0]), nb::cast<GroupedCall*>(entry[1]));
  }
  std::exception_ptr error;
  try {
    run_group(calls);
  } catch (...) {
    error = std::current_exception();
  }
  raise_if(end_group(calls));
  if (error) std::rethrow_exception(error);
}

// The first call says what is reduced to what, the others have the addends.
void run_addends_of(Member& member, const nb::list& list) {
  std::vector<std::pair<Member*, GroupedCall*>> calls;
  for (const nb::handle entry : list) calls.emplace_back(&member, nb::cast<GroupedCall*>(entry));
  const Call& whole = calls.front().second->call->call();
  std::vector<const void*> addends;
  std::vector<std::size_t> lengths;
  for (const auto& [of, each] : std::span(calls).subspan(1)) {
    const Call& call = each->call->call();
    addends.push_back(call.in);
    lengths.push_back(call.type == whole.type ? call.count : detail::kOtherType);
  }
  std::exception_ptr error;
  try {
    const Turn turn(member);
    const Inside inside(member);
    detail::all_reduce_addends(member.value(), addends, lengths, whole.out, whole.count, whole.type,
                               whole.op, whole.options);
  } catch (...) {
    error = std::current_exception();
  }
  raise_if(end_group(calls));
  if (error) std::rethrow_exception(error);
}

// This rank's cannot be lent: the caller raises why.
void refuse_addends(Member& member, nb::handle timeout) {
  CallOptions options;
  try {
    options.timeout = milliseconds_of(timeout, "all_reduce_addends");
  } catch (const std::exception&) {  // it may be what is wrong: the default
  }
  const Inside inside(member);
  detail::refuse_addends(member.value(), options);
}

// One list of arguments for all that take a call.
template <auto kThen>
auto with_call(Member& member, int collective, nb::handle in, nb::handle out, nb::handle op,
               Rank root, Rank peer, Tag tag, nb::handle in_counts, nb::handle in_displacements,
               nb::handle out_counts, nb::handle out_displacements, nb::handle timeout,
               nb::handle algorithm, nb::handle order, nb::handle stream) {
  return kThen(
      member, {static_cast<Collective>(collective), in, out, op, root, peer, tag, in_counts,
               in_displacements, out_counts, out_displacements, timeout, algorithm, order, stream});
}

template <auto kThen>
void define_call(nb::class_<Member>& members, const char* name) {
  members.def(name, &with_call<kThen>, "collective"_a, "in_"_a = nb::none(), "out"_a = nb::none(),
              "op"_a = nb::none(), "root"_a = 0, "peer"_a = kNoRank, "tag"_a = 0,
              "in_counts"_a = nb::none(), "in_displacements"_a = nb::none(),
              "out_counts"_a = nb::none(), "out_displacements"_a = nb::none(),
              "timeout"_a = nb::none(), "algorithm"_a = nb::none(), "order"_a = nb::none(),
              "stream"_a = nb::none());
}

// ---- Everything else -----------------------------------------------------------------------

std::unique_ptr<Member> split(Member& member, int color, int key) {
  const Inside inside(member);
  return std::make_unique<Member>(member.value().split(color, key));
}

std::unique_ptr<Member> duplicate(Member& member) {
  const Inside inside(member);
  return std::make_unique<Member>(member.value().duplicate());
}

std::unique_ptr<Member> subset(Member& member, const std::vector<Rank>& ranks) {
  const Inside inside(member);
  return std::make_unique<Member>(member.value().subset(ranks));
}

std::unique_ptr<Member> shrink(Member& member, nb::handle timeout) {
  const std::chrono::milliseconds patience = milliseconds_of(timeout, "shrink");
  const Inside inside(member);
  return std::make_unique<Member>(member.value().shrink(patience));
}

nb::tuple as_tuple(const Traffic& t) {
  return nb::make_tuple(t.messages_sent, t.bytes_sent, t.messages_received, t.bytes_received);
}

nb::tuple traffic(Member& member) {
  TrafficReport report;
  {
    const Inside inside(member);
    report = member.value().traffic();
  }
  nb::dict by_collective;
  for (std::size_t c = 0; c < report.calls.size(); ++c) {
    if (report.calls[c] == 0) continue;
    by_collective[name_of(static_cast<Collective>(c)).data()] =
        nb::make_tuple(report.calls[c], as_tuple(report.by_collective[c]));
  }
  nb::list by_peer;
  for (const Traffic& peer : report.by_peer) by_peer.append(as_tuple(peer));
  return nb::make_tuple(by_collective, by_peer);
}

// Memory that Python objects own, which may go whenever one of them does.
std::shared_ptr<void> of_python(std::shared_ptr<void> memory) {
  void* const data = memory.get();
  return {data, [owner = std::move(memory)](void*) mutable { drop(std::move(owner)); }};
}

std::unique_ptr<Memory> allocate_shared(Member& member, std::size_t bytes) {
  const Inside inside(member);
  return std::make_unique<Memory>(of_python(detail::allocate_owned(member.value(), bytes)), bytes);
}

std::string explain(Member& member, const std::string& collective, std::size_t bytes) {
  Collective parsed{};
  if (!parse(collective, &parsed)) refuse("explain", "'" + collective + "' is no collective");
  const Beside beside(member);
  return member.value().explain(parsed, bytes);
}

Status status(Member& member) {
  const Beside beside(member);
  return member.value().status();
}

std::string host_of(Member& member, Rank rank) {
  const Beside beside(member);
  return member.value().host_of(rank);
}

std::string describe(Member& member) {
  const Beside beside(member);
  return member.value().describe();
}

}  // namespace

Member::~Member() { drop(std::move(own_)); }

void Member::begin_use() {
  const std::thread::id me = std::this_thread::get_id();
  if (uses_ > 0 && user_ != me) {
    PyErr_SetString(PyExc_RuntimeError,
                    "two threads use one communicator at once: give each its own, by duplicate()");
    throw nb::python_error();
  }
  if (is_in_callback_) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a sink or producer must not use the communicator that calls it");
    throw nb::python_error();
  }
  user_ = me;
  ++uses_;
}

void Member::end_loan() {
  value_ = &own_;
  while (loan_users_ > 0) {
    const WithoutGil released;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Member::end() {
  const nb::gil_scoped_release released;
  if (calls_ > 0) {
    value().abort("the Python interpreter of a rank ends");
    for (int tries = 0; calls_ > 0 && tries < 1000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (calls_ <= 0 && value_ == &own_) value().close();
}

void define_communicators(nb::module_& module) {
  nb::class_<Member> members(module, "Member", nb::is_weak_referenceable());
  define_call<run>(members, "run");
  define_call<start>(members, "start");
  define_call<receive>(members, "receive");
  define_call<prepare>(members, "prepare");
  members.def("send_receive", &send_receive)
      .def("all_reduce_addends", &run_addends_of)
      .def("refuse_addends", &refuse_addends, "timeout"_a.none())
      .def("split", &split)
      .def("duplicate", &duplicate)
      .def("subset", &subset)
      .def("shrink", &shrink, "timeout"_a.none())
      .def("traffic", &traffic)
      .def("allocate", &allocate_shared)
      .def("explain", &explain)
      .def("end_loan", &Member::end_loan)
      .def("end", &Member::end)
      .def("forget_threads", &Member::forget_threads)
      .def("abort",
           [](Member& member, const std::string& reason, std::optional<Rank> failed_rank) {
             const Beside beside(member);
             if (failed_rank) return member.value().abort(reason, *failed_rank);
             member.value().abort(reason);
           })
      .def("close",
           [](Member& member) {
             const Inside inside(member);
             member.value().close();
           })
      .def("status",
           [](Member& member) {
             const Status found = status(member);
             return nb::make_tuple(static_cast<int>(found.code()), found.rank(),
                                   found.message().c_str());
           })
      .def("parent_failed_in",
           [](Member& member) {
             const FailedIn place = member.value().parent_failed_in();
             return nb::make_tuple(place.number, place.had_begun);
           })
      .def("host_of", &host_of)
      .def("describe", &describe)
      .def_prop_ro("empty", [](Member& member) { return member.value().empty(); })
      .def_prop_ro("rank", [](Member& member) { return member.value().rank(); })
      .def_prop_ro("size", [](Member& member) { return member.value().size(); });
  module.def("group", &run_group_of);
  nb::class_<GroupedCall>(module, "GroupedCall");
}

}  // namespace unisono::python
