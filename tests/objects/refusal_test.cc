// What one rank gets wrong, or forges, is the same error on every rank: it names the rank, nobody
// waits, and the communicator works on.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "objects/announcement.h"
#include "tests/objects/object_bytes.h"
#include "tests/support/rank_job.h"
#include "tests/support/seed.h"

namespace unisono::test {
namespace {

using objects::Announcement;
using objects::Kind;
using objects::Words;
using testing::HasSubstr;

void expect_error(const Error& error, ErrorCode code, Rank rank, const std::string& text) {
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_EQ(error.rank(), rank) << error.what();
  EXPECT_THAT(error.what(), HasSubstr(text));
}

void expect_usable(Communicator& comm) {
  EXPECT_TRUE(comm.status()) << comm.status().message();
  EXPECT_EQ(all_gather_objects(comm, object_of(comm.rank(), 10)).size(),
            static_cast<std::size_t>(comm.size()));
}

// A rank that sends `words` where an announcement belongs.
void forge(Communicator& comm, const Words& words) {
  std::vector<Words> table(static_cast<std::size_t>(comm.size()));
  comm.all_gather(words.data(), table.data(), words.size(), DataType::kUint64);
}

const Announcement kHonest{
    .kind = Kind::kAllGather, .bytes = 10, .limit = 1 << 20, .staging = 1 << 20};

class Sizes : public testing::TestWithParam<const char*> {};

TEST_P(Sizes, ThatAreForgedAreErrorsThatNameTheSender) {
  for (const std::uint64_t size : {~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    for (const Rank forger : {0, 2, 3}) {
      run_ranks(4, GetParam(), [&](Communicator& comm) {
        Announcement forged = kHonest;
        forged.bytes = size;
        if (comm.rank() == forger) {
          forge(comm, objects::to_words(forged));
        } else {
          const ObjectBytes object = object_of(comm.rank(), 10);
          expect_error(error_of([&] { all_gather_objects(comm, object); }),
                       ErrorCode::kOutOfResources, forger,
                       "the object of rank " + std::to_string(forger) + " has " +
                           std::to_string(size) + " bytes");
        }
        expect_usable(comm);
      });
    }
  }
}

TEST_P(Sizes, AboveOneRanksLimitAreErrorsOnEveryRank) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    // Only rank 3 is strict, and only rank 1 has a large object.
    ObjectOptions options;
    if (comm.rank() == 3) options.size_limit = 1000;
    const ObjectBytes object = object_of(comm.rank(), comm.rank() == 1 ? 1001 : 1000);
    const ObjectSink ignore = [](const ObjectPiece&) {};
    const std::vector<ObjectBytes> four(4, object);
    const std::vector<char> list(object.size(), 'a');
    const auto calls = {
        std::function<void()>([&] { all_gather_objects(comm, object, options); }),
        std::function<void()>([&] { gather_objects(comm, object, 2, options); }),
        std::function<void()>([&] { broadcast_object(comm, object, 1, options); }),
        std::function<void()>([&] { scatter_objects(comm, four, 1, options); }),
        std::function<void()>([&] { stream_gather_objects(comm, object, 0, ignore, options); }),
        std::function<void()>([&] { stream_all_gather_objects(comm, object, ignore, options); }),
        std::function<void()>([&] { stream_broadcast_object(comm, object, 1, ignore, options); }),
        std::function<void()>([&] { all_gather_list(comm, list, options); }),
        std::function<void()>([&] {
          all_gather_list(comm, std::vector<std::string>{std::string(object.size() - 16, 'a')},
                          options);
        })};
    for (const auto& call : calls) {
      expect_error(error_of(call), ErrorCode::kOutOfResources, 1,
                   "the object of rank 1 has 1001 bytes; the limit of rank 3 is 1000");
    }
    // From a rank within the limit it works.
    EXPECT_EQ(broadcast_object(comm, object, 0, options).size(), 1000u);
    expect_usable(comm);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Sizes, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Limit, ComesFromTheEnvironmentWhereTheCallHasNone) {
  setenv("UNISONO_OBJECT_LIMIT", "1K", 1);
  run_ranks(2, "auto", [](Communicator& comm) {
    const ObjectBytes object = object_of(comm.rank(), comm.rank() == 0 ? 1025 : 1024);
    expect_error(error_of([&] { all_gather_objects(comm, object); }), ErrorCode::kOutOfResources, 0,
                 "is 1024 (ObjectOptions::size_limit or UNISONO_OBJECT_LIMIT");
    EXPECT_EQ(all_gather_objects(comm, object, {.size_limit = 2000}).size(), 2u);
  });
  unsetenv("UNISONO_OBJECT_LIMIT");
}

TEST(Settings, OfZeroOrNonsenseAreRefused) {
  for (const char* name : {"UNISONO_OBJECT_LIMIT", "UNISONO_OBJECT_STAGING"}) {
    for (const char* value : {"0", "many", "-1"}) {
      setenv(name, value, 1);
      const Error error = error_of([] { spawn(1, [](Communicator&) {}); });
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(std::string(name) + "=" + value));
      unsetenv(name);
    }
  }
}

TEST(Sizes, OfAScatterThatExceedWhatWasAnnouncedNameTheRoot) {
  run_ranks(3, "auto", [](Communicator& comm) {
    Announcement forged = kHonest;
    forged.kind = Kind::kScatter;
    forged.root = 1;
    if (comm.rank() == 1) {
      forge(comm, objects::to_words(forged));
      std::vector<std::uint64_t> sizes{5, 10, std::uint64_t{1} << 60};
      comm.broadcast(sizes, 1);
    } else {
      expect_error(error_of([&] { scatter_objects(comm, {}, 1); }), ErrorCode::kProtocol, 1,
                   "an object of 1152921504606846976 bytes");
    }
    expect_usable(comm);
  });
}

// What a rank that does not send adds to the sizes would be read from behind the root's object.
TEST(Sizes, OfARankThatDoesNotSendAreErrorsThatNameIt) {
  for (const Kind kind : {Kind::kBroadcast, Kind::kScatter, Kind::kStreamBroadcast}) {
    run_ranks(3, "auto", [&](Communicator& comm) {
      Announcement forged = kHonest;
      forged.kind = kind;
      forged.root = 1;
      const ObjectBytes object = object_of(comm.rank(), 10);
      const ObjectSink ignore = [](const ObjectPiece&) {};
      if (comm.rank() == 2) {
        forge(comm, objects::to_words(forged));
      } else {
        const Error error = error_of([&] {
          if (kind == Kind::kBroadcast) broadcast_object(comm, object, 1);
          if (kind == Kind::kScatter) scatter_objects(comm, std::vector<ObjectBytes>(3, object), 1);
          if (kind == Kind::kStreamBroadcast) stream_broadcast_object(comm, object, 1, ignore);
        });
        expect_error(error, ErrorCode::kProtocol, 2, "where only the root sends");
      }
      expect_usable(comm);
    });
  }
}

TEST(Announcements, OfARootThatIsNoRankAndIsNotRefusedNameTheirRank) {
  Announcement forged = kHonest;
  forged.kind = Kind::kGather;
  for (const Rank root : {-1, 3}) {
    forged.root = root;
    const Result<objects::Agreement> result =
        objects::judge(std::vector<Words>(3, objects::to_words(forged)));
    ASSERT_FALSE(result) << root;
    EXPECT_EQ(result.error().code(), ErrorCode::kProtocol) << result.error().message();
  }
}

TEST(Announcements, ThatAreNoneNameTheirRank) {
  run_ranks(3, "auto", [](Communicator& comm) {
    if (comm.rank() == 2) {
      forge(comm, Words{1, 2, 3, 4, 5, 6, 7, 8});
    } else {
      expect_error(error_of([&] { all_gather_objects(comm, object_of(0, 10)); }),
                   ErrorCode::kProtocol, 2, "rank 2 announced no object call");
    }
    expect_usable(comm);
  });
}

// Any change of one word is either harmless or names the rank it came from.
TEST(Announcements, OfAnyContentAreJudgedWithoutTrust) {
  std::mt19937_64 random = random_stream(7);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Words> table(4, objects::to_words(kHonest));
    const std::size_t rank = random() % 4;
    table[rank][random() % 8] = random() >> (random() % 64);
    const Result<objects::Agreement> result = objects::judge(table);
    if (result) {
      const std::uint64_t limit = std::min(kHonest.limit, table[rank][2]);
      for (const std::uint64_t bytes : result->bytes) EXPECT_LE(bytes, limit);
      EXPECT_GT(result->staging, 0u);
      continue;
    }
    ++refused;
    // The first rank's call is what the others are compared with, and its limit binds them.
    if (rank != 0 && result.error().code() != ErrorCode::kOutOfResources) {
      EXPECT_EQ(result.error().rank(), static_cast<Rank>(rank)) << result.error().message();
    }
    EXPECT_GE(result.error().rank(), 0);
  }
  EXPECT_GT(refused, 5000);
}

