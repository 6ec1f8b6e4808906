// How communicators are made, asked and ended in the C API.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "bindings/c/call_conversion.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized.h"
#include "unisono/rendezvous.h"

struct unisono_store_value {
  std::optional<std::string> bytes;
  bool is_lost = false;  ///< there was no memory for it
};

namespace unisono::c {

namespace {

constexpr unisono_init_options kInitOptions = UNISONO_INIT_OPTIONS_INIT;
constexpr unisono_grow_options kGrowOptions = UNISONO_GROW_OPTIONS_INIT;

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

std::string abort_reason(const char* given) {
  return given == nullptr ? "abort() was called" : given;
}

InitOptions init_options(const unisono_init_options* given, const char* operation) {
  const unisono_init_options set = with_defaults(given, kInitOptions, operation);
  if (set.reserved != 0 || set.reserved_at_end != 0) {
    refuse(operation, "a reserved member is not 0");
  }
  InitOptions options;
  options.rendezvous = text_of(set.rendezvous);
  options.job_key = text_of(set.job_key);
  options.transport = text_of(set.transport);
  options.timeout = time_limit(set.timeout_ms, operation);
  options.order = reduction_order(set.order, operation);
  options.rank = set.rank;
  options.size = set.world_size;
  options.device = set.device;
  return options;
}

/// The caller's functions as a Store. The library says what it was doing when one fails.
class CallersStore : public Store {
 public:
  explicit CallersStore(const unisono_store& store) : store_(store) {}

  void set(std::string_view key, std::string_view value) override {
    const int outcome =
        store_.set(store_.context, std::string(key).c_str(), value.data(), value.size());
    if (outcome != 0) throw failure("set", outcome);
  }

  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    unisono_store_value value;
    const int outcome =
        store_.get(store_.context, std::string(key).c_str(), timeout.count(), &value);
    if (outcome != 0) throw failure("get", outcome);
    if (value.is_lost) throw std::runtime_error("there is no memory for what get returned");
    return value.bytes.value_or("");
  }

 private:
  static std::runtime_error failure(const char* function, int outcome) {
    return std::runtime_error(std::string(function) + " returned " + std::to_string(outcome));
  }

  const unisono_store store_;
};

CallersStore callers_store(const unisono_store* store, const char* operation) {
  const unisono_store set = with_defaults(&required(store, operation, "the store is null"),
                                          unisono_store UNISONO_STORE_INIT, operation);
  if (set.set == nullptr || set.get == nullptr) refuse(operation, "the store lacks a function");
  return CallersStore(set);
}

GrowOptions grow_options(const unisono_grow_options* given) {
  const unisono_grow_options set = with_defaults(given, kGrowOptions, "grow");
  if (set.reserved != 0) refuse("grow", "a reserved member is not 0");
  return {.at_least = set.at_least,
          .at_most = set.at_most,
          .wait = time_limit(set.wait_ms, "grow"),
          .key = set.key,
          .timeout = time_limit(set.timeout_ms, "grow")};
}

unisono_comm*& place_of(unisono_comm** comm, const char* operation) {
  return required(comm, operation, "there is no place for the communicator");
}

/// The length of `text`; what fits is written.
std::size_t give_text(const std::string& text, char* taker, std::size_t room) {
  if (taker != nullptr && room > 0) {
    const std::size_t length = std::min(text.size(), room - 1);
    std::memcpy(taker, text.data(), length);
    taker[length] = 0;
  }
  return text.size();
}

/// The same for what `make` says of the communicator; 0 where it fails.
template <typename Make>
std::size_t tell(const unisono_comm* comm, const Make& make, char* taker, std::size_t room) {
  if (taker != nullptr && room > 0) taker[0] = 0;
  std::size_t length = 0;
  static_cast<void>(guarded([&] {
    length = give_text(make(required(comm, "describe", kNoCommunicator).value), taker, room);
  }));
  return length;
}

}  // namespace
}  // namespace unisono::c

using namespace unisono;
using namespace unisono::c;

void unisono_store_return(unisono_store_value* value, const void* data, std::size_t bytes) {
  if (value == nullptr || (data == nullptr && bytes > 0)) return;
  try {
    value->bytes.emplace(static_cast<const char*>(data), bytes);
  } catch (const std::exception&) {
    value->is_lost = true;  // get() says so: the caller is C
  }
}

unisono_code unisono_init(const unisono_init_options* options, unisono_comm** comm) {
  return guarded([&] {
    unisono_comm*& made = place_of(comm, "init");
    made = handle_of(init(init_options(options, "init")));
  });
}

unisono_code unisono_join(const unisono_store* store, const char* name, std::int32_t rank,
                          std::int32_t size, const unisono_init_options* options,
                          unisono_comm** comm) {
  return guarded([&] {
    unisono_comm*& made = place_of(comm, "join");
    CallersStore callers = callers_store(store, "join");
    made = handle_of(join(callers, text_of(name), rank, size, init_options(options, "join")));
  });
}

unisono_code unisono_unique_id_make(unisono_unique_id* id) {
  return guarded([&] {
    unisono_unique_id& made = required(id, "make_unique_id", "there is no place for the id");
    const UniqueId unique = make_unique_id();
    static_assert(sizeof made.bytes == sizeof unique.bytes);
    std::memcpy(made.bytes, unique.bytes.data(), sizeof made.bytes);
  });
}

