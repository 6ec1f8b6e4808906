// Collectives and messages of the C API: known answers, options, and values that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/bindings/c_ranks.h"

namespace unisono::test {
namespace {

using Values = std::vector<std::int64_t>;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// Rank r's value at i is 10 r + i.
Values values_of(int rank, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 10 * rank + static_cast<std::int64_t>(i);
  }
  return values;
}

TEST(CCalls, ReductionsHaveTheirResults) {
  run_ranks(kRanks, [](unisono_comm* comm, int rank) {
    const Values in = values_of(rank, 3);
    Values out(3, -1);
    EXPECT_TRUE(is_ok(unisono_all_reduce(comm, in.data(), out.data(), 3, UNISONO_INT64,
                                         UNISONO_OP_SUM, nullptr)));
    EXPECT_EQ(out, (Values{30, 33, 36}));
    EXPECT_TRUE(is_ok(
        unisono_reduce(comm, in.data(), out.data(), 3, UNISONO_INT64, UNISONO_OP_MAX, 1, nullptr)));
    EXPECT_EQ(out, rank == 1 ? (Values{20, 21, 22}) : (Values{30, 33, 36}));
    EXPECT_TRUE(is_ok(
        unisono_scan(comm, in.data(), out.data(), 3, UNISONO_INT64, UNISONO_OP_SUM, nullptr)));
    EXPECT_EQ(out[0], rank == 0 ? 0 : rank == 1 ? 10 : 30);
    out[0] = -1;
    EXPECT_TRUE(is_ok(
        unisono_exscan(comm, in.data(), out.data(), 3, UNISONO_INT64, UNISONO_OP_SUM, nullptr)));
    if (rank > 0) {
      EXPECT_EQ(out[0], rank == 1 ? 0 : 10);
    }
    EXPECT_TRUE(is_ok(unisono_reduce_scatter(comm, in.data(), out.data(), 1, UNISONO_INT64,
                                             UNISONO_OP_SUM, nullptr)));
    EXPECT_EQ(out[0], 30 + 3 * rank);
    const std::size_t counts[] = {2, 0, 1};
    EXPECT_TRUE(is_ok(unisono_reduce_scatter_v(comm, in.data(), out.data(), counts, UNISONO_INT64,
                                               UNISONO_OP_SUM, nullptr)));
    if (rank == 0) {
      EXPECT_EQ(Values(out.begin(), out.begin() + 2), (Values{30, 33}));
    }
    if (rank == 2) {
      EXPECT_EQ(out[0], 36);
    }
  });
}

TEST(CCalls, DataArrivesWhereItBelongs) {
  run_ranks(kRanks, [](unisono_comm* comm, int rank) {
    const Values in = values_of(rank, kRanks);
    Values out(kRanks, -1);
    EXPECT_TRUE(is_ok(unisono_all_gather(comm, in.data(), out.data(), 1, UNISONO_INT64, nullptr)));
    EXPECT_EQ(out, (Values{0, 10, 20}));
    EXPECT_TRUE(is_ok(unisono_all_to_all(comm, in.data(), out.data(), 1, UNISONO_INT64, nullptr)));
    EXPECT_EQ(out, (Values{rank, 10 + rank, 20 + rank}));
    Values gathered(kRanks, -1);
    EXPECT_TRUE(
        is_ok(unisono_gather(comm, in.data(), gathered.data(), 1, UNISONO_INT64, 2, nullptr)));
    EXPECT_EQ(gathered, rank == 2 ? (Values{0, 10, 20}) : (Values{-1, -1, -1}));
    EXPECT_TRUE(is_ok(unisono_scatter(comm, in.data(), out.data(), 1, UNISONO_INT64, 1, nullptr)));
    EXPECT_EQ(out[0], 10 + rank);
    Values data = values_of(rank, 2);
    EXPECT_TRUE(is_ok(unisono_broadcast(comm, data.data(), 2, UNISONO_INT64, 1, nullptr)));
    EXPECT_EQ(data, (Values{10, 11}));
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
  });
}

TEST(CCalls, CountsDifferByRank) {
  run_ranks(kRanks, [](unisono_comm* comm, int rank) {
    const std::size_t counts[] = {2, 0, 1}, places[] = {1, 1, 0};
    const Values in = values_of(rank, kRanks);
    Values out(kRanks, -1);
    EXPECT_TRUE(is_ok(
        unisono_all_gather_v(comm, in.data(), out.data(), counts, places, UNISONO_INT64, nullptr)));
    EXPECT_EQ(out, (Values{20, 0, 1}));
    Values gathered(kRanks, -1);
    EXPECT_TRUE(is_ok(unisono_gather_v(comm, in.data(), counts[rank], gathered.data(), counts,
                                       nullptr, UNISONO_INT64, 0, nullptr)));
    if (rank == 0) {
      EXPECT_EQ(gathered, (Values{0, 1, 20}));
    }
    Values part(2, -1);
    EXPECT_TRUE(is_ok(unisono_scatter_v(comm, in.data(), counts, places, part.data(), counts[rank],
                                        UNISONO_INT64, 0, nullptr)));
    EXPECT_EQ(part[0], rank == 0 ? 1 : rank == 1 ? -1 : 0);
    const std::size_t sent[] = {1, 1, 1}, where[] = {2, 1, 0};
    EXPECT_TRUE(is_ok(unisono_all_to_all_v(comm, in.data(), sent, where, out.data(), sent, nullptr,
                                           UNISONO_INT64, nullptr)));
    EXPECT_EQ(out, (Values{2 - rank, 12 - rank, 22 - rank}));
  });
}

TEST(CCalls, MessagesTellWhatCame) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    std::int32_t data[4] = {1, 2, 3, 4};
    unisono_received got = UNISONO_RECEIVED_INIT;
    if (rank == 0) {
      EXPECT_TRUE(is_ok(unisono_send(comm, data, 3, UNISONO_INT32, 1, 7, nullptr)));
    } else {
      EXPECT_TRUE(
          is_ok(unisono_receive(comm, data, 4, UNISONO_INT32, UNISONO_ANY_RANK, 7, &got, nullptr)));
      EXPECT_EQ(got.count, 3u);
      EXPECT_EQ(got.source, 0);
      EXPECT_EQ(got.tag, 7u);
    }
    const std::int32_t mine = 100 + rank;
    std::int32_t other = 0;
    EXPECT_TRUE(is_ok(unisono_send_receive(comm, &mine, 1, 1 - rank, &other, 1, 1 - rank,
                                           UNISONO_INT32, 8, &got, nullptr)));
    EXPECT_EQ(other, 101 - rank);
    EXPECT_EQ(got.count, 1u);
  });
}