TEST(Announcements, WhoseSizesOverflowTogetherAreRefused) {
  std::vector<Words> table(3, objects::to_words({.kind = Kind::kAllGather,
                                                 .bytes = std::uint64_t{1} << 63,
                                                 .limit = ~std::uint64_t{0},
                                                 .staging = 1}));
  const Result<objects::Agreement> result = objects::judge(table);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().rank(), 1);
}

// ---- Wrong use ------------------------------------------------------------------------------

TEST(WrongUse, OfARootIsToldToEveryRank) {
  for (const Rank root : {-1, 3, 1'000'000}) {
    run_ranks(3, "auto", [&](Communicator& comm) {
      const Rank mine = comm.rank() == 1 ? root : 0;
      const std::string text = "rank 1 gave root " + std::to_string(root);
      const ObjectBytes object = object_of(comm.rank(), 10);
      const ObjectSink ignore = [](const ObjectPiece&) {};
      const auto calls = {
          std::function<void()>([&] { gather_objects(comm, object, mine); }),
          std::function<void()>([&] { broadcast_object(comm, object, mine); }),
          std::function<void()>(
              [&] { scatter_objects(comm, std::vector<ObjectBytes>(3, object), mine); }),
          std::function<void()>([&] { stream_gather_objects(comm, object, mine, ignore); }),
          std::function<void()>([&] { stream_broadcast_object(comm, object, mine, ignore); })};
      for (const auto& call : calls) {
        expect_error(error_of(call), ErrorCode::kInvalidArgument, 1, text);
      }
      expect_usable(comm);
    });
  }
}

