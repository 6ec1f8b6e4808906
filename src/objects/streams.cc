// The streaming calls.
#include "comm/kept_communicator.h"
#include "objects/transfer.h"

namespace unisono {
namespace {

using namespace objects;

struct StreamCall {
  Kind kind;
  Pattern pattern;
  Rank root;
  bool sends;
  bool receives;
};

void run_stream(KeptCommunicator communicator, const StreamCall& call, const ObjectSource& source,
                const ObjectSink& sink, const ObjectOptions& options) {
  Announcement own = announcement_of(
      communicator, call.kind,
      {.bytes = call.sends ? source.bytes() : std::span<const std::byte>{}, .failure = {}},
      call.root);
  if (call.sends && source.is_produced()) {
    own.bytes = source.size();
    own.produces = true;
    if (!source.producer() && own.refusal == Refusal::kNone) own.refusal = Refusal::kNoProducer;
  }
  if (call.receives && !sink && own.refusal == Refusal::kNone) own.refusal = Refusal::kNoSink;
  const Agreement agreement = announce(communicator, own, options);
  const CallOptions inner = options_of_collectives(options.call);
  Stream stream(communicator, call.pattern, call.root, source, call.receives ? &sink : nullptr,
                inner);
  try {
    move_guarded(communicator, call.kind, [&] { stream.run(agreement.bytes, agreement.staging); });
    settle(communicator, call.kind, stream, agreement, inner);
  } catch (const Error&) {
    // This rank's own words came first.
    if (stream.callback_failure() != nullptr) std::rethrow_exception(stream.callback_failure());
    throw;
  }
}

}  // namespace

void stream_gather_objects(Communicator& communicator, const ObjectSource& object, Rank root,
                           const ObjectSink& sink, const ObjectOptions& options) {
  check_member(communicator, Kind::kStreamGather);
  run_stream(communicator,
             {.kind = Kind::kStreamGather,
              .pattern = Pattern::kGather,
              .root = root,
              .sends = true,
              .receives = communicator.rank() == root},
             object, sink, options);
}

void stream_all_gather_objects(Communicator& communicator, const ObjectSource& object,
                               const ObjectSink& sink, const ObjectOptions& options) {
  check_member(communicator, Kind::kStreamAllGather);
  run_stream(communicator,
             {.kind = Kind::kStreamAllGather,
              .pattern = Pattern::kAllGather,
              .root = -1,
              .sends = true,
              .receives = true},
             object, sink, options);
}

void stream_broadcast_object(Communicator& communicator, const ObjectSource& object, Rank root,
                             const ObjectSink& sink, const ObjectOptions& options) {
  check_member(communicator, Kind::kStreamBroadcast);
  const bool is_root = communicator.rank() == root;
  run_stream(communicator,
             {.kind = Kind::kStreamBroadcast,
              .pattern = Pattern::kBroadcast,
              .root = root,
              .sends = is_root,
              .receives = !is_root},
             object, sink, options);
}

}  // namespace unisono