TEST(CCalls, AReceiveWithoutAPlaceForItsOutcomeTakesNoMessage) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    std::int32_t data = 5;
    if (rank == 0) {
      EXPECT_TRUE(is_ok(unisono_send(comm, &data, 1, UNISONO_INT32, 1, 0, nullptr)));
      return;
    }
    data = 0;
    unisono_received unset{};
    EXPECT_TRUE(is_code(unisono_receive(comm, &data, 1, UNISONO_INT32, 0, 0, &unset, nullptr),
                        UNISONO_INVALID_ARGUMENT));
    EXPECT_EQ(data, 0);
    EXPECT_TRUE(is_ok(unisono_receive(comm, &data, 1, UNISONO_INT32, 0, 0, nullptr, nullptr)));
    EXPECT_EQ(data, 5);
  });
}

unisono_call message(unisono_collective collective, void* data, int peer) {
  unisono_call call = UNISONO_CALL_INIT;
  call.collective = collective;
  call.in = data;
  call.out = data;
  call.count = 1;
  call.type = UNISONO_INT32;
  call.peer = peer;
  return call;
}

TEST(CCalls, AGroupExchangesInAnyOrder) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    std::int32_t mine = 100 + rank, other = 0;
    const unisono_call calls[] = {message(UNISONO_RECEIVE, &other, 1 - rank),
                                  message(UNISONO_SEND, &mine, 1 - rank)};
    EXPECT_TRUE(is_ok(unisono_group(comm, calls, 2)));
    EXPECT_EQ(other, 101 - rank);
    other = 0;
    unisono_comm* const comms[] = {comm, comm};
    EXPECT_TRUE(is_ok(unisono_group_on(comms, calls, 2)));
    EXPECT_EQ(other, 101 - rank);
    EXPECT_TRUE(is_ok(unisono_group(comm, nullptr, 0)));
    EXPECT_TRUE(is_code(unisono_group(comm, nullptr, 1), UNISONO_INVALID_ARGUMENT));
  });
}

// The smallest value wins, counted in whole hundreds.
void least_hundred(const void* in, void* inout, std::size_t count, unisono_type type,
                   void* context) {
  EXPECT_EQ(type, UNISONO_INT64);
  const auto* const a = static_cast<const std::int64_t*>(in);
  auto* const b = static_cast<std::int64_t*>(inout);
  const std::int64_t unit = *static_cast<const std::int64_t*>(context);
  for (std::size_t i = 0; i < count; ++i) b[i] = a[i] / unit < b[i] / unit ? a[i] : b[i];
}