unisono_code unisono_join_by_id(const unisono_unique_id* id, std::int32_t rank, std::int32_t size,
                                const unisono_init_options* options, unisono_comm** comm) {
  return guarded([&] {
    unisono_comm*& made = place_of(comm, "join");
    UniqueId unique;
    std::memcpy(unique.bytes.data(), required(id, "join", "the unique id is null").bytes,
                sizeof id->bytes);
    made = handle_of(join(unique, rank, size, init_options(options, "join")));
  });
}

unisono_code unisono_comm_split(unisono_comm* comm, std::int32_t color, std::int32_t key,
                                unisono_comm** part) {
  return guarded([&] {
    Communicator& value = required(comm, "split", kNoCommunicator).value;
    unisono_comm*& made = place_of(part, "split");
    made = handle_of(value.split(color, key));
  });
}

unisono_code unisono_comm_duplicate(unisono_comm* comm, unisono_comm** copy) {
  return guarded([&] {
    Communicator& value = required(comm, "duplicate", kNoCommunicator).value;
    unisono_comm*& made = place_of(copy, "duplicate");
    made = handle_of(value.duplicate());
  });
}

unisono_code unisono_comm_subset(unisono_comm* comm, const std::int32_t* ranks, std::size_t count,
                                 unisono_comm** part) {
  return guarded([&] {
    Communicator& value = required(comm, "subset", kNoCommunicator).value;
    unisono_comm*& made = place_of(part, "subset");
    if (count > 0) required(ranks, "subset", "the ranks are null");
    made = handle_of(value.subset({ranks, count}));
  });
}

unisono_code unisono_comm_shrink(unisono_comm* comm, std::int64_t timeout_ms, unisono_comm** left) {
  return guarded([&] {
    Communicator& value = required(comm, "shrink", kNoCommunicator).value;
    unisono_comm*& made = place_of(left, "shrink");
    made = handle_of(value.shrink(time_limit(timeout_ms, "shrink")));
  });
}

unisono_code unisono_comm_grow(unisono_comm* comm, const unisono_store* store, const char* name,
                               const unisono_grow_options* options, unisono_comm** grown) {
  return guarded([&] {
    Communicator& value = required(comm, "grow", kNoCommunicator).value;
    unisono_comm*& made = place_of(grown, "grow");
    const GrowOptions set = grow_options(options);
    if (store == nullptr && name == nullptr) {
      made = handle_of(value.grow(set));
    } else {
      CallersStore callers = callers_store(store, "grow");
      made = handle_of(value.grow(callers, text_of(name), set));
    }
  });
}

unisono_code unisono_rejoin(const unisono_store* store, const char* name, std::int32_t key,
                            const unisono_init_options* options, unisono_comm** comm) {
  return guarded([&] {
    unisono_comm*& made = place_of(comm, "rejoin");
    CallersStore callers = callers_store(store, "rejoin");
    made = handle_of(rejoin(callers, text_of(name), key, init_options(options, "rejoin")));
  });
}

std::int64_t unisono_comm_parent_failed_in(const unisono_comm* comm, std::int32_t* had_begun) {
  const FailedIn place = comm == nullptr ? FailedIn() : comm->value.parent_failed_in();
  if (had_begun != nullptr) *had_begun = place.had_begun ? 1 : 0;
  return place.number;
}

std::int32_t unisono_comm_rank(const unisono_comm* comm) {
  return comm == nullptr ? -1 : comm->value.rank();
}

std::int32_t unisono_comm_size(const unisono_comm* comm) {
  return comm == nullptr ? 0 : comm->value.size();
}

unisono_code unisono_comm_status(const unisono_comm* comm) {
  return outcome_of([&] { return required(comm, "status", kNoCommunicator).value.status(); });
}

std::size_t unisono_comm_describe(const unisono_comm* comm, char* text, std::size_t room) {
  return tell(
      comm, [](const Communicator& value) { return value.describe(); }, text, room);
}

std::size_t unisono_comm_host_of(const unisono_comm* comm, std::int32_t rank, char* text,
                                 std::size_t room) {
  return tell(
      comm, [&](const Communicator& value) { return value.host_of(rank); }, text, room);
}

std::size_t unisono_comm_explain(const unisono_comm* comm, unisono_collective collective,
                                 std::size_t bytes, char* text, std::size_t room) {
  return tell(
      comm,
      [&](const Communicator& value) {
        if (collective < 0 || collective >= kCollectiveCount) return std::string();
        return value.explain(static_cast<Collective>(collective), bytes);
      },
      text, room);
}

unisono_code unisono_comm_abort(unisono_comm* comm, const char* reason) {
  return guarded([&] {
    Communicator& value = required(comm, "abort", kNoCommunicator).value;
    value.abort(abort_reason(reason));
  });
}

unisono_code unisono_comm_abort_for(unisono_comm* comm, const char* reason,
                                    std::int32_t failed_rank) {
  return guarded([&] {
    Communicator& value = required(comm, "abort", kNoCommunicator).value;
    value.abort(abort_reason(reason), failed_rank);
  });
}

void unisono_comm_close(unisono_comm* comm) {
  if (comm == nullptr) return;
  static_cast<void>(guarded([&] { comm->value.close(); }));
}

void unisono_comm_destroy(unisono_comm* comm) { delete comm; }

const char* unisono_version(void) { return version(); }
