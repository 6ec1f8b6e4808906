#include "base/call_record.h"

#include "base/collective.h"

namespace unisono {
namespace {

template <typename Enum>
std::string name_or_number(std::uint8_t value, int limit) {
  if (value >= limit) return "unknown " + std::to_string(value);
  return std::string(name_of(static_cast<Enum>(value)));
}

std::string hint_text(std::uint8_t algorithm) {
  switch (algorithm) {
    case kRecordSelected:
      return "";
    case kRecordOnDevice:
      return ", device memory";
    case kRecordUnknownAlgorithm:
      return ", unknown algorithm";
    case kRecordNative:
      return ", algorithm native";
    default:
      return ", algorithm " + std::to_string(algorithm - 1);
  }
}

}  // namespace

std::string describe(const CallRecord& record) {
  std::string text = name_or_number<Collective>(record.collective, kCollectiveCount) + "(";
  const auto collective = static_cast<Collective>(record.collective);
  if (is_known(collective) && !facts_of(collective).has_buffers()) return text + ")";
  text += "count " + std::to_string(record.count);
  text += ", " + name_or_number<DataType>(record.type, kDataTypeCount);
  if (reduces(collective)) {
    const int kind = record.op & ~kRecordFlags;
    text += ", " + name_or_number<OpKind>(static_cast<std::uint8_t>(kind), kOpKindCount);
    if ((record.op & kRecordCanonical) != 0) text += ", canonical";
    if ((record.op & kRecordExact) != 0) text += ", exact";
    if ((record.op & kRecordNotCommutative) != 0) text += ", not commutative";
  }
  if (record.root >= 0) text += ", root " + std::to_string(record.root);
  if ((record.op & kRecordPart) != 0) {
    text += ", part of a longer call on device memory (give a stream with host memory, too)";
  }
  return text + hint_text(record.algorithm) + ")";
}

std::string describe(const CallRecord& record, std::uint64_t operation) {
  return describe(record) + " (operation " + std::to_string(operation) + ")";
}

}  // namespace unisono
