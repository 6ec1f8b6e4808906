#include "backend/plan_cache.h"

#include <algorithm>

#include "backend/call_check.h"

namespace unisono {
namespace {

using plan::BufferLayout;

// The layouts of a call's buffers, cut as the plan wants them.
struct Layouts {
  BufferLayout input;
  BufferLayout output;
};

Layouts layouts_of(const Call& call, const plan::Plan& plan, int chunks, Rank rank, int size) {
  const std::size_t bytes = size_of(call.type);
  const auto n = static_cast<std::size_t>(size);
  const auto one = [&](std::size_t count, int blocks) {
    return BufferLayout::contiguous(blocks == 0 ? 0 : count, bytes, blocks, chunks);
  };
  const auto placed = [&](const BlockCounts& blocks) {
    std::vector<std::size_t> begins;
    std::size_t next = 0;
    for (const std::size_t count : blocks.counts) {
      begins.push_back(blocks.begin(begins.size(), next));
      next = begins.back() + count;
    }
    return BufferLayout::with_blocks(blocks.counts, begins, bytes, chunks);
  };
  const CollectiveFacts& facts = facts_of(call.collective);
  const auto side = [&](const BufferFacts& buffer, const BlockCounts& blocks, int plan_blocks) {
    if (!buffer.is_at(rank, call.root)) return one(0, plan_blocks);
    if (buffer.holds == Holds::kBlocks) {
      return facts.is_uneven ? placed(blocks) : one(call.count * n, plan_blocks);
    }
    if (buffer.holds != Holds::kBlock || !facts.all_give_counts()) {
      return one(call.count, plan_blocks);
    }
    const BlockCounts& of_all = &buffer == &facts.input ? output_counts(call) : input_counts(call);
    return one(of_all.counts[static_cast<std::size_t>(rank)], plan_blocks);
  };
  return {side(facts.input, input_counts(call), plan.input_blocks),
          side(facts.output, output_counts(call), plan.output_blocks)};
}

}  // namespace

void PlanCache::make_key(const Call& call, const algorithms::Algorithm& algorithm, int chunks,
                         bool in_place) {
  key_.clear();
  key_.push_back(reinterpret_cast<std::uintptr_t>(&algorithm));
  key_.push_back(static_cast<std::uint64_t>(call.type) | static_cast<std::uint64_t>(in_place) << 8 |
                 static_cast<std::uint64_t>(call.options.order) << 16 |
                 static_cast<std::uint64_t>(call.op.kind != OpKind::kUser || call.op.commutative)
                     << 24 |
                 static_cast<std::uint64_t>(chunks) << 32);
  key_.push_back(static_cast<std::uint64_t>(call.root));
  key_.push_back(call.count);
  for (const auto list :
       {call.in_counts, call.in_displacements, call.out_counts, call.out_displacements}) {
    key_.push_back(list.size());
    key_.insert(key_.end(), list.begin(), list.end());
  }
}

PlanCache::Entry& PlanCache::get(const Call& call, const algorithms::Algorithm& algorithm,
                                 int chunks, bool in_place, Rank rank, int size) {
  make_key(call, algorithm, chunks, in_place);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const std::unique_ptr<Entry>& entry) { return entry->key == key_; });
  if (found != entries_.end()) {
    (*found)->last_use = ++uses_;
    return **found;
  }
  if (entries_.size() >= kEntriesMax) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return std::pair(a->in_use > 0, a->last_use) < std::pair(b->in_use > 0, b->last_use);
        });
    if ((*oldest)->in_use == 0) entries_.erase(oldest);
  }
  plan::PlanRequest request;
  request.collective = call.collective;
  request.ranks = size;
  request.rank = rank;
  request.root = is_rooted(call.collective) ? call.root : 0;
  request.chunks = chunks;
  request.in_place = in_place;
  request.commutative = call.op.kind != OpKind::kUser || call.op.commutative;
  request.order = call.options.order;
  plan::Plan plan = algorithm.build(request);
  Layouts layouts = layouts_of(call, plan, chunks, rank, size);
  auto entry = std::make_unique<Entry>();
  entry->key = key_;
  entry->last_use = ++uses_;
  entry->plan =
      PreparedPlan::make(std::move(plan), std::move(layouts.input), std::move(layouts.output));
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

}  // namespace unisono
