// cereal's archives as a serializer: the bytes are cereal's own, reading them is bounded.
#include <gmock/gmock.h>

#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <sstream>

#include "tests/support/rank_job.h"
#include "unisono/objects_cereal.h"

namespace unisono::test {
namespace {

struct Table {
  std::int32_t number = 0;
  bool flag = false;
  std::map<std::string, std::vector<double>> columns;
  std::vector<bool> bits;
  std::unique_ptr<std::string> note;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(cereal::make_nvp("number", number), flag, columns, bits, note);
  }
};

Table make_table(int number) {
  Table table{.number = number,
              .flag = true,
              .columns = {{"a", {1, 2.5}}, {"b", {}}},
              .bits = {true, false, true},
              .note = std::make_unique<std::string>("hello")};
  table.columns["rank"].assign(static_cast<std::size_t>(number), 0.25);
  return table;
}

void expect_equal(const Table& a, const Table& b) {
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.flag, b.flag);
  EXPECT_EQ(a.columns, b.columns);
  EXPECT_EQ(a.bits, b.bits);
  ASSERT_TRUE(a.note != nullptr && b.note != nullptr);
  EXPECT_EQ(*a.note, *b.note);
}

ObjectBytes bytes_of(const Table& table) {
  ByteWriter writer;
  CerealSerializer<Table>::write(writer, table);
  return writer.take();
}

Table decode(std::span<const std::byte> bytes) {
  return detail::decode<Table>(bytes, 4, CerealSerializer<Table>{});
}

TEST(Cereal, RoundTripsAndRefusesEveryOtherLength) {
  const Table table = make_table(2);
  ObjectBytes bytes = bytes_of(table);
  expect_equal(decode(bytes), table);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    try {
      decode(std::span(bytes).first(length));
      ADD_FAILURE() << length << " of " << bytes.size() << " bytes were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.rank(), 4) << error.what();
    }
  }
  bytes.push_back(std::byte{0});
  EXPECT_THROW(decode(bytes), Error);
}

TEST(Cereal, WritesAndReadsItsPortableBinaryForm) {
  const Table table = make_table(3);
  std::stringstream stream;
  {
    cereal::PortableBinaryOutputArchive archive(
        stream, cereal::PortableBinaryOutputArchive::Options::BigEndian());
    archive(table);
  }
  const std::string foreign = stream.str();
  expect_equal(decode(std::as_bytes(std::span(foreign))), table);
  const ObjectBytes own = bytes_of(table);
  std::stringstream text(std::string(reinterpret_cast<const char*>(own.data()), own.size()));
  Table read;
  cereal::PortableBinaryInputArchive archive(text);
  archive(read);
  expect_equal(read, table);
}

// Any byte may be forged: an error that names the sender or some table, never a crash, and no
// memory for what is not there.
TEST(Cereal, SurvivesEveryForgedByte) {
  const ObjectBytes bytes = bytes_of(make_table(2));
  int refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const unsigned flip : {0x01u, 0x80u, 0xffu}) {
      ObjectBytes forged = bytes;
      forged[i] ^= static_cast<std::byte>(flip);
      try {
        decode(forged);
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.rank(), 4) << error.what();
        EXPECT_NE(error.code(), ErrorCode::kOutOfResources) << error.what();
      }
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(Cereal, ServesEveryTypedCall) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const CerealSerializer<Table> serializer;
    const auto all = all_gather_values(comm, make_table(comm.rank()), {}, serializer);
    ASSERT_EQ(all.size(), 3u);
    for (int r = 0; r < 3; ++r) expect_equal(all[static_cast<std::size_t>(r)], make_table(r));
    Table table = make_table(comm.rank());
    broadcast_value(comm, table, 1, {}, serializer);
    expect_equal(table, make_table(1));
    const std::vector<std::map<std::string, std::vector<double>>> mine{table.columns};
    const CerealSerializer<std::map<std::string, std::vector<double>>> maps;
    EXPECT_EQ(all_gather_list(comm, mine, {}, maps).size(), 3u);
  });
}

}  // namespace
}  // namespace unisono::test