TEST(CCalls, OperatorsTakeWhatTheyNeedFromTheOptions) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    unisono_call_options options = UNISONO_CALL_OPTIONS_INIT;
    options.factor = rank + 2;
    double value = 10;
    EXPECT_TRUE(is_ok(unisono_all_reduce(comm, &value, &value, 1, UNISONO_FLOAT64,
                                         UNISONO_OP_PREMULTIPLIED_SUM, &options)));
    EXPECT_EQ(value, 50);

    std::int64_t unit = 100;
    unisono_user_op op = UNISONO_USER_OP_INIT;
    op.function = least_hundred;
    op.context = &unit;
    op.name = "least hundred";
    options.user_op = &op;
    std::int64_t amount = rank == 0 ? 250 : 199;
    EXPECT_TRUE(is_ok(
        unisono_all_reduce(comm, &amount, &amount, 1, UNISONO_INT64, UNISONO_OP_USER, &options)));
    EXPECT_EQ(amount, 199);
    op.function = nullptr;
    EXPECT_TRUE(is_code(
        unisono_all_reduce(comm, &amount, &amount, 1, UNISONO_INT64, UNISONO_OP_USER, &options),
        UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(
        unisono_all_reduce(comm, &amount, &amount, 1, UNISONO_INT64, UNISONO_OP_USER, nullptr),
        UNISONO_INVALID_ARGUMENT));
  });
}

TEST(CCalls, AddendsOfAllRanksAreReduced) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    const double first[] = {1, 2}, second[] = {10, 20};
    const void* const addends[] = {first, second};
    double sums[2] = {};
    EXPECT_TRUE(is_ok(unisono_all_reduce_addends(comm, addends, rank == 0 ? 2 : 1, sums, 2,
                                                 UNISONO_FLOAT64, UNISONO_OP_SUM, nullptr)));
    EXPECT_THAT(sums, testing::ElementsAre(12, 24));
    // What one rank gives wrong the other hears of.
    EXPECT_TRUE(is_code(unisono_all_reduce_addends(comm, rank == 1 ? nullptr : addends, 1, sums, 2,
                                                   UNISONO_FLOAT64, UNISONO_OP_SUM, nullptr),
                        UNISONO_INVALID_ARGUMENT));
    if (rank == 0) {
      EXPECT_EQ(unisono_last_error_rank(), 1);
    }
  });
}

TEST(CCalls, AddendsThatOneRankCannotGiveAreToldToTheOthers) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    const double one = 1;
    const void* const addends[] = {&one};
    double sum = 0;
    unisono_call_options late = UNISONO_CALL_OPTIONS_INIT;
    late.timeout_ms = -1;
    const struct {
      unisono_type type;
      unisono_op op;
      const unisono_call_options* options;
    } wrongs[] = {{UNISONO_FLOAT64, UNISONO_OP_USER, nullptr},
                  {static_cast<unisono_type>(-1), UNISONO_OP_SUM, nullptr},
                  {UNISONO_FLOAT64, UNISONO_OP_SUM, &late}};
    for (const auto& wrong : wrongs) {
      const bool is_wrong = rank == 1;
      EXPECT_TRUE(is_code(unisono_all_reduce_addends(comm, addends, 1, &sum, 1,
                                                     is_wrong ? wrong.type : UNISONO_FLOAT64,
                                                     is_wrong ? wrong.op : UNISONO_OP_SUM,
                                                     is_wrong ? wrong.options : nullptr),
                          UNISONO_INVALID_ARGUMENT));
      EXPECT_EQ(unisono_last_error_rank(), is_wrong ? -1 : 1);
    }
    EXPECT_TRUE(is_ok(unisono_all_reduce_addends(comm, addends, 1, &sum, 1, UNISONO_FLOAT64,
                                                 UNISONO_OP_SUM, nullptr)));
    EXPECT_EQ(sum, 2);
  });
}

TEST(CCalls, OptionsReachTheCall) {
  run_ranks(2, [](unisono_comm* comm, int) {
    unisono_call_options options = UNISONO_CALL_OPTIONS_INIT;
    options.algorithm = "no such algorithm";
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_INVALID_ARGUMENT));
    EXPECT_THAT(unisono_last_error(), HasSubstr("no such algorithm"));
    options.algorithm = nullptr;
    options.order = static_cast<unisono_order>(3);
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_INVALID_ARGUMENT));
    options.order = UNISONO_ORDER_CANONICAL;
    EXPECT_TRUE(is_ok(unisono_barrier(comm, &options)));
  });
}

