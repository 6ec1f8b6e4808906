#include "objects/announcement.h"

#include <algorithm>
#include <optional>

#include "comm/communicator_state.h"
#include "comm/init.h"
#include "objects/guarded.h"

namespace unisono::objects {
namespace {

// "unisobj" and the kind in the lowest byte.
constexpr std::uint64_t kMagic = 0x756e69736f626a00;
constexpr std::uint64_t kKindMask = 0xff;

Status protocol(Rank rank, const std::string& what) {
  return Status(ErrorCode::kProtocol, "rank " + std::to_string(rank) + " announced " + what, rank);
}

Kind kind_of(const Words& words) { return static_cast<Kind>(words[0] & kKindMask); }
Rank root_of(const Words& words) { return static_cast<Rank>(static_cast<std::int64_t>(words[4])); }

std::string call_text(const Words& words) {
  std::string text(name_of(kind_of(words)));
  if (root_of(words) >= 0) text += " with root " + std::to_string(root_of(words));
  if (words[7] >> 1 != 0) text += " of elements of " + std::to_string(words[7] >> 1) + " bytes";
  return text;
}

std::string refusal_text(const Words& words, std::size_t ranks) {
  const std::string detail = std::to_string(words[6]);
  switch (static_cast<Refusal>(words[5])) {
    case Refusal::kBadRoot:
      return "gave root " + std::to_string(root_of(words)) + ", which is not a rank of 0.." +
             std::to_string(ranks - 1);
    case Refusal::kBlobCount:
      return "is the root and gave " + detail + (words[6] == 1 ? " object" : " objects") +
             "; one for each of the " + std::to_string(ranks) + " ranks is needed";
    case Refusal::kNoSink:
      return "receives and gave no callback for the pieces";
    case Refusal::kNoProducer:
      return "gave an empty producer for its object, or bytes beside a producer";
    case Refusal::kNoBytes:
      return "gave null for an object of " + detail + " bytes";
    case Refusal::kAlgorithm:
      return "named an algorithm; an object call is several collectives, leave "
             "ObjectOptions::call.algorithm empty";
    case Refusal::kEncoding:
      return "could not encode its part: its serializer or its range threw";
    case Refusal::kTimeout:
      return "gave a negative time-out; 0 is the communicator's default";
    case Refusal::kNone:
      break;
  }
  return "";
}

// That every rank sent an announcement at all.
Status check_form(std::span<const Words> table) {
  for (std::size_t r = 0; r < table.size(); ++r) {
    const Words& words = table[r];
    const auto rank = static_cast<Rank>(r);
    if ((words[0] & ~kKindMask) != kMagic || name_of(kind_of(words)).empty()) {
      return protocol(rank, "no object call");
    }
    if (words[5] > static_cast<std::uint64_t>(Refusal::kTimeout)) {
      return protocol(rank, "the unknown refusal " + std::to_string(words[5]));
    }
    if (words[2] == 0 || words[3] == 0) return protocol(rank, "a limit or staging of 0 bytes");
    if (is_rooted(kind_of(words)) && words[5] == 0 && words[4] >= table.size()) {
      return protocol(rank, "the root " + std::to_string(root_of(words)) + " without refusing it");
    }
  }
  return Status();
}

// Only the root sends in these: what another rank announced would be counted as part of its object.
bool only_root_sends(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kBroadcastValue || kind == Kind::kScatter ||
         kind == Kind::kScatterValues || kind == Kind::kStreamBroadcast;
}

Status check_refusals(std::span<const Words> table) {
  for (std::size_t r = 0; r < table.size(); ++r) {
    if (table[r][5] == 0) continue;
    return Status(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(r) + " " + refusal_text(table[r], table.size()),
                  static_cast<Rank>(r));
  }
  return Status();
}

Status check_same_call(std::span<const Words> table) {
  for (std::size_t r = 1; r < table.size(); ++r) {
    const Words& words = table[r];
    if (words[0] == table[0][0] && words[4] == table[0][4] && words[7] >> 1 == table[0][7] >> 1) {
      continue;
    }
    return Status(ErrorCode::kMismatch,
                  "rank " + std::to_string(r) + " calls " + call_text(words) +
                      " and rank 0 calls " + call_text(table[0]),
                  static_cast<Rank>(r));
  }
  return Status();
}

std::size_t index_of_least(std::span<const Words> table, std::size_t word) {
  std::size_t least = 0;
  for (std::size_t r = 1; r < table.size(); ++r) {
    if (table[r][word] < table[least][word]) least = r;
  }
  return least;
}

Status check_sizes(std::span<const Words> table) {
  const std::size_t strictest = index_of_least(table, 2);
  const std::uint64_t limit = table[strictest][2];
  std::uint64_t total = 0;
  for (std::size_t r = 0; r < table.size(); ++r) {
    const std::uint64_t bytes = table[r][1];
    const auto rank = static_cast<Rank>(r);
    if (bytes > 0 && only_root_sends(kind_of(table[r])) && rank != root_of(table[r])) {
      return protocol(rank, "an object of " + std::to_string(bytes) + " bytes in " +
                                call_text(table[r]) + ", where only the root sends");
    }
    if (bytes > limit) {
      return Status(ErrorCode::kOutOfResources,
                    "the object of rank " + std::to_string(r) + " has " + std::to_string(bytes) +
                        " bytes; the limit of rank " + std::to_string(strictest) + " is " +
                        std::to_string(limit) +
                        " (ObjectOptions::size_limit or UNISONO_OBJECT_LIMIT, on every rank)",
                    rank);
    }
    if (__builtin_add_overflow(total, bytes, &total)) {
      return protocol(rank, "an object of " + std::to_string(bytes) +
                                " bytes, with which all objects exceed 2^64 bytes");
    }
    const std::uint64_t element_bytes = table[r][7] >> 1;
    if (element_bytes > 1 && bytes % element_bytes != 0) {
      return protocol(rank, "a list of " + std::to_string(bytes) +
                                " bytes, which is no number of elements of " +
                                std::to_string(element_bytes) + " bytes");
    }
  }
  return Status();
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kGather:
      return "gather_objects";
    case Kind::kAllGather:
      return "all_gather_objects";
    case Kind::kBroadcast:
      return "broadcast_object";
    case Kind::kScatter:
      return "scatter_objects";
    case Kind::kStreamGather:
      return "stream_gather_objects";
    case Kind::kStreamAllGather:
      return "stream_all_gather_objects";
    case Kind::kStreamBroadcast:
      return "stream_broadcast_object";
    case Kind::kPlainList:
    case Kind::kFramedList:
      return "all_gather_list";
    case Kind::kGatherValues:
      return "gather_values";
    case Kind::kAllGatherValues:
      return "all_gather_values";
    case Kind::kBroadcastValue:
      return "broadcast_value";
    case Kind::kScatterValues:
      return "scatter_values";
  }
  return "";
}

bool is_rooted(Kind kind) {
  return kind == Kind::kGather || kind == Kind::kGatherValues || kind == Kind::kStreamGather ||
         only_root_sends(kind);
}

Words to_words(const Announcement& a) {
  return {kMagic | static_cast<std::uint64_t>(a.kind),
          a.bytes,
          a.limit,
          a.staging,
          static_cast<std::uint64_t>(static_cast<std::int64_t>(a.root)),
          static_cast<std::uint64_t>(a.refusal),
          a.detail,
          std::uint64_t{a.element_bytes} << 1 | (a.produces ? 1u : 0u)};
}

Result<Agreement> judge(std::span<const Words> table) {
  UNISONO_TRY(check_form(table));
  UNISONO_TRY(check_refusals(table));
  UNISONO_TRY(check_same_call(table));
  UNISONO_TRY(check_sizes(table));
  Agreement agreement;
  for (const Words& words : table) {
    agreement.bytes.push_back(words[1]);
    agreement.any_producer |= (words[7] & 1) != 0;
  }
  agreement.staging = table[index_of_least(table, 3)][3];
  return agreement;
}

Agreement announce(Communicator& communicator, Announcement own, const ObjectOptions& options) {
  const Config& config = CommunicatorAccess::state(communicator)->runtime().config();
  own.limit = options.size_limit != 0 ? options.size_limit : config.object_limit_bytes;
  own.staging = options.staging_bytes != 0 ? options.staging_bytes : config.object_staging_bytes;
  if (own.refusal == Refusal::kNone && !options.call.algorithm.empty()) {
    own.refusal = Refusal::kAlgorithm;
  }
  if (own.refusal == Refusal::kNone && options.call.timeout.count() < 0) {
    own.refusal = Refusal::kTimeout;
  }
  const Words words = to_words(own);
  std::optional<Result<Agreement>> agreement;
  move_guarded(communicator, own.kind, [&] {
    std::vector<Words> table(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(words.data(), table.data(), words.size(), DataType::kUint64,
                            options_of_collectives(options.call));
    agreement = judge(table);
  });
  if (!*agreement) fail(communicator, own.kind, agreement->error());
  return *std::move(*agreement);
}

void check_member(const Communicator& communicator, Kind kind) {
  if (communicator.empty()) {
    throw Error(Status(ErrorCode::kNotMember, "this rank is no member of the communicator"),
                {.host = "", .link = "", .operation = std::string(name_of(kind))});
  }
}

void fail(const Communicator& communicator, Kind kind, Status status) {
  const std::string host = communicator.host_of(status.rank());
  throw Error(std::move(status),
              {.host = host, .link = "", .operation = std::string(name_of(kind))});
}

std::vector<std::uint64_t> exchange_word(Communicator& communicator, Kind kind, std::uint64_t word,
                                         const CallOptions& options) {
  std::vector<std::uint64_t> all;
  move_guarded(communicator, kind, [&] {
    all.resize(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(&word, all.data(), 1, DataType::kUint64, options);
  });
  return all;
}

}  // namespace unisono::objects
