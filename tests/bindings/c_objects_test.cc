// Objects, memory, helper threads and traffic of the C API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/bindings/c_ranks.h"

namespace unisono::test {
namespace {

using Texts = std::vector<std::string>;
using ::testing::HasSubstr;

std::string text_of(int rank) { return std::string(static_cast<std::size_t>(3 * rank), 'a') + "!"; }

Texts taken(unisono_objects* objects) {
  Texts texts;
  for (std::size_t i = 0; i < unisono_objects_count(objects); ++i) {
    texts.emplace_back(static_cast<const char*>(unisono_objects_data(objects, i)),
                       unisono_objects_bytes(objects, i));
  }
  EXPECT_EQ(unisono_objects_data(objects, texts.size()), nullptr);
  EXPECT_EQ(unisono_objects_bytes(objects, texts.size()), 0u);
  unisono_objects_free(objects);
  return texts;
}

const Texts kAll{text_of(0), text_of(1), text_of(2)};

TEST(CObjects, EveryRankGetsWhatItShould) {
  run_ranks(3, [](unisono_comm* comm, int rank) {
    const std::string mine = text_of(rank);
    unisono_objects* objects = nullptr;
    ASSERT_TRUE(
        is_ok(unisono_all_gather_objects(comm, mine.data(), mine.size(), nullptr, &objects)));
    EXPECT_EQ(taken(objects), kAll);
    ASSERT_TRUE(
        is_ok(unisono_gather_objects(comm, mine.data(), mine.size(), 1, nullptr, &objects)));
    EXPECT_EQ(taken(objects), rank == 1 ? kAll : Texts());
    ASSERT_TRUE(
        is_ok(unisono_broadcast_object(comm, mine.data(), mine.size(), 2, nullptr, &objects)));
    EXPECT_EQ(taken(objects), Texts{text_of(2)});
    const void* data[] = {kAll[0].data(), kAll[1].data(), kAll[2].data()};
    const std::size_t bytes[] = {kAll[0].size(), kAll[1].size(), kAll[2].size()};
    ASSERT_TRUE(is_ok(
        rank == 0 ? unisono_scatter_objects(comm, data, bytes, 3, 0, nullptr, &objects)
                  : unisono_scatter_objects(comm, nullptr, nullptr, 0, 0, nullptr, &objects)));
    EXPECT_EQ(taken(objects), Texts{mine});
  });
}

TEST(CObjects, OptionsBoundThem) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    unisono_object_options options = UNISONO_OBJECT_OPTIONS_INIT;
    options.size_limit = 3;
    unisono_objects* objects = nullptr;
    const std::string mine = text_of(rank);
    EXPECT_TRUE(
        is_code(unisono_all_gather_objects(comm, mine.data(), mine.size(), &options, &objects),
                UNISONO_OUT_OF_RESOURCES));
    EXPECT_EQ(unisono_last_error_rank(), 1);
    EXPECT_EQ(objects, nullptr);
    EXPECT_TRUE(is_code(unisono_all_gather_objects(comm, mine.data(), 1, nullptr, nullptr),
                        UNISONO_INVALID_ARGUMENT));
  });
}

// A rank that gives what is none must not leave the others waiting.
TEST(CObjects, NullIsToldToAllRanks) {
  run_ranks(3, [](unisono_comm* comm, int rank) {
    const auto is_told = [](unisono_code code) {
      EXPECT_TRUE(is_code(code, UNISONO_INVALID_ARGUMENT));
      EXPECT_EQ(unisono_last_error_rank(), 1);
    };
    unisono_objects* objects = nullptr;
    const void* const data = rank == 1 ? nullptr : "four";
    is_told(unisono_all_gather_objects(comm, data, 4, nullptr, &objects));
    is_told(unisono_gather_objects(comm, data, 4, 0, nullptr, &objects));
    is_told(unisono_broadcast_object(comm, data, 4, 1, nullptr, &objects));
    const std::size_t bytes[] = {1, 2, 3};
    is_told(unisono_scatter_objects(comm, nullptr, bytes, 3, 1, nullptr, &objects));
    const void* const parts[] = {"a", nullptr, "c"};
    is_told(unisono_scatter_objects(comm, parts, bytes, 3, 1, nullptr, &objects));
    unisono_object_options options = UNISONO_OBJECT_OPTIONS_INIT;
    options.timeout_ms = rank == 1 ? -1 : 0;
    is_told(unisono_all_gather_objects(comm, "four", 4, &options, &objects));
    EXPECT_EQ(objects, nullptr);
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
  });
}

struct Pieces {
  Texts texts{"", "", ""};
  int refuse_from = -1;
};

int take_piece(void* context, std::int32_t source, std::uint64_t offset, std::uint64_t size,
               const void* data, std::size_t bytes) {
  auto& pieces = *static_cast<Pieces*>(context);
  if (source == pieces.refuse_from) return 9;
  std::string& text = pieces.texts[static_cast<std::size_t>(source)];
  EXPECT_EQ(offset, text.size());
  text.append(static_cast<const char*>(data), bytes);
  EXPECT_LE(text.size(), size);
  return 0;
}

