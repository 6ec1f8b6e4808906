// The calls on bytes in memory: small objects are packed into rounds, large ones received where
// they stay, each by collectives in which one rank alone has a part.
#include "unisono/objects.h"

#include <algorithm>
#include <cstring>

#include "comm/kept_communicator.h"
#include "objects/transfer.h"

namespace unisono {
namespace {

using namespace objects;

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }

void copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void allocate_objects(std::span<const std::uint64_t> sizes, std::vector<ObjectBytes>* objects) {
  objects->resize(sizes.size());
  for (std::size_t r = 0; r < sizes.size(); ++r) (*objects)[r].resize(sizes[r]);
}

// Packed objects of gather and all_gather, to where they belong.
void move_small(Communicator& communicator, Pattern pattern, Rank root, const Part& part,
                const Agreement& agreement, const CallOptions& options,
                std::vector<ObjectBytes>* objects) {
  std::vector<std::uint64_t> sizes = small_sizes(agreement.bytes);
  if (sum_of(sizes) == 0) return;
  const ObjectSource source(part.bytes);
  const ObjectSink sink = [&](const ObjectPiece& piece) {
    copy(piece.bytes, (*objects)[index(piece.source)].data() + piece.offset);
  };
  const bool receives = pattern == Pattern::kAllGather || communicator.rank() == root;
  Stream stream(communicator, pattern, root, source, receives ? &sink : nullptr, options);
  stream.run(std::move(sizes), agreement.staging);
}

std::vector<ObjectBytes> gather(KeptCommunicator communicator, Kind kind, const Part& part,
                                Rank root, const ObjectOptions& options) {
  check_member(communicator, kind);
  const Agreement agreement = announce_part(
      communicator, announcement_of(communicator, kind, part, root), part.failure, options);
  const CallOptions inner = options_of_collectives(options.call);
  const Rank rank = communicator.rank();
  std::vector<ObjectBytes> objects;
  allocate_result(communicator, kind, sum_of(agreement.bytes), inner, [&] {
    if (rank == root) allocate_objects(agreement.bytes, &objects);
  });
  move_guarded(communicator, kind, [&] {
    move_small(communicator, Pattern::kGather, root, part, agreement, inner, &objects);
    std::vector<std::size_t> counts(agreement.bytes.size(), 0);
    for_each_large(
        agreement.bytes, agreement.staging,
        [&](Rank source, std::uint64_t offset, std::size_t count) {
          if (source == root) {
            if (rank == root)
              copy(part.bytes.subspan(offset, count), objects[index(root)].data() + offset);
            return;
          }
          counts[index(source)] = count;
          communicator.gather_v(rank == source ? part.bytes.data() + offset : nullptr,
                                rank == source ? count : 0,
                                rank == root ? objects[index(source)].data() + offset : nullptr,
                                counts, {}, kByte, root, inner);
          counts[index(source)] = 0;
        });
  });
  return objects;
}

std::vector<ObjectBytes> all_gather(KeptCommunicator communicator, Kind kind, const Part& part,
                                    const ObjectOptions& options) {
  check_member(communicator, kind);
  const Agreement agreement = announce_part(
      communicator, announcement_of(communicator, kind, part, -1), part.failure, options);
  const CallOptions inner = options_of_collectives(options.call);
  const Rank rank = communicator.rank();
  std::vector<ObjectBytes> objects;
  allocate_result(communicator, kind, sum_of(agreement.bytes), inner,
                  [&] { allocate_objects(agreement.bytes, &objects); });
  move_guarded(communicator, kind, [&] {
    move_small(communicator, Pattern::kAllGather, -1, part, agreement, inner, &objects);
    for_each_large(agreement.bytes, agreement.staging,
                   [&](Rank source, std::uint64_t offset, std::size_t count) {
                     std::byte* place = objects[index(source)].data() + offset;
                     if (rank == source) copy(part.bytes.subspan(offset, count), place);
                     communicator.broadcast(place, count, kByte, source, inner);
                   });
  });
  return objects;
}

ObjectBytes broadcast(KeptCommunicator communicator, Kind kind, Part part, Rank root,
                      const ObjectOptions& options) {
  check_member(communicator, kind);
  if (communicator.rank() != root) part.bytes = {};
  const Agreement agreement = announce_part(
      communicator, announcement_of(communicator, kind, part, root), part.failure, options);
  const CallOptions inner = options_of_collectives(options.call);
  const std::uint64_t size = agreement.bytes[index(root)];
  ObjectBytes object;
  allocate_result(communicator, kind, size, inner, [&] {
    if (communicator.rank() == root) {
      object.assign(part.bytes.begin(), part.bytes.end());
    } else {
      object.resize(size);
    }
  });
  move_guarded(communicator, kind, [&] {
    const std::uint64_t step = std::max(agreement.staging, kDirectMin);
    for (std::uint64_t offset = 0; offset < size; offset += step) {
      communicator.broadcast(object.data() + offset, std::min(step, size - offset), kByte, root,
                             inner);
    }
  });
  return object;
}

}  // namespace

std::vector<ObjectBytes> gather_objects(Communicator& communicator,
                                        std::span<const std::byte> object, Rank root,
                                        const ObjectOptions& options) {
  return gather(communicator, Kind::kGather, {.bytes = object, .failure = {}}, root, options);
}

std::vector<ObjectBytes> all_gather_objects(Communicator& communicator,
                                            std::span<const std::byte> object,
                                            const ObjectOptions& options) {
  return all_gather(communicator, Kind::kAllGather, {.bytes = object, .failure = {}}, options);
}

ObjectBytes broadcast_object(Communicator& communicator, std::span<const std::byte> object,
                             Rank root, const ObjectOptions& options) {
  return broadcast(communicator, Kind::kBroadcast, {.bytes = object, .failure = {}}, root, options);
}

namespace detail {

std::vector<ObjectBytes> gather_encoded(Communicator& communicator, const Encoded& object,
                                        Rank root, const ObjectOptions& options) {
  return gather(communicator, Kind::kGatherValues,
                {.bytes = object.bytes, .failure = object.failure}, root, options);
}

std::vector<ObjectBytes> all_gather_encoded(Communicator& communicator, const Encoded& object,
                                            const ObjectOptions& options) {
  return all_gather(communicator, Kind::kAllGatherValues,
                    {.bytes = object.bytes, .failure = object.failure}, options);
}

ObjectBytes broadcast_encoded(Communicator& communicator, const Encoded& object, Rank root,
                              const ObjectOptions& options) {
  return broadcast(communicator, Kind::kBroadcastValue,
                   {.bytes = object.bytes, .failure = object.failure}, root, options);
}

}  // namespace detail
}  // namespace unisono
