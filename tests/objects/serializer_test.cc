// The typed forms: values come back as they were, and bytes that mean nothing are refused by name.
#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/support/rank_job.h"
#include "unisono/objects.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Point {
  std::int32_t x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

// Cannot be made without a value.
class Celsius {
 public:
  explicit Celsius(float degrees) : degrees_(degrees) {}
  bool operator==(const Celsius&) const = default;

 private:
  float degrees_;
};

// A type of a user's own.
struct Person {
  std::string name;
  std::vector<std::string> friends;
  bool operator==(const Person&) const = default;
};

}  // namespace
}  // namespace unisono::test

template <>
struct unisono::Serializer<unisono::test::Person> {
  static void write(ByteWriter& out, const test::Person& person) {
    Serializer<std::string>::write(out, person.name);
    Serializer<std::vector<std::string>>::write(out, person.friends);
  }
  static test::Person read(ByteReader& in) {
    test::Person person;
    person.name = Serializer<std::string>::read(in);
    person.friends = Serializer<std::vector<std::string>>::read(in);
    return person;
  }
};

namespace unisono::test {
namespace {

static_assert(PlainBytes<Point> && PlainBytes<float> && PlainBytes<Celsius>);
static_assert(!PlainBytes<const char*> && !PlainBytes<bool> && !PlainBytes<std::string_view> &&
              !PlainBytes<std::span<int>> && !PlainBytes<std::string>);

template <typename T>
ObjectBytes bytes_of(const T& value) {
  ByteWriter writer;
  Serializer<T>{}.write(writer, value);
  return writer.take();
}

// Through bytes and back; every shorter and longer form of the bytes is refused by name.
template <typename T>
void expect_round_trip(const T& value) {
  ObjectBytes bytes = bytes_of(value);
  EXPECT_TRUE(detail::decode<T>(bytes, 3, Serializer<T>{}) == value);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    try {
      detail::decode<T>(std::span(bytes).first(length), 3, Serializer<T>{});
      ADD_FAILURE() << length << " of " << bytes.size() << " bytes were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      EXPECT_EQ(error.rank(), 3);
      EXPECT_THAT(error.what(), HasSubstr("the object of rank 3"));
    }
  }
  bytes.push_back(std::byte{0});
  EXPECT_THROW(detail::decode<T>(bytes, 3, Serializer<T>{}), Error);
}

TEST(Serializers, RoundTripAndRefuseEveryOtherLength) {
  expect_round_trip(std::int64_t{-5});
  expect_round_trip(Point{3, 2.5});
  expect_round_trip(Celsius(36.6f));
  expect_round_trip(true);
  expect_round_trip(std::string("hello"));
  expect_round_trip(std::string());
  expect_round_trip(std::vector<Point>{{1, 2}, {3, 4}});
  expect_round_trip(std::vector<Celsius>{Celsius(1), Celsius(2)});
  expect_round_trip(std::vector<bool>{true, false, true});
  expect_round_trip(std::vector<std::string>{"a", "", "ccc"});
  expect_round_trip(std::vector<std::vector<std::vector<int>>>{{{1}, {}}, {}, {{2, 3}, {4}}});
  expect_round_trip(Person{"ann", {"bob", "eve"}});
}

template <typename T>
void expect_size_refused(std::uint64_t size) {
  ByteWriter writer;
  writer.write_size(size);
  writer.write("12345678", 8);
  const ObjectBytes bytes = writer.take();
  EXPECT_THROW(detail::decode<T>(bytes, 1, Serializer<T>{}), Error) << size;
}

// Would end in std::bad_alloc or std::length_error, if it were allocated for.
TEST(Serializers, AllocateNothingForSizesThatCannotBe) {
  for (const std::uint64_t size : {~std::uint64_t{0}, std::uint64_t{1} << 61, std::uint64_t{9}}) {
    expect_size_refused<std::string>(size);
    expect_size_refused<std::vector<double>>(size);
    expect_size_refused<std::vector<std::string>>(size);
    expect_size_refused<std::vector<std::vector<char>>>(size);
    expect_size_refused<std::vector<bool>>(size);
  }
}

TEST(Serializers, RefuseABoolThatIsNone) {
  const ObjectBytes bytes{std::byte{2}};
  EXPECT_THROW(detail::decode<bool>(bytes, 0, Serializer<bool>{}), Error);
}

TEST(Values, OfEveryKindReachEveryRank) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const auto text = [](Rank rank) {
      return std::string(static_cast<std::size_t>(rank) * 3, 'x');
    };
    EXPECT_THAT(all_gather_values(comm, text(comm.rank())), ElementsAre("", "xxx", "xxxxxx"));
    const std::vector<Point> points = gather_values(comm, Point{comm.rank(), 0.5}, 1);
    if (comm.rank() == 1) {
      EXPECT_THAT(points, ElementsAre(Point{0, 0.5}, Point{1, 0.5}, Point{2, 0.5}));
    } else {
      EXPECT_TRUE(points.empty());
    }
    Person person{"nobody", {}};
    if (comm.rank() == 2) person = {"ann", {"bob"}};
    broadcast_value(comm, person, 2);
    EXPECT_EQ(person, (Person{"ann", {"bob"}}));
    std::vector<std::vector<int>> parts;
    if (comm.rank() == 0) parts = {{}, {1}, {2, 2}};
    EXPECT_EQ(scatter_values(comm, parts, 0),
              std::vector<int>(static_cast<std::size_t>(comm.rank()), comm.rank()));
    EXPECT_EQ(all_gather_list(comm, std::vector<Person>{person}).size(), 3u);
  });
}