// Nor one whose call is refused before the library hears of it.
TEST(CObjects, WhatTheLibraryNeverSeesIsToldToAllRanks) {
  run_ranks(3, [](unisono_comm* comm, int rank) {
    const auto is_told = [&](unisono_code code) {
      EXPECT_TRUE(is_code(code, UNISONO_INVALID_ARGUMENT));
      if (rank != 1) {
        EXPECT_EQ(unisono_last_error_rank(), 1);
      }
    };
    unisono_objects* objects = nullptr;
    is_told(unisono_gather_objects(comm, "x", 1, 0, nullptr, rank == 1 ? nullptr : &objects));
    unisono_object_options options = UNISONO_OBJECT_OPTIONS_INIT;
    if (rank == 1) options.size = 0;
    is_told(unisono_broadcast_object(comm, "x", 1, 0, &options, &objects));
    unisono_object_source source = UNISONO_OBJECT_SOURCE_INIT;
    source.data = "x";
    source.bytes = 1;
    if (rank == 1) source.size = 0;
    Pieces pieces;
    is_told(unisono_stream_all_gather_objects(comm, &source, take_piece, &pieces, nullptr));
    EXPECT_EQ(objects, nullptr);
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
  });
}

int make_letters(void* context, std::uint64_t offset, void* room, std::size_t bytes) {
  const auto fail_at = *static_cast<const std::uint64_t*>(context);
  if (offset + bytes > fail_at) return 4;
  for (std::size_t i = 0; i < bytes; ++i) {
    static_cast<char*>(room)[i] = static_cast<char>('a' + (offset + i) % 26);
  }
  return 0;
}

unisono_object_source produced(std::uint64_t bytes, std::uint64_t* fail_at) {
  unisono_object_source source = UNISONO_OBJECT_SOURCE_INIT;
  source.bytes = bytes;
  source.producer = make_letters;
  source.context = fail_at;
  return source;
}

TEST(CObjects, StreamsTakeTurnsAndNeedNoMemoryForTheWhole) {
  run_ranks(3, [](unisono_comm* comm, int rank) {
    constexpr std::uint64_t kBytes = 100'000;
    std::uint64_t never = ~std::uint64_t{0};
    unisono_object_source mine = UNISONO_OBJECT_SOURCE_INIT;
    const std::string text = text_of(rank);
    mine.data = text.data();
    mine.bytes = text.size();
    if (rank == 2) mine = produced(kBytes, &never);
    unisono_object_options options = UNISONO_OBJECT_OPTIONS_INIT;
    options.staging_bytes = 4'096;
    std::string letters(kBytes, ' ');
    make_letters(&never, 0, letters.data(), letters.size());

    Pieces pieces;
    EXPECT_TRUE(
        is_ok(unisono_stream_all_gather_objects(comm, &mine, take_piece, &pieces, &options)));
    EXPECT_EQ(pieces.texts, (Texts{text_of(0), text_of(1), letters}));
    Pieces gathered;
    EXPECT_TRUE(is_ok(unisono_stream_gather_objects(
        comm, &mine, 0, rank == 0 ? take_piece : nullptr, &gathered, &options)));
    if (rank == 0) {
      EXPECT_EQ(gathered.texts, pieces.texts);
    }
    Pieces sent;
    EXPECT_TRUE(is_ok(unisono_stream_broadcast_object(comm, rank == 2 ? &mine : nullptr, 2,
                                                      take_piece, &sent, &options)));
    if (rank != 2) {
      EXPECT_EQ(sent.texts, (Texts{"", "", letters}));
    }
  });
}

TEST(CObjects, BytesBesideAProducerAreToldToAllRanks) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    std::uint64_t never = ~std::uint64_t{0};
    unisono_object_source mine = produced(10, &never);
    if (rank == 1) mine.data = "both";
    Pieces pieces;
    EXPECT_TRUE(
        is_code(unisono_stream_broadcast_object(comm, &mine, 1, take_piece, &pieces, nullptr),
                UNISONO_INVALID_ARGUMENT));
    EXPECT_EQ(unisono_last_error_rank(), 1);
    EXPECT_EQ(pieces.texts[1], "");
  });
}

TEST(CObjects, CallbacksThatFailEndTheCallForThoseItConcerns) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    std::uint64_t fail_at = 50;
    unisono_object_source mine = produced(rank == 1 ? 100 : 10, &fail_at);
    Pieces pieces;
    EXPECT_TRUE(
        is_code(unisono_stream_all_gather_objects(comm, &mine, take_piece, &pieces, nullptr),
                rank == 1 ? UNISONO_SYSTEM : UNISONO_INVALID_ARGUMENT));
    if (rank == 0) {
      EXPECT_EQ(unisono_last_error_rank(), 1);
    } else {
      EXPECT_THAT(unisono_last_error(), HasSubstr("the producer returned 4"));
    }

    Pieces refusing;
    refusing.refuse_from = rank == 1 ? 0 : -1;
    mine = produced(10, &fail_at);
    EXPECT_TRUE(
        is_code(unisono_stream_all_gather_objects(comm, &mine, take_piece, &refusing, nullptr),
                rank == 1 ? UNISONO_ABORTED : UNISONO_OK));
    EXPECT_TRUE(is_ok(unisono_barrier(comm, nullptr)));
    mine.data = &fail_at;
    EXPECT_TRUE(
        is_code(unisono_stream_all_gather_objects(comm, &mine, take_piece, &refusing, nullptr),
                UNISONO_INVALID_ARGUMENT));
  });
}