TEST(WrongUse, OfDifferentRootsNamesBoth) {
  run_ranks(3, "auto", [](Communicator& comm) {
    expect_error(
        error_of([&] { gather_objects(comm, object_of(0, 5), comm.rank() == 2 ? 1 : 0); }),
        ErrorCode::kMismatch, 2,
        "rank 2 calls gather_objects with root 1 and rank 0 calls gather_objects with root 0");
    expect_usable(comm);
  });
}

TEST(WrongUse, OfDifferentCallsNamesBoth) {
  run_ranks(2, "auto", [](Communicator& comm) {
    const Error error = error_of([&] {
      if (comm.rank() == 0) {
        all_gather_objects(comm, object_of(0, 5));
      } else {
        all_gather_list(comm, std::vector<int>{1});
      }
    });
    expect_error(error, ErrorCode::kMismatch, 1,
                 "rank 1 calls all_gather_list of elements of 4 bytes and rank 0 calls "
                 "all_gather_objects");
    expect_error(error_of([&] {
                   if (comm.rank() == 0) {
                     all_gather_list(comm, std::vector<double>{1});
                   } else {
                     all_gather_list(comm, std::vector<int>{1});
                   }
                 }),
                 ErrorCode::kMismatch, 1,
                 "of 4 bytes and rank 0 calls all_gather_list of elements of 8");
    expect_usable(comm);
  });
}

TEST(WrongUse, IsToldByTheNameOfTheCall) {
  run_ranks(2, "auto", [](Communicator& comm) {
    int value = 5;
    const ObjectBytes object = object_of(0, 4);
    const std::map<std::string, std::function<void(const ObjectOptions&)>> calls{
        {"gather_objects", [&](const auto& options) { gather_objects(comm, object, 0, options); }},
        {"gather_values", [&](const auto& options) { gather_values(comm, value, 0, options); }},
        {"all_gather_values",
         [&](const auto& options) { all_gather_values(comm, value, options); }},
        {"broadcast_value", [&](const auto& options) { broadcast_value(comm, value, 0, options); }},
        {"scatter_values",
         [&](const auto& options) { scatter_values(comm, std::vector<int>(2), 0, options); }}};
    for (const auto& [name, call] : calls) {
      const Error error = error_of([&call = call] { call({.size_limit = 3}); });
      EXPECT_EQ(error.operation(), name) << error.what();
      EXPECT_EQ(error.code(), ErrorCode::kOutOfResources) << error.what();
    }
    // Bytes where others have values are another call.
    expect_error(error_of([&] {
                   if (comm.rank() == 0) {
                     gather_values(comm, value, 0);
                   } else {
                     gather_objects(comm, object, 0);
                   }
                 }),
                 ErrorCode::kMismatch, 1,
                 "rank 1 calls gather_objects with root 0 and rank 0 calls gather_values");
    expect_usable(comm);
  });
}

TEST(WrongUse, OfAScattersObjectsIsToldToEveryRank) {
  for (const std::size_t count : {0u, 1u, 4u}) {
    run_ranks(3, "auto", [&](Communicator& comm) {
      const std::vector<ObjectBytes> objects(count, object_of(0, 3));
      expect_error(error_of([&] { scatter_objects(comm, objects, 2); }),
                   ErrorCode::kInvalidArgument, 2,
                   "gave " + std::to_string(count) + (count == 1 ? " object;" : " objects;") +
                       " one for each of the 3 ranks");
      expect_usable(comm);
    });
  }
}

