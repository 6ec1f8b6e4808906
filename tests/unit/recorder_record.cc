#include "tests/unit/recorder_record.h"

namespace unisono::recorder::test {

RankRecord RecordingRank::read() const {
  const Result<RankRecord> record = parse_record(memory, memory, "record");
  return record ? *record : RankRecord{.name = record.error().message()};
}

CallRecord all_reduce_of(std::uint64_t count) {
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(Collective::kAllReduce);
  record.type = static_cast<std::uint8_t>(DataType::kFloat32);
  record.root = -1;
  record.count = count;
  return record;
}

Operation all_reduce(std::uint64_t sequence, std::uint64_t count) {
  return {.record = all_reduce_of(count), .sequence = sequence};
}

Operation message(Collective collective, int peer) {
  Operation operation{.record = all_reduce_of(4), .peer = peer, .tag = 7};
  operation.record.collective = static_cast<std::uint8_t>(collective);
  return operation;
}

}  // namespace unisono::recorder::test