TEST(CMemory, IsSharedAndMayOutliveItsCommunicator) {
  run_ranks(2, [](unisono_comm* comm, int) {
    void* data = nullptr;
    ASSERT_TRUE(is_ok(unisono_allocate(comm, 4'096, UNISONO_HOST, &data)));
    auto* const values = static_cast<std::int32_t*>(data);
    values[0] = 21;
    EXPECT_TRUE(
        is_ok(unisono_all_reduce(comm, data, data, 1, UNISONO_INT32, UNISONO_OP_SUM, nullptr)));
    EXPECT_EQ(values[0], 42);
    EXPECT_TRUE(is_ok(unisono_release(comm, data)));
    EXPECT_TRUE(is_code(unisono_release(comm, values + 1), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(unisono_allocate(comm, 1, static_cast<unisono_memory_kind>(2), &data),
                        UNISONO_INVALID_ARGUMENT));

    unisono_comm* copy = nullptr;
    ASSERT_TRUE(is_ok(unisono_comm_duplicate(comm, &copy)));
    unisono_memory* memory = nullptr;
    ASSERT_TRUE(is_ok(unisono_memory_allocate(copy, 100, &memory)));
    unisono_comm_destroy(copy);
    std::memset(unisono_memory_data(memory), 1, 100);
    unisono_memory_free(memory);
    EXPECT_EQ(unisono_memory_data(nullptr), nullptr);
  });
}

TEST(CMemory, OfTheCallersOwnIsRegistered) {
  run_ranks(2, [](unisono_comm* comm, int) {
    std::vector<char> own(10'000);
    unisono_registration* registration = nullptr;
    ASSERT_TRUE(is_ok(unisono_register(comm, own.data(), own.size(), -1, 0, &registration)));
    // Ranks that are threads read all memory in place.
    EXPECT_EQ(unisono_registration_peer_access(registration), UNISONO_ACCESS_MAPPED);
    EXPECT_STREQ(unisono_registration_reason(registration), "");
    EXPECT_EQ(unisono_registration_is_pinned(registration), 0);
    EXPECT_STRNE(unisono_registration_pinned_reason(registration), "");
    unisono_registration* second = nullptr;
    EXPECT_TRUE(is_code(unisono_register(comm, own.data() + 1, 5, -1, 0, &second),
                        UNISONO_INVALID_ARGUMENT));
    EXPECT_EQ(second, nullptr);
    unisono_registration_free(registration);
  });
}

TEST(CTraffic, IsCountedByCollectiveAndPeer) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    std::int64_t data[10] = {};
    if (rank == 0) {
      EXPECT_TRUE(is_ok(unisono_send(comm, data, 10, UNISONO_INT64, 1, 0, nullptr)));
    } else {
      EXPECT_TRUE(is_ok(unisono_receive(comm, data, 10, UNISONO_INT64, 0, 0, nullptr, nullptr)));
    }
    unisono_traffic traffic = UNISONO_TRAFFIC_INIT;
    EXPECT_TRUE(is_ok(
        unisono_traffic_of_collective(comm, rank == 0 ? UNISONO_SEND : UNISONO_RECEIVE, &traffic)));
    EXPECT_EQ(traffic.calls, 1u);
    EXPECT_EQ(rank == 0 ? traffic.bytes_sent : traffic.bytes_received, 80u);
    EXPECT_TRUE(is_ok(unisono_traffic_of_peer(comm, 1 - rank, &traffic)));
    EXPECT_EQ(rank == 0 ? traffic.messages_sent : traffic.messages_received, 1u);
    EXPECT_TRUE(is_code(unisono_traffic_of_peer(comm, 2, &traffic), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(
        is_code(unisono_traffic_of_collective(comm, static_cast<unisono_collective>(18), &traffic),
                UNISONO_INVALID_ARGUMENT));
  });
}

TEST(CHelperThreads, AreNotedAndForgotten) {
  unisono_helper_threads* note = nullptr;
  ASSERT_TRUE(is_ok(unisono_helper_threads_note(2, &note)));
  EXPECT_NE(note, nullptr);
  unisono_helper_threads_free(note);
  EXPECT_TRUE(is_code(unisono_helper_threads_note(2, nullptr), UNISONO_INVALID_ARGUMENT));
}

}  // namespace
}  // namespace unisono::test