TEST(WrongUse, OfCallbacksAndPointersIsToldToEveryRank) {
  run_ranks(2, "auto", [](Communicator& comm) {
    const ObjectBytes object = object_of(0, 3);
    const ObjectSink ignore = [](const ObjectPiece&) {};
    expect_error(error_of([&] { stream_gather_objects(comm, object, 1, {}); }),
                 ErrorCode::kInvalidArgument, 1, "gave no callback");
    stream_gather_objects(comm, object, 1, comm.rank() == 1 ? ignore : ObjectSink());
    expect_error(error_of([&] {
                   stream_all_gather_objects(
                       comm, comm.rank() == 1 ? ObjectSource(7, nullptr) : object, ignore);
                 }),
                 ErrorCode::kInvalidArgument, 1, "an empty producer");
    const std::span<const std::byte> null(static_cast<const std::byte*>(nullptr), 9);
    expect_error(error_of([&] {
                   all_gather_objects(comm,
                                      comm.rank() == 0 ? null : std::span<const std::byte>(object));
                 }),
                 ErrorCode::kInvalidArgument, 0, "null for an object of 9 bytes");
    expect_error(error_of([&] {
                   ObjectOptions options;
                   if (comm.rank() == 1) options.call.algorithm = "ring";
                   all_gather_objects(comm, object, options);
                 }),
                 ErrorCode::kInvalidArgument, 1, "named an algorithm");
    expect_usable(comm);
  });
}

TEST(WrongUse, OfAnEmptyCommunicatorIsAnError) {
  Communicator none;
  const ObjectBytes object = object_of(0, 3);
  const ObjectSink ignore = [](const ObjectPiece&) {};
  int value = 0;
  const auto calls = {
      std::function<void()>([&] { gather_objects(none, object, 0); }),
      std::function<void()>([&] { all_gather_objects(none, object); }),
      std::function<void()>([&] { broadcast_object(none, object, 0); }),
      std::function<void()>([&] { scatter_objects(none, std::vector<ObjectBytes>{}, 0); }),
      std::function<void()>([&] { stream_gather_objects(none, object, 0, ignore); }),
      std::function<void()>([&] { stream_all_gather_objects(none, object, ignore); }),
      std::function<void()>([&] { stream_broadcast_object(none, object, 0, ignore); }),
      std::function<void()>([&] { gather_values(none, value, 0); }),
      std::function<void()>([&] { broadcast_value(none, value, -1); }),
      std::function<void()>([&] { all_gather_list(none, std::vector<int>{1}); }),
      std::function<void()>([&] { all_gather_list(none, std::vector<std::string>{"a"}); })};
  for (const auto& call : calls) {
    EXPECT_EQ(error_of(call).code(), ErrorCode::kNotMember) << error_of(call).what();
  }
}

// More than any vector takes, with any allocator: refused before anything moves, on every rank
// alike.
TEST(Memory, ThatOneRankLacksIsAnErrorOnEveryRank) {
  run_ranks(2, "auto", [](Communicator& comm) {
    Announcement forged = kHonest;
    forged.bytes = std::uint64_t{1} << 63;
    forged.limit = ~std::uint64_t{0};
    if (comm.rank() == 1) {
      forge(comm, objects::to_words(forged));
      // It has the memory, it says.
      const auto words = objects::exchange_word(comm, objects::Kind::kAllGather, 0, {});
      EXPECT_EQ(words[0], 1u);
    } else {
      expect_error(error_of([&] {
                     all_gather_objects(comm, object_of(0, 10), {.size_limit = ~std::uint64_t{0}});
                   }),
                   ErrorCode::kOutOfResources, 0, "rank 0 has not the memory");
    }
    expect_usable(comm);
  });
}

TEST(Memory, ThatLacksForSmallObjectsAbortsInsteadOfLeavingOthersWaiting) {
  run_ranks(2, "auto", [](Communicator& comm) {
    const std::vector<std::byte> list(8);
    const Error error = error_of([&] {
      detail::all_gather_plain(comm, {.bytes = list},
                               [&](std::uint64_t bytes) -> std::byte* {
                                 static ObjectBytes room;
                                 if (comm.rank() == 1) throw std::bad_alloc();
                                 room.resize(bytes);
                                 return room.data();
                               },
                               {});
    });
    EXPECT_EQ(error.code(), comm.rank() == 1 ? ErrorCode::kOutOfResources : ErrorCode::kAborted)
        << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
  });
}

}  // namespace
}  // namespace unisono::test
