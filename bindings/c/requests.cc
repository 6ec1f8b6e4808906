// The requests of the C API.
#include <chrono>
#include <memory>
#include <vector>

#include "bindings/c/handles.h"
#include "bindings/c/sized.h"

namespace unisono::c {
namespace {

constexpr const char* kNoFinished = "there is no place to say whether it has finished";

Request& value_of(unisono_request* request, const char* operation) {
  return required(request, operation, kNoRequest).value;
}

/// Of a call's buffers, which it releases in the end. Empty until nothing can fail any more.
struct Owner {
  void (*release)(void* context) = nullptr;
  void* context = nullptr;
  ~Owner() {
    if (release != nullptr) release(context);
  }
};

std::vector<Request*> values_of(unisono_request* const* requests, std::size_t count,
                                const char* operation) {
  std::vector<Request*> values;
  values.reserve(count);
  if (count > 0) required(requests, operation, "the requests are null");
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(requests[i] == nullptr ? nullptr : &requests[i]->value);
  }
  return values;
}

}  // namespace
}  // namespace unisono::c

using namespace unisono;
using namespace unisono::c;

unisono_code unisono_request_test(unisono_request* request, std::int32_t* finished) {
  return guarded([&] {
    Request& value = value_of(request, "test");
    std::int32_t& over = required(finished, "test", kNoFinished);
    over = value.test();
  });
}

unisono_code unisono_request_wait(unisono_request* request) {
  return guarded([&] { value_of(request, "wait").wait(); });
}

unisono_code unisono_request_wait_for(unisono_request* request, std::int64_t limit_ms,
                                      std::int32_t* finished) {
  return guarded([&] {
    Request& value = value_of(request, "wait_for");
    std::int32_t& over = required(finished, "wait_for", kNoFinished);
    try {
      over = value.wait_for(std::chrono::milliseconds(limit_ms));
    } catch (...) {  // the call's own failure, which is an end, or this thread's lack of memory
      over = value.test();
      throw;
    }
  });
}

unisono_code unisono_request_status(const unisono_request* request) {
  return outcome_of([&] { return required(request, "status", kNoRequest).value.status(); });
}

unisono_code unisono_request_on_completion(unisono_request* request, unisono_completion callback,
                                           void* context) {
  return guarded([&] {
    Request& value = value_of(request, "on_completion");
    if (callback == nullptr) refuse("on_completion", "the callback is null");
    value.on_completion([callback, context](const Status& status) {
      callback(context, static_cast<unisono_code>(status.code()), status.rank(),
               status.message().c_str());
    });
  });
}

unisono_code unisono_request_received(const unisono_request* request, unisono_received* received) {
  return guarded([&] {
    const Request& value = required(request, "receive", kNoRequest).value;
    check_size(required(received, "receive", "there is no place for what came"), "receive");
    unisono_received got = UNISONO_RECEIVED_INIT;
    got.count = value.bytes();
    got.source = value.source();
    got.tag = value.tag();
    give(got, received);
  });
}

unisono_code unisono_request_detach(unisono_request* request, void (*release)(void* context),
                                    void* context) {
  return guarded([&] {
    Request& value = value_of(request, "detach");
    auto owner = std::make_shared<Owner>();
    owner->release = release;
    owner->context = context;
    value.detach(std::move(owner));
    delete request;
  });
}

void unisono_request_free(unisono_request* request) { delete request; }

unisono_code unisono_wait_all(unisono_request* const* requests, std::size_t count) {
  return guarded([&] { wait_all(values_of(requests, count, "wait_all")); });
}

unisono_code unisono_wait_any(unisono_request* const* requests, std::size_t count,
                              std::size_t* index) {
  return guarded([&] {
    std::size_t& found = required(index, "wait_any", "there is no place for the index");
    found = wait_any(values_of(requests, count, "wait_any"));
  });
}
