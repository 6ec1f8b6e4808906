// Cuts a run of chunks into the messages that pipeline it, the same way on both sides of a channel.
// Pure; safe from any thread.
#pragma once

#include "plan/plan.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {

/// Calls fn(run) for `parts` equal runs of `range`, which holds parts * k chunks. A run of k whole
/// blocks of `parts` chunks becomes `parts` messages of k chunks.
template <typename Function>
void for_each_part(const plan::ChunkRange& range, int parts, Function&& fn) {
  const auto length = range.count / static_cast<std::uint32_t>(parts);
  for (int i = 0; i < parts; ++i)
    fn(plan::part(range, static_cast<std::uint32_t>(i) * length, length));
}

inline void send_parts(plan::PlanBuilder& builder, Rank peer, const plan::ChunkRange& source,
                       int parts) {
  for_each_part(source, parts, [&](const plan::ChunkRange& run) { builder.send(peer, run); });
}

inline void receive_parts(plan::PlanBuilder& builder, Rank peer, const plan::ChunkRange& target,
                          int parts) {
  for_each_part(target, parts, [&](const plan::ChunkRange& run) { builder.receive(peer, run); });
}

/// target = source (op) message, part by part; both ranges have the same number of chunks.
inline void receive_reduce_parts(plan::PlanBuilder& builder, Rank peer,
                                 const plan::ChunkRange& target, const plan::ChunkRange& source,
                                 bool remote_first, int parts) {
  for_each_part(target, parts, [&](const plan::ChunkRange& run) {
    builder.receive_reduce(peer, run, plan::part(source, run.first - target.first, run.count),
                           remote_first);
  });
}

}  // namespace unisono::algorithms
