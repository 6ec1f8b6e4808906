#include "native/transfer.h"

#include <algorithm>

#include "base/collective.h"
#include "base/traffic_count.h"

namespace unisono::native {
namespace {

struct Context {
  const Call& call;
  const CollectiveFacts& facts;
  int size;
  int self;
  std::size_t bytes;  // of `count` elements

  bool is_root() const { return self == call.root; }
  MemberRange all() const { return {0, size}; }
  MemberRange only_root() const { return {call.root, call.root + 1}; }
  // One block of each rank, or for each, where `counts` say or one length holds for all.
  Blocks blocks(const BlockCounts& counts) const {
    return facts.is_uneven ? Blocks{.element_bytes = size_of(call.type), .uneven = counts}
                           : Blocks{.bytes = bytes, .stride = bytes};
  }
  Blocks in_blocks() const { return blocks(input_counts(call)); }
  Blocks out_blocks() const { return blocks(output_counts(call)); }
};

// Whom a rank needs, and who needs it.
MemberRange sources_of(const Context& context, Flow flow) {
  switch (flow) {
    case Flow::kAllToAll:
      return context.all();
    case Flow::kAllToRoot:
      return context.is_root() ? context.all() : MemberRange{};
    case Flow::kRootToAll:
      return context.only_root();
    case Flow::kUpToOwn:
      return {0, context.self + 1};
    case Flow::kBelowOwn:
      return {0, context.self};
    case Flow::kNone:
    case Flow::kBetweenTwo:
      return {};
  }
  return {};
}

MemberRange readers_of(const Context& context, Flow flow) {
  switch (flow) {
    case Flow::kAllToAll:
      return context.all();
    case Flow::kAllToRoot:
      return context.only_root();
    case Flow::kRootToAll:
      return context.is_root() ? context.all() : MemberRange{};
    case Flow::kUpToOwn:
      return {context.self, context.size};
    case Flow::kBelowOwn:
      return {context.self + 1, context.size};
    case Flow::kNone:
    case Flow::kBetweenTwo:
      return {};
  }
  return {};
}

// What this rank gives: one vector or block to every reader, or to each reader its own block.
void give(const Context& context, Transfer* transfer) {
  const CollectiveFacts& facts = context.facts;
  transfer->in_parts = facts.input.holds == Holds::kBlocks;
  transfer->largest_input_bytes = facts.is_uneven ? kNotAgreed
                                  : transfer->in_parts
                                      ? context.bytes * static_cast<std::size_t>(context.size)
                                      : context.bytes;
  if (transfer->in_parts && facts.has_agreed_lengths()) {
    transfer->source_offset = context.in_blocks().at(context.self).offset;
  }
  if (!facts.input.is_at(context.self, context.call.root)) return;
  if (transfer->in_parts) {
    transfer->give = context.in_blocks();
    transfer->input_bytes = transfer->give.extent(context.size);
  } else {
    transfer->input_bytes =
        facts.all_give_counts() ? context.out_blocks().at(context.self).bytes : context.bytes;
  }
}

// What this rank takes of each source: a block of each, or as much as its output holds.
void take(const Context& context, Transfer* transfer) {
  const CollectiveFacts& facts = context.facts;
  transfer->combines = facts.reduces;
  transfer->shares_combining = shares_combining(facts);
  if (facts.output.holds != Holds::kBlocks) {
    transfer->take.bytes =
        facts.all_give_counts() ? context.in_blocks().at(context.self).bytes : context.bytes;
  } else if (transfer->sources.has(context.self)) {
    transfer->take = context.out_blocks();
  }
}

}  // namespace

Block Blocks::irregular(std::size_t index) const {
  return {uneven.begin(index) * element_bytes, uneven.counts[index] * element_bytes};
}

std::size_t Blocks::extent(int members) const {
  if (uneven.counts.empty()) return static_cast<std::size_t>(members) * stride;
  std::size_t end = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < uneven.counts.size(); ++i) {
    next = uneven.begin(i, next) + uneven.counts[i];
    if (uneven.counts[i] > 0) end = std::max(end, next);
  }
  return end * element_bytes;
}

Transfer transfer_of(const Call& call, int size, int self) {
  Transfer transfer;
  transfer.input = static_cast<const std::byte*>(call.in);
  transfer.output = static_cast<std::byte*>(call.out);
  const CollectiveFacts& facts = facts_of(call.collective);
  const Context context{call, facts, size, self, call.count * size_of(call.type)};
  transfer.sources = sources_of(context, facts.flow);
  transfer.readers = readers_of(context, facts.flow);
  transfer.goes_one_way = goes_one_way(facts);
  if (facts.is_collective() && facts.has_buffers()) {
    give(context, &transfer);
    take(context, &transfer);
  }
  return transfer;
}

void count_transfer(const Transfer& transfer, int self, Collective collective, std::uint64_t times,
                    TrafficReport* report) {
  for (int reader = transfer.readers.first; reader < transfer.readers.last; ++reader) {
    if (reader == self) continue;
    count_sent(collective, reader,
               transfer.in_parts ? transfer.give.at(reader).bytes : transfer.input_bytes, report,
               times);
  }
  for (int source = transfer.sources.first; source < transfer.sources.last; ++source) {
    if (source == self) continue;
    count_received(collective, source, transfer.take.at(source).bytes, report, times);
  }
}

}  // namespace unisono::native
