// The collectives and messages of the C API.
#include <cstddef>
#include <exception>

#include "bindings/c/call_conversion.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized.h"
#include "unisono/addends.h"

namespace unisono::c {
namespace {

Communicator& value_of(unisono_comm* comm, Collective collective) {
  return required(comm, name_of(collective).data(), kNoCommunicator).value;
}

/// Evenly sized calls: `count` elements, or as many for each rank.
unisono_code run_even(unisono_comm* comm, const Kind& kind, const void* in, void* out,
                      std::size_t count, const unisono_call_options* options) noexcept {
  return guarded(
      [&] { value_of(comm, kind.collective).run(make_call(kind, in, out, count, options)); });
}

struct CountsByRank {
  const std::size_t* counts = nullptr;
  const std::size_t* displacements = nullptr;
};

/// Calls with counts by rank for the input, the output or both.
unisono_code run_uneven(unisono_comm* comm, const Kind& kind, const void* in,
                        const CountsByRank& in_counts, void* out, const CountsByRank& out_counts,
                        std::size_t count, const unisono_call_options* options) noexcept {
  return guarded([&] {
    Communicator& value = value_of(comm, kind.collective);
    const int ranks = value.size();
    Call call = make_call(kind, in, out, count, options);
    call.in_counts = entries(in_counts.counts, ranks);
    call.in_displacements = entries(in_counts.displacements, ranks);
    call.out_counts = entries(out_counts.counts, ranks);
    call.out_displacements = entries(out_counts.displacements, ranks);
    value.run(call);
  });
}

/// Before a message is taken that could not be told of.
void check_taker(const unisono_received* taker) {
  if (taker != nullptr) check_size(*taker, "receive");
}

void give_received(const Received& got, unisono_received* taker) {
  if (taker == nullptr) return;
  unisono_received received = UNISONO_RECEIVED_INIT;
  received.count = got.count;
  received.source = got.source;
  received.tag = got.tag;
  give(received, taker);
}

CallOptions options_of(const unisono_call_options* options, Collective collective) {
  return make_call({collective}, nullptr, nullptr, 0, options).options;
}

}  // namespace
}  // namespace unisono::c

using namespace unisono;
using namespace unisono::c;

unisono_code unisono_run(unisono_comm* comm, const unisono_call* call) {
  return guarded([&] {
    Communicator& value = required(comm, "run", kNoCommunicator).value;
    value.run(make_call(call, value.size()));
  });
}

unisono_code unisono_start(unisono_comm* comm, const unisono_call* call,
                           unisono_request** request) {
  return guarded([&] {
    Communicator& value = required(comm, "start", kNoCommunicator).value;
    unisono_request*& made = required(request, "start", "there is no place for the request");
    auto handle = std::make_unique<unisono_request>();
    handle->value = value.start(make_call(call, value.size()));
    made = handle.release();
  });
}

unisono_code unisono_group(unisono_comm* comm, const unisono_call* calls, std::size_t count) {
  return guarded([&] {
    Communicator& value = required(comm, "group", kNoCommunicator).value;
    std::vector<Call> made;
    made.reserve(count);
    if (count > 0) required(calls, "group", "the calls are null");
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back(make_call(call_at(calls, i), value.size()));
    }
    value.group(made);
  });
}

unisono_code unisono_group_on(unisono_comm* const* comms, const unisono_call* calls,
                              std::size_t count) {
  return guarded([&] {
    std::vector<MemberCall> made;
    made.reserve(count);
    if (count > 0) {
      required(calls, "group", "the calls are null");
      required(comms, "group", "the communicators are null");
    }
    for (std::size_t i = 0; i < count; ++i) {
      Communicator& value = required(comms[i], "group", kNoCommunicator).value;
      made.push_back({&value, make_call(call_at(calls, i), value.size())});
    }
    group(made);
  });
}

unisono_code unisono_barrier(unisono_comm* comm, const unisono_call_options* options) {
  return run_even(comm, {Collective::kBarrier}, nullptr, nullptr, 0, options);
}

unisono_code unisono_all_reduce(unisono_comm* comm, const void* in, void* out, std::size_t count,
                                unisono_type type, unisono_op op,
                                const unisono_call_options* options) {
  return run_even(comm, {Collective::kAllReduce, type, op}, in, out, count, options);
}

unisono_code unisono_all_reduce_addends(unisono_comm* comm, const void* const* addends,
                                        std::size_t addend_count, void* out, std::size_t count,
                                        unisono_type type, unisono_op op,
                                        const unisono_call_options* options) {
  return guarded([&] {
    constexpr const char* kOperation = "all_reduce_addends";
    Communicator& value = required(comm, kOperation, kNoCommunicator).value;
    const void* const none[] = {nullptr};
    const bool is_null = addends == nullptr && addend_count > 0;
    const std::span<const void* const> given =
        is_null ? std::span(none) : std::span(addends, addend_count);
    Call call;
    try {
      call = make_call({Collective::kAllReduce, type, op}, nullptr, out, count, options);
    } catch (const std::exception&) {
      detail::refuse_addends(value);
      throw;
    }
    all_reduce_addends(value, given, call.out, call.count, call.type, call.op, call.options);
  });
}

unisono_code unisono_reduce(unisono_comm* comm, const void* in, void* out, std::size_t count,
                            unisono_type type, unisono_op op, std::int32_t root,
                            const unisono_call_options* options) {
  return run_even(comm, {Collective::kReduce, type, op, root}, in, out, count, options);
}