// Behaves like a peer with bad intent, or a bug, on rank 1.
struct Truncating {
  bool truncates = false;
  void write(ByteWriter& out, const std::vector<int>& value) const {
    out.write_size(value.size() + (truncates ? 1000 : 0));
    out.write(value.data(), value.size() * sizeof(int));
  }
  static std::vector<int> read(ByteReader& in) { return Serializer<std::vector<int>>::read(in); }
};

TEST(Values, ThatCannotBeDecodedNameTheirSender) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const Truncating serializer{comm.rank() == 1};
    const std::vector<int> value{1, 2, 3};
    for (const bool as_list : {false, true}) {
      try {
        if (as_list) {
          all_gather_list(comm, std::vector<std::vector<int>>{value}, {}, serializer);
        } else {
          all_gather_values(comm, value, {}, serializer);
        }
        ADD_FAILURE() << "it was decoded";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kProtocol) << error.what();
        EXPECT_EQ(error.rank(), 1) << error.what();
        EXPECT_EQ(error.operation(), as_list ? "all_gather_list" : "all_gather_values");
        EXPECT_THAT(error.what(), HasSubstr("1003 elements"));
      }
    }
    comm.barrier();
  });
}

// Frames that lie, as bytes on the wire.
TEST(Lists, WithSizesThatCannotBeNameTheirSender) {
  run_ranks(3, "auto", [](Communicator& comm) {
    for (const std::uint64_t size : {~std::uint64_t{0}, std::uint64_t{50}, std::uint64_t{2}}) {
      ByteWriter writer;
      writer.write_size(comm.rank() == 2 ? size : 3);
      writer.write("abc", 3);
      const detail::Encoded list{writer.take(), nullptr};
      int taken = 0;
      const auto take = [&](Rank source, std::span<const std::byte>) { taken += source != 2; };
      try {
        detail::all_gather_framed(comm, list, take, {.staging_bytes = 7});
        ADD_FAILURE() << "it was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kProtocol) << error.what();
        EXPECT_EQ(error.rank(), 2) << error.what();
      }
      EXPECT_LE(taken, 2);
    }
    comm.barrier();
  });
}

// A size near 2^64, which wraps around when that of the frame is added, in one piece and in many.
TEST(Lists, WithSizesThatWrapAroundAreNotTakenForEmptyElements) {
  run_ranks(2, "auto", [](Communicator& comm) {
    for (const std::size_t staging : {2, 1000}) {
      for (std::uint64_t less = 0; less <= sizeof(std::uint64_t); ++less) {
        ByteWriter writer;
        if (comm.rank() == 1) writer.write_size(~std::uint64_t{0} - less);
        const detail::Encoded list{writer.take(), nullptr};
        const auto take = [](Rank, std::span<const std::byte>) { ADD_FAILURE() << "it was taken"; };
        try {
          detail::all_gather_framed(comm, list, take, {.staging_bytes = staging});
          ADD_FAILURE() << "it was accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kProtocol) << error.what();
          EXPECT_EQ(error.rank(), 1) << error.what();
        }
      }
    }
  });
}

struct Throwing {
  bool throws = false;
  void write(ByteWriter& out, int value) const {
    if (throws) throw std::logic_error("on purpose");
    out.write(&value, sizeof value);
  }
  static int read(ByteReader& in) { return Serializer<int>::read(in); }
};

TEST(Values, ThatOneRankCannotEncodeAreAnErrorOnEveryRank) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const Throwing serializer{comm.rank() == 2};
    int value = 5;
    const auto calls = {
        std::function<void()>([&] { all_gather_values(comm, value, {}, serializer); }),
        std::function<void()>([&] { gather_values(comm, value, 0, {}, serializer); }),
        std::function<void()>([&] { broadcast_value(comm, value, 2, {}, serializer); }),
        std::function<void()>(
            [&] { scatter_values(comm, std::vector<int>(3), 2, {}, serializer); }),
        std::function<void()>([&] { all_gather_list(comm, std::vector<int>(3), {}, serializer); })};
    for (const auto& call : calls) {
      if (comm.rank() == 2) {
        EXPECT_THROW(call(), std::logic_error);
        continue;
      }
      try {
        call();
        ADD_FAILURE() << "nobody told";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        EXPECT_EQ(error.rank(), 2) << error.what();
      }
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace unisono::test
