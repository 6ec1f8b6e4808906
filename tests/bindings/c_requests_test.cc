// Requests of the C API: how they end, and who is told.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/bindings/c_ranks.h"

namespace unisono::test {
namespace {

unisono_call sum_of(std::int64_t* data, std::size_t count) {
  unisono_call call = UNISONO_CALL_INIT;
  call.collective = UNISONO_ALL_REDUCE;
  call.in = data;
  call.out = data;
  call.count = count;
  call.type = UNISONO_INT64;
  return call;
}

unisono_call receive_into(std::int64_t* data, int source, std::uint32_t tag) {
  unisono_call call = UNISONO_CALL_INIT;
  call.collective = UNISONO_RECEIVE;
  call.out = data;
  call.count = 1;
  call.type = UNISONO_INT64;
  call.peer = source;
  call.tag = tag;
  return call;
}

unisono_request* started(unisono_comm* comm, const unisono_call& call) {
  unisono_request* request = nullptr;
  EXPECT_TRUE(is_ok(unisono_start(comm, &call, &request)));
  return request;
}

void send_one(unisono_comm* comm, std::int64_t value, int target, std::uint32_t tag) {
  EXPECT_TRUE(is_ok(unisono_send(comm, &value, 1, UNISONO_INT64, target, tag, nullptr)));
}

TEST(CRequests, TestUntilFinished) {
  run_ranks(2, [](unisono_comm* comm, int) {
    std::vector<std::int64_t> data(5'000, 1);
    unisono_request* const request = started(comm, sum_of(data.data(), data.size()));
    std::int32_t finished = 0;
    while (finished == 0) {
      ASSERT_TRUE(is_ok(unisono_request_test(request, &finished)));
      std::this_thread::yield();
    }
    EXPECT_TRUE(is_ok(unisono_request_status(request)));
    EXPECT_EQ(data, std::vector<std::int64_t>(5'000, 2));
    unisono_request_free(request);
  });
}

TEST(CRequests, WaitForComesBackWhereTheCallRunsOn) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    if (rank == 1) {
      std::int64_t go = 0;
      EXPECT_TRUE(is_ok(unisono_receive(comm, &go, 1, UNISONO_INT64, 0, 1, nullptr, nullptr)));
      send_one(comm, go + 1, 0, 2);
      return;
    }
    std::int64_t data = 0;
    unisono_request* const request = started(comm, receive_into(&data, 1, 2));
    std::int32_t finished = 1;
    EXPECT_TRUE(is_ok(unisono_request_wait_for(request, 1, &finished)));
    EXPECT_EQ(finished, 0);
    send_one(comm, 41, 1, 1);
    EXPECT_TRUE(is_ok(unisono_request_wait(request)));
    EXPECT_TRUE(is_ok(unisono_request_wait_for(request, 0, &finished)));
    EXPECT_EQ(finished, 1);
    EXPECT_EQ(data, 42);
    unisono_received got = UNISONO_RECEIVED_INIT;
    EXPECT_TRUE(is_ok(unisono_request_received(request, &got)));
    EXPECT_EQ(got.count, sizeof data);
    EXPECT_EQ(got.source, 1);
    EXPECT_EQ(got.tag, 2u);
    unisono_request_free(request);
  });
}

TEST(CRequests, AnyFindsTheOneThatIsOverAndAllWaitsForTheRest) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    if (rank == 1) {
      send_one(comm, 20, 0, 2);
      std::int64_t go = 0;
      EXPECT_TRUE(is_ok(unisono_receive(comm, &go, 1, UNISONO_INT64, 0, 0, nullptr, nullptr)));
      send_one(comm, 10, 0, 1);
      return;
    }
    std::int64_t first = 0, second = 0;
    unisono_request* const requests[] = {nullptr, started(comm, receive_into(&first, 1, 1)),
                                         started(comm, receive_into(&second, 1, 2))};
    std::size_t index = 0;
    EXPECT_TRUE(is_ok(unisono_wait_any(requests, 3, &index)));
    EXPECT_EQ(index, 2u);
    EXPECT_EQ(second, 20);
    send_one(comm, 0, 1, 0);
    EXPECT_TRUE(is_ok(unisono_wait_all(requests, 3)));
    EXPECT_EQ(first, 10);
    for (unisono_request* const request : requests) unisono_request_free(request);
    EXPECT_TRUE(is_ok(unisono_wait_all(nullptr, 0)));
    EXPECT_TRUE(is_code(unisono_wait_any(requests, 1, &index), UNISONO_INVALID_ARGUMENT));
  });
}

