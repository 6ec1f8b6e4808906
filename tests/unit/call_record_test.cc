// The words for a call's record, which came from a peer: every value of it has some.
#include "base/call_record.h"

#include <gtest/gtest.h>

namespace unisono::test {
namespace {

const CallRecord kReduce{.collective = static_cast<std::uint8_t>(Collective::kAllReduce),
                         .type = static_cast<std::uint8_t>(DataType::kFloat32),
                         .root = -1,
                         .count = 1024};

std::string described_with(std::uint8_t algorithm) {
  CallRecord record = kReduce;
  record.algorithm = algorithm;
  return describe(record);
}

TEST(CallRecord, IsDescribedAsTheCallIsWritten) {
  EXPECT_EQ(describe(kReduce), "all_reduce(count 1024, float32, sum)");
  EXPECT_EQ(describe(kReduce, 7), "all_reduce(count 1024, float32, sum) (operation 7)");
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(Collective::kBarrier);
  EXPECT_EQ(describe(record), "barrier()");
}

TEST(CallRecord, NamesTheHintAndWhatIsNoAlgorithmOfTheCatalogue) {
  EXPECT_EQ(described_with(kRecordSelected), describe(kReduce));
  CallRecord part = kReduce;
  part.op |= kRecordPart;
  EXPECT_EQ(describe(part),
            "all_reduce(count 1024, float32, sum, part of a longer call on device memory (give a "
            "stream with host memory, too))");
  EXPECT_EQ(described_with(1), "all_reduce(count 1024, float32, sum, algorithm 0)");
  EXPECT_EQ(described_with(kRecordNative),
            "all_reduce(count 1024, float32, sum, algorithm native)");
  EXPECT_EQ(described_with(kRecordUnknownAlgorithm),
            "all_reduce(count 1024, float32, sum, unknown algorithm)");
  EXPECT_EQ(described_with(kRecordOnDevice), "all_reduce(count 1024, float32, sum, device memory)");
}

TEST(CallRecord, IsDescribedWhateverItsBytes) {
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    const CallRecord record{byte, byte, byte, byte, value, 0, 0, 0};
    EXPECT_FALSE(describe(record).empty());
  }
  CallRecord record;
  record.collective = record.type = 200;
  EXPECT_EQ(describe(record), "unknown 200(count 0, unknown 200, root 0)");
}

}  // namespace
}  // namespace unisono::test
