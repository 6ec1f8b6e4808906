// How ranks meet: init(), join(), spawn().
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/python/src/callbacks.h"
#include "bindings/python/src/calls.h"
#include "bindings/python/src/communicator.h"
#include "bindings/python/src/errors.h"

namespace unisono::python {
namespace {

using nb::literals::operator""_a;

/// A store of Python: set(key, bytes) and get(key, timeout) -> bytes or None.
class PythonStore : public Store {
 public:
  explicit PythonStore(nb::object store) : store_(std::move(store)) {}
  void set(std::string_view key, std::string_view value) override {
    callbacks_.run([&] {
      store_.attr("set")(nb::str(key.data(), key.size()), nb::bytes(value.data(), value.size()));
    });
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    std::string found;
    callbacks_.run([&] {
      const double seconds = static_cast<double>(timeout.count()) / 1000;
      const nb::object value = store_.attr("get")(nb::str(key.data(), key.size()), seconds);
      if (value.is_none()) return;
      const nb::bytes bytes(value);
      found.assign(bytes.c_str(), bytes.size());
    });
    return found;
  }
  /// The communicator that `meet` makes without the GIL. What the store has raised is raised.
  template <typename F>
  std::unique_ptr<Member> member(const F& meet) {
    try {
      const WithoutGil released;
      return std::make_unique<Member>(meet());
    } catch (const Error&) {
      callbacks_.raise_failure();
      throw;
    }
  }

 private:
  nb::object store_;
  Callbacks callbacks_;
};

// What is the same in every way to join.
InitOptions job_options(const std::string& job_key, const std::string& transport,
                        nb::handle timeout, int device, const std::string& order) {
  return {.job_key = job_key,
          .transport = transport,
          .timeout = milliseconds_of(timeout, "init"),
          .device = device,
          .order = order_of(order, "init")};
}

std::unique_ptr<Member> init_world(const std::string& rendezvous, Rank rank, int size,
                                   const std::string& job_key, const std::string& transport,
                                   nb::handle timeout, int device, const std::string& order,
                                   nb::object store) {
  InitOptions options = job_options(job_key, transport, timeout, device, order);
  options.rendezvous = rendezvous;
  options.rank = rank;
  options.size = size;
  const bool has_store = !store.is_none();
  PythonStore python_store(std::move(store));
  if (has_store) options.store = &python_store;
  return python_store.member([&] { return init(options); });
}

std::unique_ptr<Member> join_store(nb::object store, const std::string& name, Rank rank, int size,
                                   const std::string& job_key, const std::string& transport,
                                   nb::handle timeout, int device, const std::string& order) {
  PythonStore python_store(std::move(store));
  const InitOptions options = job_options(job_key, transport, timeout, device, order);
  return python_store.member([&] { return join(python_store, name, rank, size, options); });
}

std::unique_ptr<Member> join_id(const nb::bytes& id, Rank rank, int size,
                                const std::string& transport, nb::handle timeout, int device,
                                const std::string& order) {
  UniqueId unique;
  if (id.size() != unique.bytes.size()) {
    refuse("join", "the id has " + std::to_string(id.size()) + " bytes: give the " +
                       std::to_string(unique.bytes.size()) + " of unique_id() unchanged");
  }
  std::memcpy(unique.bytes.data(), id.c_str(), id.size());
  const InitOptions options = job_options({}, transport, timeout, device, order);
  const WithoutGil released;
  return std::make_unique<Member>(join(unique, rank, size, options));
}

std::unique_ptr<Member> rejoin_group(nb::object store, const std::string& name, int key,
                                     const std::string& job_key, const std::string& transport,
                                     nb::handle timeout, int device, const std::string& order) {
  PythonStore python_store(std::move(store));
  const InitOptions options = job_options(job_key, transport, timeout, device, order);
  return python_store.member([&] { return rejoin(python_store, name, key, options); });
}

std::unique_ptr<Member> grow(Member& member, nb::object store, const std::string& name,
                             int at_least, int at_most, nb::handle wait, int key,
                             nb::handle timeout) {
  const GrowOptions options{.at_least = at_least,
                            .at_most = at_most,
                            .wait = milliseconds_of(wait, "grow"),
                            .key = key,
                            .timeout = milliseconds_of(timeout, "grow")};
  const bool has_store = !store.is_none();
  if (!has_store && !name.empty()) {
    refuse("grow", "a name is one in a store: give that too, or neither for the launcher's");
  }
  PythonStore python_store(std::move(store));
  const Turn turn(member);
  const Counted counted(member.calls());
  return python_store.member([&] {
    return has_store ? member.value().grow(python_store, name, options)
                     : member.value().grow(options);
  });
}

nb::bytes make_id() {
  UniqueId id;
  {
    const WithoutGil released;
    id = make_unique_id();
  }
  return nb::bytes(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
}

void spawn_threads(int n, const nb::object& body, const std::string& transport, nb::handle timeout,
                   const std::vector<int>& devices) {
  const SpawnOptions options{
      .transport = transport, .timeout = milliseconds_of(timeout, "spawn"), .devices = devices};
  const auto run_body = [&body](Communicator& given) {
    const bool is_alive = enter_interpreter([&] {
      body(nb::cast(std::make_unique<Member>(&given)));  // it ends the loan: communicator.py
    });
    if (!is_alive) throw std::runtime_error("the Python interpreter has ended");
  };
  const WithoutGil released;
  spawn(n, run_body, options);
}

}  // namespace

void define_joining(nb::module_& module) {
  module.def("init", &init_world, "rendezvous"_a, "rank"_a, "size"_a, "job_key"_a, "transport"_a,
             "timeout"_a.none(), "device"_a, "order"_a, "store"_a.none());
  module.def("join_store", &join_store, "store"_a, "name"_a, "rank"_a, "size"_a, "job_key"_a,
             "transport"_a, "timeout"_a.none(), "device"_a, "order"_a);
  module.def("join_id", &join_id, "id"_a, "rank"_a, "size"_a, "transport"_a, "timeout"_a.none(),
             "device"_a, "order"_a);
  module.def("unique_id", &make_id);
  module.def("rejoin", &rejoin_group, "store"_a, "name"_a, "key"_a, "job_key"_a, "transport"_a,
             "timeout"_a.none(), "device"_a, "order"_a);
  module.def("grow", &grow, "member"_a, "store"_a.none(), "name"_a, "at_least"_a, "at_most"_a,
             "wait"_a.none(), "key"_a, "timeout"_a.none());
  module.def("spawn", &spawn_threads, "n"_a, "body"_a, "transport"_a, "timeout"_a.none(),
             "devices"_a);
  module.def("version", &version);
}

}  // namespace unisono::python