unisono_code unisono_broadcast(unisono_comm* comm, void* data, std::size_t count, unisono_type type,
                               std::int32_t root, const unisono_call_options* options) {
  return run_even(comm, {Collective::kBroadcast, type, UNISONO_OP_SUM, root}, data, data, count,
                  options);
}

unisono_code unisono_all_gather(unisono_comm* comm, const void* in, void* out, std::size_t count,
                                unisono_type type, const unisono_call_options* options) {
  return run_even(comm, {Collective::kAllGather, type}, in, out, count, options);
}

unisono_code unisono_all_gather_v(unisono_comm* comm, const void* in, void* out,
                                  const std::size_t* counts, const std::size_t* displacements,
                                  unisono_type type, const unisono_call_options* options) {
  return run_uneven(comm, {Collective::kAllGatherV, type}, in, {}, out, {counts, displacements}, 0,
                    options);
}

unisono_code unisono_reduce_scatter(unisono_comm* comm, const void* in, void* out,
                                    std::size_t count, unisono_type type, unisono_op op,
                                    const unisono_call_options* options) {
  return run_even(comm, {Collective::kReduceScatter, type, op}, in, out, count, options);
}

unisono_code unisono_reduce_scatter_v(unisono_comm* comm, const void* in, void* out,
                                      const std::size_t* counts, unisono_type type, unisono_op op,
                                      const unisono_call_options* options) {
  return run_uneven(comm, {Collective::kReduceScatterV, type, op}, in, {counts}, out, {}, 0,
                    options);
}

unisono_code unisono_gather(unisono_comm* comm, const void* in, void* out, std::size_t count,
                            unisono_type type, std::int32_t root,
                            const unisono_call_options* options) {
  return run_even(comm, {Collective::kGather, type, UNISONO_OP_SUM, root}, in, out, count, options);
}

unisono_code unisono_gather_v(unisono_comm* comm, const void* in, std::size_t in_count, void* out,
                              const std::size_t* counts, const std::size_t* displacements,
                              unisono_type type, std::int32_t root,
                              const unisono_call_options* options) {
  return run_uneven(comm, {Collective::kGatherV, type, UNISONO_OP_SUM, root}, in, {}, out,
                    {counts, displacements}, in_count, options);
}

unisono_code unisono_scatter(unisono_comm* comm, const void* in, void* out, std::size_t count,
                             unisono_type type, std::int32_t root,
                             const unisono_call_options* options) {
  return run_even(comm, {Collective::kScatter, type, UNISONO_OP_SUM, root}, in, out, count,
                  options);
}

unisono_code unisono_scatter_v(unisono_comm* comm, const void* in, const std::size_t* counts,
                               const std::size_t* displacements, void* out, std::size_t out_count,
                               unisono_type type, std::int32_t root,
                               const unisono_call_options* options) {
  return run_uneven(comm, {Collective::kScatterV, type, UNISONO_OP_SUM, root}, in,
                    {counts, displacements}, out, {}, out_count, options);
}

unisono_code unisono_all_to_all(unisono_comm* comm, const void* in, void* out, std::size_t count,
                                unisono_type type, const unisono_call_options* options) {
  return run_even(comm, {Collective::kAllToAll, type}, in, out, count, options);
}

unisono_code unisono_all_to_all_v(unisono_comm* comm, const void* in, const std::size_t* in_counts,
                                  const std::size_t* in_displacements, void* out,
                                  const std::size_t* out_counts,
                                  const std::size_t* out_displacements, unisono_type type,
                                  const unisono_call_options* options) {
  return run_uneven(comm, {Collective::kAllToAllV, type}, in, {in_counts, in_displacements}, out,
                    {out_counts, out_displacements}, 0, options);
}

unisono_code unisono_scan(unisono_comm* comm, const void* in, void* out, std::size_t count,
                          unisono_type type, unisono_op op, const unisono_call_options* options) {
  return run_even(comm, {Collective::kScan, type, op}, in, out, count, options);
}

unisono_code unisono_exscan(unisono_comm* comm, const void* in, void* out, std::size_t count,
                            unisono_type type, unisono_op op, const unisono_call_options* options) {
  return run_even(comm, {Collective::kExscan, type, op}, in, out, count, options);
}

unisono_code unisono_send(unisono_comm* comm, const void* data, std::size_t count,
                          unisono_type type, std::int32_t target, std::uint32_t tag,
                          const unisono_call_options* options) {
  return guarded([&] {
    value_of(comm, Collective::kSend)
        .send(data, count, data_type(type, "send"), target, tag,
              options_of(options, Collective::kSend));
  });
}

unisono_code unisono_receive(unisono_comm* comm, void* data, std::size_t count, unisono_type type,
                             std::int32_t source, std::uint32_t tag, unisono_received* received,
                             const unisono_call_options* options) {
  return guarded([&] {
    check_taker(received);
    give_received(value_of(comm, Collective::kReceive)
                      .receive(data, count, data_type(type, "receive"), source, tag,
                               options_of(options, Collective::kReceive)),
                  received);
  });
}

unisono_code unisono_send_receive(unisono_comm* comm, const void* sent, std::size_t sent_count,
                                  std::int32_t target, void* data, std::size_t count,
                                  std::int32_t source, unisono_type type, std::uint32_t tag,
                                  unisono_received* received, const unisono_call_options* options) {
  return guarded([&] {
    check_taker(received);
    give_received(value_of(comm, Collective::kReceive)
                      .send_receive(sent, sent_count, target, data, count, source,
                                    data_type(type, "send_receive"), tag,
                                    options_of(options, Collective::kReceive)),
                  received);
  });
}