TEST(CCalls, ACallThatIsOverdueNamesWhoIsMissing) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    if (rank == 1) {
      char unused = 0;
      EXPECT_TRUE(is_code(unisono_receive(comm, &unused, 1, UNISONO_UINT8, 0, 0, nullptr, nullptr),
                          UNISONO_TIMEOUT));
      return;
    }
    unisono_call_options options = UNISONO_CALL_OPTIONS_INIT;
    options.timeout_ms = 100;
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_TIMEOUT));
    EXPECT_EQ(unisono_last_error_code(), UNISONO_TIMEOUT);
    EXPECT_EQ(unisono_last_error_rank(), 1);
    EXPECT_STREQ(unisono_last_error_operation(), "barrier");
    EXPECT_TRUE(is_code(unisono_comm_status(comm), UNISONO_TIMEOUT));
  });
}

TEST(CCalls, ValuesThatAreNoneAreRefused) {
  run_ranks(1, [](unisono_comm* comm, int) {
    std::int32_t data = 3;
    const auto all_reduce = [&](unisono_comm* on, int type, int op) {
      return unisono_all_reduce(on, &data, &data, 1, static_cast<unisono_type>(type),
                                static_cast<unisono_op>(op), nullptr);
    };
    EXPECT_TRUE(is_ok(all_reduce(comm, UNISONO_INT32, UNISONO_OP_SUM)));
    EXPECT_TRUE(
        is_code(all_reduce(nullptr, UNISONO_INT32, UNISONO_OP_SUM), UNISONO_INVALID_ARGUMENT));
    EXPECT_STREQ(unisono_last_error_operation(), "all_reduce");
    EXPECT_TRUE(is_code(all_reduce(comm, 17, UNISONO_OP_SUM), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(
        is_code(all_reduce(comm, 256 + UNISONO_INT32, UNISONO_OP_SUM), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(all_reduce(comm, UNISONO_INT32, 13), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(
        is_code(all_reduce(comm, UNISONO_FLOAT32, UNISONO_OP_BIT_AND), UNISONO_INVALID_ARGUMENT));
    unisono_call call = UNISONO_CALL_INIT;
    EXPECT_TRUE(is_ok(unisono_run(comm, &call)));
    call.collective = static_cast<unisono_collective>(18);
    EXPECT_TRUE(is_code(unisono_run(comm, &call), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(unisono_run(comm, nullptr), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(unisono_start(comm, &call, nullptr), UNISONO_INVALID_ARGUMENT));
    unisono_call_options options = UNISONO_CALL_OPTIONS_INIT;
    options.timeout_ms = -1;
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
  });
}

TEST(CCalls, AStructThatIsShorterHasDefaultsForTheRest) {
  run_ranks(1, [](unisono_comm* comm, int) {
    unisono_call_options options;
    std::memset(&options, 0xff, sizeof options);
    options.size = offsetof(unisono_call_options, algorithm);
    options.timeout_ms = 1'000;
    EXPECT_TRUE(is_ok(unisono_barrier(comm, &options)));
    options.size = 0;
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_INVALID_ARGUMENT));
    options.size = offsetof(unisono_call_options, algorithm) + 3;
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_INVALID_ARGUMENT));
    options.size = sizeof options + 8;
    EXPECT_TRUE(is_code(unisono_barrier(comm, &options), UNISONO_INVALID_ARGUMENT));

    // As a program of an older version would pass its array: closer together.
    constexpr std::size_t kShort = offsetof(unisono_call, options);
    alignas(unisono_call) char calls[2 * kShort];
    std::int32_t a = 1, b = 0;
    unisono_call send = message(UNISONO_SEND, &a, 0), receive = message(UNISONO_RECEIVE, &b, 0);
    send.size = receive.size = kShort;
    std::memcpy(calls, &send, kShort);
    std::memcpy(calls + kShort, &receive, kShort);
    EXPECT_TRUE(is_ok(unisono_group(comm, reinterpret_cast<const unisono_call*>(calls), 2)));
    EXPECT_EQ(b, 1);

    unisono_traffic traffic = UNISONO_TRAFFIC_INIT;
    traffic.bytes_sent = 77;
    traffic.size = offsetof(unisono_traffic, bytes_sent);
    EXPECT_TRUE(is_ok(unisono_traffic_of_collective(comm, UNISONO_SEND, &traffic)));
    EXPECT_EQ(traffic.calls, 1u);
    EXPECT_EQ(traffic.bytes_sent, 77u);
    EXPECT_EQ(traffic.size, offsetof(unisono_traffic, bytes_sent));
  });
}

TEST(CCalls, NamesAndSizesAreThoseOfTheTypes) {
  EXPECT_STREQ(unisono_type_name(UNISONO_BFLOAT16), "bfloat16");
  EXPECT_STREQ(unisono_type_name(static_cast<unisono_type>(17)), "unknown");
  EXPECT_STREQ(unisono_op_name(UNISONO_OP_MAX), "max");
  EXPECT_STREQ(unisono_collective_name(UNISONO_ALL_TO_ALL_V), "all_to_all_v");
  EXPECT_STREQ(unisono_collective_name(static_cast<unisono_collective>(274)), "unknown");
  EXPECT_STREQ(unisono_code_name(UNISONO_RANK_FAILED), "rank failed");
  EXPECT_STREQ(unisono_code_name(static_cast<unisono_code>(270)), "unknown");
  EXPECT_EQ(unisono_type_size(UNISONO_COMPLEX128), 16u);
  EXPECT_EQ(unisono_type_size(static_cast<unisono_type>(-1)), 0u);
  EXPECT_EQ(unisono_op_is_meaningful(UNISONO_OP_MAX, UNISONO_COMPLEX64), 0);
  EXPECT_EQ(unisono_op_is_meaningful(UNISONO_OP_MAX, UNISONO_INT8), 1);
}

TEST(CCalls, NamesAreValuesAgain) {
  for (int t = 0; unisono_type_size(static_cast<unisono_type>(t)) > 0; ++t) {
    const auto type = static_cast<unisono_type>(t);
    unisono_type parsed = UNISONO_INT8;
    EXPECT_TRUE(is_ok(unisono_parse_type(unisono_type_name(type), &parsed)));
    EXPECT_EQ(parsed, type);
  }
  unisono_collective collective = UNISONO_ALL_REDUCE;
  EXPECT_TRUE(is_ok(unisono_parse_collective("scatter_v", &collective)));
  EXPECT_EQ(collective, UNISONO_SCATTER_V);
  unisono_order order = UNISONO_ORDER_ANY;
  EXPECT_TRUE(is_ok(unisono_parse_order(unisono_order_name(UNISONO_ORDER_EXACT), &order)));
  EXPECT_EQ(order, UNISONO_ORDER_EXACT);
  EXPECT_STREQ(unisono_order_name(static_cast<unisono_order>(3)), "unknown");
  EXPECT_TRUE(is_code(unisono_parse_order("random", &order), UNISONO_INVALID_ARGUMENT));
  EXPECT_THAT(unisono_last_error(), testing::HasSubstr("\"random\""));
  EXPECT_EQ(order, UNISONO_ORDER_EXACT);
  EXPECT_TRUE(is_code(unisono_parse_type(nullptr, nullptr), UNISONO_INVALID_ARGUMENT));
}

TEST(CCalls, SmallFloatsAreFloatsAndBack) {
  const float values[] = {0.0f, 1.5f, -2.0f, 0.25f};
  for (const unisono_type type :
       {UNISONO_FLOAT16, UNISONO_BFLOAT16, UNISONO_FLOAT8_E4M3, UNISONO_FLOAT8_E5M2}) {
    unsigned char codes[8];
    float back[4] = {9, 9, 9, 9};
    EXPECT_TRUE(is_ok(unisono_from_float32(type, values, codes, 4)));
    EXPECT_TRUE(is_ok(unisono_to_float32(type, codes, back, 4)));
    EXPECT_EQ(std::memcmp(back, values, sizeof values), 0) << unisono_type_name(type);
  }
  // One bit behind the last of bfloat16's: half way, so to the even neighbour.
  const float between[] = {1.00390625f, 1.01171875f};
  std::uint16_t codes[2];
  EXPECT_TRUE(is_ok(unisono_from_float32(UNISONO_BFLOAT16, between, codes, 2)));
  EXPECT_EQ(codes[0], 0x3f80);
  EXPECT_EQ(codes[1], 0x3f82);
  EXPECT_TRUE(
      is_code(unisono_from_float32(UNISONO_INT8, values, codes, 1), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(
      is_code(unisono_to_float32(UNISONO_FLOAT16, nullptr, nullptr, 1), UNISONO_INVALID_ARGUMENT));
}

}  // namespace
}  // namespace unisono::test
