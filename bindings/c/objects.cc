// The object collectives of the C API.
#include "unisono/objects.h"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/c/call_conversion.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized.h"

struct unisono_objects {
  std::vector<unisono::ObjectBytes> values;
};

namespace unisono::c {
namespace {

using Bytes = std::span<const std::byte>;

constexpr unisono_object_options kObjectOptions = UNISONO_OBJECT_OPTIONS_INIT;
constexpr unisono_object_source kObjectSource = UNISONO_OBJECT_SOURCE_INIT;

ObjectOptions object_options(const unisono_object_options* given, const char* operation) {
  const unisono_object_options set = with_defaults(given, kObjectOptions, operation);
  ObjectOptions options;
  options.staging_bytes = set.staging_bytes;
  options.size_limit = set.size_limit;
  options.call.timeout = std::chrono::milliseconds(set.timeout_ms);
  return options;
}

// Null bytes are not refused here but by the library, which tells the other ranks: they wait for
// this one's part.
Bytes bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

/// Makes the call with the options that `convert` gives. Where it throws they are options that the
/// library refuses on every rank, since the others wait for this one's part.
template <typename Convert, typename Run>
void make_call(const Convert& convert, const Run& run) {
  ObjectOptions options;
  std::exception_ptr failure;
  try {
    options = convert();
  } catch (...) {
    failure = std::current_exception();
    options.call.timeout = std::chrono::milliseconds(-1);
  }
  try {
    run(options);
  } catch (...) {
    if (failure == nullptr) throw;
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// Of a call that takes a communicator and options and returns objects.
template <typename Run>
unisono_code give_objects(unisono_comm* comm, const char* operation,
                          const unisono_object_options* options, unisono_objects** taker,
                          const Run& run) noexcept {
  return guarded([&] {
    Communicator& value = required(comm, operation, kNoCommunicator).value;
    const auto convert = [&] {
      required(taker, operation, "there is no place for the objects");
      return object_options(options, operation);
    };
    make_call(convert, [&](const ObjectOptions& set) {
      auto objects = std::make_unique<unisono_objects>();
      objects->values = run(value, set);
      *taker = objects.release();
    });
  });
}

std::vector<ObjectBytes> one(ObjectBytes object) {
  std::vector<ObjectBytes> objects;
  objects.push_back(std::move(object));
  return objects;
}

ObjectSource source_of(const unisono_object_source* given, const char* operation) {
  if (given == nullptr) return {};
  const unisono_object_source set = with_defaults(given, kObjectSource, operation);
  if (set.producer == nullptr) return bytes_of(set.data, set.bytes);
  // The library refuses an empty producer, and tells the other ranks.
  if (set.data != nullptr) return {set.bytes, ObjectProducer()};
  return {set.bytes, [set](std::uint64_t offset, std::span<std::byte> room) {
            const int outcome = set.producer(set.context, offset, room.data(), room.size());
            if (outcome != 0) {
              throw std::runtime_error("the producer returned " + std::to_string(outcome));
            }
          }};
}

/// Of a call that takes a communicator, a source and options.
template <typename Run>
unisono_code stream_objects(unisono_comm* comm, const char* operation,
                            const unisono_object_source* object,
                            const unisono_object_options* options, const Run& run) noexcept {
  return guarded([&] {
    Communicator& value = required(comm, operation, kNoCommunicator).value;
    ObjectSource source;
    const auto convert = [&] {
      source = source_of(object, operation);
      return object_options(options, operation);
    };
    make_call(convert, [&](const ObjectOptions& set) { run(value, source, set); });
  });
}

ObjectSink sink_of(unisono_object_sink sink, void* context, const char* operation) {
  if (sink == nullptr) return {};
  return [sink, context, operation](const ObjectPiece& piece) {
    const int outcome = sink(context, piece.source, piece.offset, piece.size, piece.bytes.data(),
                             piece.bytes.size());
    if (outcome == 0) return;
    throw Error(Status(ErrorCode::kAborted, "the sink returned " + std::to_string(outcome)),
                {.operation = operation});
  };
}

}  // namespace
}  // namespace unisono::c

using namespace unisono;
using namespace unisono::c;

std::size_t unisono_objects_count(const unisono_objects* objects) {
  return objects == nullptr ? 0 : objects->values.size();
}

const void* unisono_objects_data(const unisono_objects* objects, std::size_t index) {
  return index < unisono_objects_count(objects) ? objects->values[index].data() : nullptr;
}

std::size_t unisono_objects_bytes(const unisono_objects* objects, std::size_t index) {
  return index < unisono_objects_count(objects) ? objects->values[index].size() : 0;
}

void unisono_objects_free(unisono_objects* objects) { delete objects; }

unisono_code unisono_gather_objects(unisono_comm* comm, const void* data, std::size_t bytes,
                                    std::int32_t root, const unisono_object_options* options,
                                    unisono_objects** objects) {
  const char* const name = "gather_objects";
  return give_objects(comm, name, options, objects, [&](Communicator& value, const auto& set) {
    return gather_objects(value, bytes_of(data, bytes), root, set);
  });
}

unisono_code unisono_all_gather_objects(unisono_comm* comm, const void* data, std::size_t bytes,
                                        const unisono_object_options* options,
                                        unisono_objects** objects) {
  const char* const name = "all_gather_objects";
  return give_objects(comm, name, options, objects, [&](Communicator& value, const auto& set) {
    return all_gather_objects(value, bytes_of(data, bytes), set);
  });
}

unisono_code unisono_broadcast_object(unisono_comm* comm, const void* data, std::size_t bytes,
                                      std::int32_t root, const unisono_object_options* options,
                                      unisono_objects** object) {
  const char* const name = "broadcast_object";
  return give_objects(comm, name, options, object, [&](Communicator& value, const auto& set) {
    const Bytes own = value.rank() == root ? bytes_of(data, bytes) : Bytes();
    return one(broadcast_object(value, own, root, set));
  });
}

unisono_code unisono_scatter_objects(unisono_comm* comm, const void* const* data,
                                     const std::size_t* bytes, std::size_t count, std::int32_t root,
                                     const unisono_object_options* options,
                                     unisono_objects** object) {
  const char* const name = "scatter_objects";
  return give_objects(comm, name, options, object, [&](Communicator& value, const auto& set) {
    std::vector<Bytes> objects;
    if (value.rank() == root && (data == nullptr || bytes == nullptr)) {
      objects.assign(count > 0 ? static_cast<std::size_t>(value.size()) : 0, bytes_of(nullptr, 1));
    } else if (value.rank() == root) {
      for (std::size_t i = 0; i < count; ++i) objects.push_back(bytes_of(data[i], bytes[i]));
    }
    return one(scatter_objects(value, std::span<const Bytes>(objects), root, set));
  });
}

unisono_code unisono_stream_gather_objects(unisono_comm* comm, const unisono_object_source* object,
                                           std::int32_t root, unisono_object_sink sink,
                                           void* context, const unisono_object_options* options) {
  const char* const name = "stream_gather_objects";
  return stream_objects(comm, name, object, options,
                        [&](Communicator& value, const ObjectSource& source, const auto& set) {
                          stream_gather_objects(value, source, root, sink_of(sink, context, name),
                                                set);
                        });
}

unisono_code unisono_stream_all_gather_objects(unisono_comm* comm,
                                               const unisono_object_source* object,
                                               unisono_object_sink sink, void* context,
                                               const unisono_object_options* options) {
  const char* const name = "stream_all_gather_objects";
  return stream_objects(comm, name, object, options,
                        [&](Communicator& value, const ObjectSource& source, const auto& set) {
                          stream_all_gather_objects(value, source, sink_of(sink, context, name),
                                                    set);
                        });
}

unisono_code unisono_stream_broadcast_object(unisono_comm* comm,
                                             const unisono_object_source* object, std::int32_t root,
                                             unisono_object_sink sink, void* context,
                                             const unisono_object_options* options) {
  const char* const name = "stream_broadcast_object";
  return stream_objects(comm, name, object, options,
                        [&](Communicator& value, const ObjectSource& source, const auto& set) {
                          stream_broadcast_object(value, source, root, sink_of(sink, context, name),
                                                  set);
                        });
}
