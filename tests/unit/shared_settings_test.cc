// What ranks hear whose settings differ: which rank, which setting, and of a selection table which
// row.
#include "comm/shared_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/clock.h"
#include "rendezvous/sessions/rendezvous.h"

namespace unisono::test {
namespace {

using algorithms::SelectionTable;
using testing::AllOf;
using testing::HasSubstr;

const std::string kRing = "all_reduce any 1 any any 1024 ring - 0\n";
const std::string kDirect = "reduce_scatter tcp 1 any own any direct - 0\n";

std::string settings_of(const std::string& table, const Config& config = {}) {
  const Result<SelectionTable> read = SelectionTable::from_text(table);
  EXPECT_TRUE(read) << read.status().message();
  return shared_settings(config, read ? *read : SelectionTable::defaults());
}

Member member_with(Rank rank, std::string settings) {
  Member member;
  member.rank = rank;
  member.settings = std::move(settings);
  return member;
}

// What rank 1 is told, rank 0 having come before it.
Status rendezvous_of(const std::string& first, const std::string& second) {
  rendezvous::Rendezvous rendezvous(2, TimePoint());
  EXPECT_TRUE(rendezvous.admit(member_with(0, first), 2));
  return rendezvous.admit(member_with(1, second), 2);
}

std::string complaint_about(const std::string& first, const std::string& second) {
  return rendezvous_of(settings_of(first), settings_of(second)).message();
}

TEST(SharedSettings, AreAlikeWhereTablesSayTheSame) {
  EXPECT_TRUE(rendezvous_of(settings_of(kRing + kDirect),
                            settings_of("# another comment\n\n" + kRing + "\n  " + kDirect)));
}

TEST(SharedSettings, NameTheVariableThatDiffers) {
  Config tcp;
  tcp.transport = "tcp";
  EXPECT_THAT(
      rendezvous_of(settings_of(""), settings_of("", tcp)).message(),
      HasSubstr("differ in UNISONO_TRANSPORT, which all ranks must share: 'auto' and 'tcp'"));
}

TEST(SharedSettings, AreThoseThatWhatIsMeasuredRestsOn) {
  Config blind;
  blind.measure = false;
  EXPECT_THAT(rendezvous_of(settings_of(""), settings_of("", blind)).message(),
              HasSubstr("differ in UNISONO_MEASURE, which all ranks must share: 'on' and 'off'"));
}

TEST(SharedSettings, AreThoseByWhichRanksAreGrouped) {
  Config pairs;
  pairs.levels = {LevelsBy::kCount, 2};
  EXPECT_THAT(rendezvous_of(settings_of(""), settings_of("", pairs)).message(),
              HasSubstr("differ in UNISONO_LEVELS, which all ranks must share: 'auto' and '2'"));
}

TEST(SharedSettings, AreThoseThatSayWhatFramesCarry) {
  Config summed;
  summed.checksum = true;
  EXPECT_THAT(rendezvous_of(settings_of(""), settings_of("", summed)).message(),
              HasSubstr("differ in UNISONO_CHECKSUM, which all ranks must share: 'off' and 'on'"));
}

TEST(SharedSettings, NameTheRowOfTheTableAndBothRanks) {
  const std::string other = "reduce_scatter tcp 1 any own any ring - 0\n";
  EXPECT_THAT(complaint_about(kRing + kDirect, kRing + other),
              AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                    HasSubstr("differ in UNISONO_TUNING row 2, which all ranks must share: "
                              "'reduce_scatter tcp 1 any own any direct - 0' and "
                              "'reduce_scatter tcp 1 any own any ring - 0'")));
}

TEST(SharedSettings, SayThatOneTableHasRowsThatTheOtherLacks) {
  EXPECT_THAT(complaint_about("", kRing),
              HasSubstr("UNISONO_TUNING row 1, which all ranks must share: 'none' and "
                        "'all_reduce any 1 any any 1024 ring - 0'"));
  EXPECT_THAT(complaint_about(kRing + kDirect, kRing),
              AllOf(HasSubstr("UNISONO_TUNING row 2"), HasSubstr("and 'none'")));
}

// A table may have 4,096 rows; a rank may tell 16 KiB.
TEST(SharedSettings, OfALongTableAreShortAndStillDiffer) {
  std::string rows;
  for (int i = 0; i < 4000; ++i) rows += kRing;
  const std::string settings = settings_of(rows + kRing);
  EXPECT_LT(settings.size(), std::size_t{16} << 10);
  EXPECT_THAT(complaint_about(rows + kRing, rows + kDirect),
              HasSubstr("UNISONO_TUNING rows that are not shown"));
}

}  // namespace
}  // namespace unisono::test