struct Told {
  std::atomic<int> times{0};
  unisono_code code = UNISONO_OK;
  std::int32_t rank = UNISONO_NO_RANK;
  std::string message{};
};

void tell(void* context, unisono_code code, std::int32_t rank, const char* message) {
  auto& told = *static_cast<Told*>(context);
  told.code = code;
  told.rank = rank;
  told.message = message;
  ++told.times;
}

// A callback may run on another thread after the request is finished.
void await(const std::atomic<int>& times, int wanted = 1) {
  while (times < wanted) std::this_thread::yield();
}

TEST(CRequests, CallbacksHearTheOutcomeOnce) {
  run_ranks(2, [](unisono_comm* comm, int) {
    Told told, late;
    std::int64_t data = 1;
    unisono_request* const request = started(comm, sum_of(&data, 1));
    EXPECT_TRUE(is_ok(unisono_request_on_completion(request, tell, &told)));
    EXPECT_TRUE(is_ok(unisono_request_wait(request)));
    await(told.times);
    EXPECT_EQ(told.code, UNISONO_OK);
    EXPECT_EQ(told.message, "");
    EXPECT_TRUE(is_ok(unisono_request_on_completion(request, tell, &late)));
    await(late.times);
    EXPECT_EQ(told.times, 1);
    EXPECT_TRUE(is_code(unisono_request_on_completion(request, nullptr, nullptr),
                        UNISONO_INVALID_ARGUMENT));
    unisono_request_free(request);
  });
}

TEST(CRequests, AFailureIsTheOutcomeOfAllWhoAsk) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    Told told;
    std::int64_t data = 1;
    if (rank == 1) {
      std::int64_t go = 0;
      EXPECT_TRUE(is_ok(unisono_receive(comm, &go, 1, UNISONO_INT64, 0, 3, nullptr, nullptr)));
      EXPECT_TRUE(is_ok(unisono_comm_abort(comm, "had enough")));
      return;
    }
    unisono_request* const request = started(comm, receive_into(&data, 1, 4));
    EXPECT_TRUE(is_ok(unisono_request_on_completion(request, tell, &told)));
    send_one(comm, 0, 1, 3);
    EXPECT_TRUE(is_code(unisono_request_wait(request), UNISONO_ABORTED));
    EXPECT_NE(std::string(unisono_last_error()).find("had enough"), std::string::npos);
    EXPECT_EQ(unisono_last_error_rank(), 1);
    EXPECT_TRUE(is_code(unisono_request_status(request), UNISONO_ABORTED));
    std::int32_t finished = 0;
    EXPECT_TRUE(is_code(unisono_request_wait_for(request, 0, &finished), UNISONO_ABORTED));
    EXPECT_EQ(finished, 1);
    await(told.times);
    EXPECT_EQ(told.code, UNISONO_ABORTED);
    EXPECT_EQ(told.rank, 1);
    EXPECT_NE(told.message.find("had enough"), std::string::npos);
    unisono_request_free(request);
    EXPECT_TRUE(is_code(unisono_comm_status(comm), UNISONO_ABORTED));
  });
}

TEST(CRequests, ADetachedOneReleasesItsBuffersInTheEnd) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    static std::atomic<int> released;
    if (rank == 0) released = 0;
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
    auto* const data = new std::vector<std::int64_t>(10'000, 1);
    unisono_request* const request = started(comm, sum_of(data->data(), data->size()));
    EXPECT_TRUE(is_ok(unisono_request_detach(
        request,
        [](void* buffer) {
          auto* const owned = static_cast<std::vector<std::int64_t>*>(buffer);
          EXPECT_EQ(owned->back(), 2);
          delete owned;
          ++released;
        },
        data)));
    // The same order on both ranks: the reduction is over before this call.
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
    await(released, 2);
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
  });
}

TEST(CRequests, NullIsRefused) {
  std::int32_t finished = 0;
  unisono_received got = UNISONO_RECEIVED_INIT;
  EXPECT_TRUE(is_code(unisono_request_test(nullptr, &finished), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_request_wait(nullptr), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_request_wait_for(nullptr, 0, &finished), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_request_status(nullptr), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_request_received(nullptr, &got), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_request_detach(nullptr, nullptr, nullptr), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_wait_all(nullptr, 1), UNISONO_INVALID_ARGUMENT));
  unisono_request_free(nullptr);
}

}  // namespace
}  // namespace unisono::test
