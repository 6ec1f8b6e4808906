#include "native/transfer.h"

#include <algorithm>

#include "base/collective.h"
#include "base/traffic_count.h"

namespace unisono::native {
namespace {

struct Context {
  const Call& call;
  int size;
  int self;
  std::size_t bytes;  // of `count` elements

  bool is_root() const { return self == call.root; }
  MemberRange all() const { return {0, size}; }
  MemberRange only_root() const { return {call.root, call.root + 1}; }
  Blocks equal_blocks() const { return {.bytes = bytes, .stride = bytes}; }
  Blocks in_blocks() const {
    return {.element_bytes = size_of(call.type), .uneven = input_counts(call)};
  }
  Blocks out_blocks() const {
    return {.element_bytes = size_of(call.type), .uneven = output_counts(call)};
  }
  /// One input of `bytes` for every reader.
  void give_whole(Transfer* transfer, std::size_t input_bytes) const {
    transfer->input_bytes = transfer->agreed_bytes = input_bytes;
  }
  void give_parts(Transfer* transfer, const Blocks& blocks) const {
    transfer->in_parts = true;
    transfer->give = blocks;
    transfer->input_bytes = blocks.extent(size);
  }
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

void combine_all(const Context& context, Transfer* transfer) {
  context.give_whole(transfer, context.bytes);
  transfer->combines = transfer->shares_combining = true;
  transfer->take.bytes = context.bytes;
}

void broadcast(const Context& context, Transfer* transfer) {
  transfer->agreed_bytes = context.bytes;
  if (context.is_root()) transfer->input_bytes = context.bytes;
  transfer->take.bytes = context.bytes;
}

void gather(const Context& context, Transfer* transfer) {
  context.give_whole(transfer, context.bytes);
  transfer->take = context.equal_blocks();
}

void scatter(const Context& context, Transfer* transfer) {
  transfer->in_parts = true;
  if (context.is_root()) context.give_parts(transfer, context.equal_blocks());
  transfer->agreed_bytes = context.bytes * static_cast<std::size_t>(context.size);
  transfer->source_offset = context.bytes * static_cast<std::size_t>(context.self);
  transfer->take.bytes = context.bytes;
}

void gather_v(const Context& context, Transfer* transfer, std::size_t input_bytes) {
  context.give_whole(transfer, input_bytes);
  transfer->agreed_bytes = kNotAgreed;
  if (!transfer->sources.has(context.self)) return;
  transfer->take = context.out_blocks();
}

void scatter_v(const Context& context, Transfer* transfer) {
  transfer->in_parts = true;
  if (context.is_root()) context.give_parts(transfer, context.in_blocks());
  transfer->agreed_bytes = kNotAgreed;
  transfer->take.bytes = context.bytes;
}

void exchange(const Context& context, Transfer* transfer) {
  context.give_parts(transfer, context.equal_blocks());
  transfer->agreed_bytes = transfer->input_bytes;
  transfer->source_offset = context.bytes * static_cast<std::size_t>(context.self);
  transfer->take = context.equal_blocks();
}

void exchange_v(const Context& context, Transfer* transfer) {
  context.give_parts(transfer, context.in_blocks());
  transfer->agreed_bytes = kNotAgreed;
  transfer->take = context.out_blocks();
}

void reduce_scatter(const Context& context, Transfer* transfer, const Blocks& blocks) {
  context.give_parts(transfer, blocks);
  transfer->agreed_bytes = transfer->input_bytes;
  transfer->combines = true;
  const Block own = blocks.at(context.self);
  transfer->source_offset = own.offset;
  transfer->take.bytes = own.bytes;
}

void prefix(const Context& context, Transfer* transfer) {
  context.give_whole(transfer, context.bytes);
  transfer->combines = true;
  transfer->take.bytes = context.bytes;
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
  const Context context{call, size, self, call.count * size_of(call.type)};
  const Flow flow = facts_of(call.collective).flow;
  transfer.sources = sources_of(context, flow);
  transfer.readers = readers_of(context, flow);
  switch (call.collective) {
    case Collective::kAllReduce:
      combine_all(context, &transfer);
      break;
    case Collective::kReduce:
      combine_all(context, &transfer);
      break;
    case Collective::kBroadcast:
      broadcast(context, &transfer);
      break;
    case Collective::kAllGather:
      gather(context, &transfer);
      break;
    case Collective::kAllGatherV:
      gather_v(context, &transfer, context.out_blocks().at(self).bytes);
      break;
    case Collective::kGather:
      gather(context, &transfer);
      break;
    case Collective::kGatherV:
      gather_v(context, &transfer, context.bytes);
      break;
    case Collective::kScatter:
      scatter(context, &transfer);
      break;
    case Collective::kScatterV:
      scatter_v(context, &transfer);
      break;
    case Collective::kAllToAll:
      exchange(context, &transfer);
      break;
    case Collective::kAllToAllV:
      exchange_v(context, &transfer);
      break;
    case Collective::kReduceScatter:
      reduce_scatter(context, &transfer, context.equal_blocks());
      break;
    case Collective::kReduceScatterV:
      reduce_scatter(context, &transfer, context.in_blocks());
      transfer.agreed_bytes = kNotAgreed;
      break;
    case Collective::kScan:
    case Collective::kExscan:
      prefix(context, &transfer);
      break;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      break;
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
