// The calls of a communicator. Each collective has six forms: untyped (pointers, a count of
// elements and their type), typed (two buffers of one element type) and typed in place (one
// buffer), each blocking and, as NAME_async, returning a Request. A collective that takes counts
// calls its in-place form NAME_in_place, because counts could be taken for a buffer. Three have
// fewer forms: barrier has no buffers, broadcast has one, and all_to_all_v is never in place.
//
// A typed buffer is anything laid out like an array; NAME_async takes no temporary one. The lengths
// of typed buffers give the counts, and a buffer that is too short is kInvalidArgument. The buffer
// of an in-place form is the larger of the call's two: this rank's block lies in it where the
// in-place rule says. Where only the root has all blocks, any other rank's buffer is its own block.
//
// Lending, ordering, threads, errors and device memory: unisono/communicator.h.
#pragma once

#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

#include "unisono/call.h"
#include "unisono/export.h"
#include "unisono/options.h"
#include "unisono/request.h"
#include "unisono/types.h"

namespace unisono {

namespace detail {
class CommunicatorState;

/// Both buffers have the call's count on every rank. Of a reduce only the root has an output.
constexpr bool has_equal_buffers(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kBroadcast ||
         collective == Collective::kScan || collective == Collective::kExscan;
}
}  // namespace detail

class UNISONO_API Collectives {
 public:
  /// Elements by rank, or where each rank's block begins.
  using Counts = std::span<const std::size_t>;

  Rank rank() const;  ///< -1 when empty
  int size() const;   ///< 0 when empty

  // ---- The generic form ---------------------------------------------------------------------
  /// Makes the call, which may be of any kind, and returns once it is over.
  void run(const Call& call);
  /// The same without waiting: the call may use its buffers until the Request is finished. What
  /// cannot begin throws here, what fails later is the Request's outcome.
  Request start(const Call& call);

  // ---- Collectives ---------------------------------------------------------------------------

  /// out[i] = op over all ranks' in[i], the same bits on every rank. `count` elements in and out.
  /// In place: in == out.
  void all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& options = {}) {
    run(even(Collective::kAllReduce, in, out, count, type, op, 0, options));
  }
  template <Buffer In, Buffer Out>
  void all_reduce(const In& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kAllReduce, op, 0, options), in, out));
  }
  template <Buffer InOut>
  void all_reduce(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kAllReduce, op, 0, options), data));
  }
  Request all_reduce_async(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                           const CallOptions& options = {}) {
    return start(even(Collective::kAllReduce, in, out, count, type, op, 0, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request all_reduce_async(In&& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kAllReduce, op, 0, options), in, out));
  }
  template <LentBuffer InOut>
  Request all_reduce_async(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kAllReduce, op, 0, options), data));
  }

  /// Like all_reduce, but only `root` gets the result; `out` of the others is not touched and may
  /// be null or empty. In place: in == out at root.
  void reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op, Rank root,
              const CallOptions& options = {}) {
    run(even(Collective::kReduce, in, out, count, type, op, root, options));
  }
  template <Buffer In, Buffer Out>
  void reduce(const In& in, Out&& out, ReduceOp op, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kReduce, op, root, options), in, out));
  }
  template <Buffer InOut>
  void reduce(InOut&& data, ReduceOp op, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kReduce, op, root, options), data));
  }
  Request reduce_async(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                       Rank root, const CallOptions& options = {}) {
    return start(even(Collective::kReduce, in, out, count, type, op, root, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request reduce_async(In&& in, Out&& out, ReduceOp op, Rank root,
                       const CallOptions& options = {}) {
    return start(typed(even(Collective::kReduce, op, root, options), in, out));
  }
  template <LentBuffer InOut>
  Request reduce_async(InOut&& data, ReduceOp op, Rank root, const CallOptions& options = {}) {
    return start(typed(even(Collective::kReduce, op, root, options), data));
  }

  /// `count` elements of root's `data` to everyone's `data`.
  void broadcast(void* data, std::size_t count, DataType type, Rank root,
                 const CallOptions& options = {}) {
    run(even(Collective::kBroadcast, data, data, count, type, {}, root, options));
  }
  template <Buffer InOut>
  void broadcast(InOut&& data, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kBroadcast, {}, root, options), data));
  }
  Request broadcast_async(void* data, std::size_t count, DataType type, Rank root,
                          const CallOptions& options = {}) {
    return start(even(Collective::kBroadcast, data, data, count, type, {}, root, options));
  }
  template <LentBuffer InOut>
  Request broadcast_async(InOut&& data, Rank root, const CallOptions& options = {}) {
    return start(typed(even(Collective::kBroadcast, {}, root, options), data));
  }

  /// out[r * count .. + count) = rank r's in. `count` elements per rank; out holds size() *
  /// count. In place: in == out + rank() * count.
  void all_gather(const void* in, void* out, std::size_t count, DataType type,
                  const CallOptions& options = {}) {
    run(even(Collective::kAllGather, in, out, count, type, {}, 0, options));
  }
  template <Buffer In, Buffer Out>
  void all_gather(const In& in, Out&& out, const CallOptions& options = {}) {
    run(typed(even(Collective::kAllGather, {}, 0, options), in, out));
  }
  template <Buffer InOut>
  void all_gather(InOut&& data, const CallOptions& options = {}) {
    run(typed(even(Collective::kAllGather, {}, 0, options), data));
  }
  Request all_gather_async(const void* in, void* out, std::size_t count, DataType type,
                           const CallOptions& options = {}) {
    return start(even(Collective::kAllGather, in, out, count, type, {}, 0, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request all_gather_async(In&& in, Out&& out, const CallOptions& options = {}) {
    return start(typed(even(Collective::kAllGather, {}, 0, options), in, out));
  }
  template <LentBuffer InOut>
  Request all_gather_async(InOut&& data, const CallOptions& options = {}) {
    return start(typed(even(Collective::kAllGather, {}, 0, options), data));
  }

  /// Rank r contributes counts[r] elements, which land at out + displacements[r]. `counts` and
  /// `displacements` have size() entries; counts agree on all ranks. Without displacements the
  /// blocks lie end to end. Blocks that overlap in `out` are an error, in every call. In place:
  /// in == out + displacements[rank()].
  void all_gather_v(const void* in, void* out, Counts counts, Counts displacements, DataType type,
                    const CallOptions& options = {}) {
    run(uneven(even(Collective::kAllGatherV, in, out, 0, type, {}, 0, options), {}, {}, counts,
               displacements));
  }
  template <Buffer In, Buffer Out>
  void all_gather_v(const In& in, Out&& out, Counts counts, Counts displacements,
                    const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kAllGatherV, {}, 0, options), {}, {}, counts, displacements),
              in, out));
  }
  template <Buffer InOut>
  void all_gather_v_in_place(InOut&& data, Counts counts, Counts displacements,
                             const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kAllGatherV, {}, 0, options), {}, {}, counts, displacements),
              data));
  }
  Request all_gather_v_async(const void* in, void* out, Counts counts, Counts displacements,
                             DataType type, const CallOptions& options = {}) {
    return start(uneven(even(Collective::kAllGatherV, in, out, 0, type, {}, 0, options), {}, {},
                        counts, displacements));
  }
  template <LentBuffer In, LentBuffer Out>
  Request all_gather_v_async(In&& in, Out&& out, Counts counts, Counts displacements,
                             const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kAllGatherV, {}, 0, options), {}, {}, counts, displacements),
              in, out));
  }
  template <LentBuffer InOut>
  Request all_gather_v_in_place_async(InOut&& data, Counts counts, Counts displacements,
                                      const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kAllGatherV, {}, 0, options), {}, {}, counts, displacements),
              data));
  }

  /// out = the op over all ranks' block rank(): `count` elements per block, in holds
  /// size() * count. In place: out == in + rank() * count.
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                      const CallOptions& options = {}) {
    run(even(Collective::kReduceScatter, in, out, count, type, op, 0, options));
  }
  template <Buffer In, Buffer Out>
  void reduce_scatter(const In& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kReduceScatter, op, 0, options), in, out));
  }
  template <Buffer InOut>
  void reduce_scatter(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kReduceScatter, op, 0, options), data));
  }
  Request reduce_scatter_async(const void* in, void* out, std::size_t count, DataType type,
                               ReduceOp op, const CallOptions& options = {}) {
    return start(even(Collective::kReduceScatter, in, out, count, type, op, 0, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request reduce_scatter_async(In&& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kReduceScatter, op, 0, options), in, out));
  }
  template <LentBuffer InOut>
  Request reduce_scatter_async(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kReduceScatter, op, 0, options), data));
  }

  /// Block r has counts[r] elements (agreed); blocks lie end to end in `in`. In place: out == the
  /// rank's own block of in.
  void reduce_scatter_v(const void* in, void* out, Counts counts, DataType type, ReduceOp op,
                        const CallOptions& options = {}) {
    run(uneven(even(Collective::kReduceScatterV, in, out, 0, type, op, 0, options), counts, {}, {},
               {}));
  }
  template <Buffer In, Buffer Out>
  void reduce_scatter_v(const In& in, Out&& out, Counts counts, ReduceOp op,
                        const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kReduceScatterV, op, 0, options), counts, {}, {}, {}), in,
              out));
  }
  template <Buffer InOut>
  void reduce_scatter_v_in_place(InOut&& data, Counts counts, ReduceOp op,
                                 const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kReduceScatterV, op, 0, options), counts, {}, {}, {}), data));
  }
  Request reduce_scatter_v_async(const void* in, void* out, Counts counts, DataType type,
                                 ReduceOp op, const CallOptions& options = {}) {
    return start(uneven(even(Collective::kReduceScatterV, in, out, 0, type, op, 0, options), counts,
                        {}, {}, {}));
  }
  template <LentBuffer In, LentBuffer Out>
  Request reduce_scatter_v_async(In&& in, Out&& out, Counts counts, ReduceOp op,
                                 const CallOptions& options = {}) {
    return start(typed(
        uneven(even(Collective::kReduceScatterV, op, 0, options), counts, {}, {}, {}), in, out));
  }
  template <LentBuffer InOut>
  Request reduce_scatter_v_in_place_async(InOut&& data, Counts counts, ReduceOp op,
                                          const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kReduceScatterV, op, 0, options), counts, {}, {}, {}), data));
  }

  /// root's out[r * count .. + count) = rank r's in. `count` elements per rank; root's out holds
  /// size() * count, that of the others may be null. In place at root: in == out + root * count.
  void gather(const void* in, void* out, std::size_t count, DataType type, Rank root,
              const CallOptions& options = {}) {
    run(even(Collective::kGather, in, out, count, type, {}, root, options));
  }
  template <Buffer In, Buffer Out>
  void gather(const In& in, Out&& out, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kGather, {}, root, options), in, out));
  }
  template <Buffer InOut>
  void gather(InOut&& data, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kGather, {}, root, options), data));
  }
  Request gather_async(const void* in, void* out, std::size_t count, DataType type, Rank root,
                       const CallOptions& options = {}) {
    return start(even(Collective::kGather, in, out, count, type, {}, root, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request gather_async(In&& in, Out&& out, Rank root, const CallOptions& options = {}) {
    return start(typed(even(Collective::kGather, {}, root, options), in, out));
  }
  template <LentBuffer InOut>
  Request gather_async(InOut&& data, Rank root, const CallOptions& options = {}) {
    return start(typed(even(Collective::kGather, {}, root, options), data));
  }

  /// The `count` elements of rank r's `in` go to root's out + displacements[r]. `count`: this
  /// rank's own, of typed buffers the length of `in` (at root counts[root]). At root only:
  /// `counts`, which agree with each rank's, `displacements` (none: end to end) and `out`, which is
  /// null elsewhere or anything. In place at root: in == out + displacements[root].
  void gather_v(const void* in, std::size_t count, void* out, Counts counts, Counts displacements,
                DataType type, Rank root, const CallOptions& options = {}) {
    run(uneven(even(Collective::kGatherV, in, out, count, type, {}, root, options), {}, {}, counts,
               displacements));
  }
  template <Buffer In, Buffer Out>
  void gather_v(const In& in, Out&& out, Counts counts, Counts displacements, Rank root,
                const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kGatherV, {}, root, options), {}, {}, counts, displacements),
              in, out));
  }
  template <Buffer InOut>
  void gather_v_in_place(InOut&& data, Counts counts, Counts displacements, Rank root,
                         const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kGatherV, {}, root, options), {}, {}, counts, displacements),
              data));
  }
  Request gather_v_async(const void* in, std::size_t count, void* out, Counts counts,
                         Counts displacements, DataType type, Rank root,
                         const CallOptions& options = {}) {
    return start(uneven(even(Collective::kGatherV, in, out, count, type, {}, root, options), {}, {},
                        counts, displacements));
  }
  template <LentBuffer In, LentBuffer Out>
  Request gather_v_async(In&& in, Out&& out, Counts counts, Counts displacements, Rank root,
                         const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kGatherV, {}, root, options), {}, {}, counts, displacements),
              in, out));
  }
  template <LentBuffer InOut>
  Request gather_v_in_place_async(InOut&& data, Counts counts, Counts displacements, Rank root,
                                  const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kGatherV, {}, root, options), {}, {}, counts, displacements),
              data));
  }

  /// out = root's in[rank() * count .. + count). `count` elements per rank; root's in holds
  /// size() * count, that of the others may be null. In place at root: out == in + root * count.
  void scatter(const void* in, void* out, std::size_t count, DataType type, Rank root,
               const CallOptions& options = {}) {
    run(even(Collective::kScatter, in, out, count, type, {}, root, options));
  }
  template <Buffer In, Buffer Out>
  void scatter(const In& in, Out&& out, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kScatter, {}, root, options), in, out));
  }
  template <Buffer InOut>
  void scatter(InOut&& data, Rank root, const CallOptions& options = {}) {
    run(typed(even(Collective::kScatter, {}, root, options), data));
  }
  Request scatter_async(const void* in, void* out, std::size_t count, DataType type, Rank root,
                        const CallOptions& options = {}) {
    return start(even(Collective::kScatter, in, out, count, type, {}, root, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request scatter_async(In&& in, Out&& out, Rank root, const CallOptions& options = {}) {
    return start(typed(even(Collective::kScatter, {}, root, options), in, out));
  }
  template <LentBuffer InOut>
  Request scatter_async(InOut&& data, Rank root, const CallOptions& options = {}) {
    return start(typed(even(Collective::kScatter, {}, root, options), data));
  }

  /// The counts[r] elements at root's in + displacements[r] go to rank r's `out`. `count`: this
  /// rank's own, of typed buffers the length of `out` (at root counts[root]). At root only:
  /// `counts`, which agree with each rank's, `displacements` (none: end to end) and `in`, which is
  /// null elsewhere or anything. In place at root: out == in + displacements[root].
  void scatter_v(const void* in, Counts counts, Counts displacements, void* out, std::size_t count,
                 DataType type, Rank root, const CallOptions& options = {}) {
    run(uneven(even(Collective::kScatterV, in, out, count, type, {}, root, options), counts,
               displacements, {}, {}));
  }
  template <Buffer In, Buffer Out>
  void scatter_v(const In& in, Counts counts, Counts displacements, Out&& out, Rank root,
                 const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kScatterV, {}, root, options), counts, displacements, {}, {}),
              in, out));
  }
  template <Buffer InOut>
  void scatter_v_in_place(InOut&& data, Counts counts, Counts displacements, Rank root,
                          const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kScatterV, {}, root, options), counts, displacements, {}, {}),
              data));
  }
  Request scatter_v_async(const void* in, Counts counts, Counts displacements, void* out,
                          std::size_t count, DataType type, Rank root,
                          const CallOptions& options = {}) {
    return start(uneven(even(Collective::kScatterV, in, out, count, type, {}, root, options),
                        counts, displacements, {}, {}));
  }
  template <LentBuffer In, LentBuffer Out>
  Request scatter_v_async(In&& in, Counts counts, Counts displacements, Out&& out, Rank root,
                          const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kScatterV, {}, root, options), counts, displacements, {}, {}),
              in, out));
  }
  template <LentBuffer InOut>
  Request scatter_v_in_place_async(InOut&& data, Counts counts, Counts displacements, Rank root,
                                   const CallOptions& options = {}) {
    return start(
        typed(uneven(even(Collective::kScatterV, {}, root, options), counts, displacements, {}, {}),
              data));
  }

  /// out block s = rank s's in block rank(); `count` elements per block, size() blocks in and
  /// out. In place: in == out.
  void all_to_all(const void* in, void* out, std::size_t count, DataType type,
                  const CallOptions& options = {}) {
    run(even(Collective::kAllToAll, in, out, count, type, {}, 0, options));
  }
  template <Buffer In, Buffer Out>
  void all_to_all(const In& in, Out&& out, const CallOptions& options = {}) {
    run(typed(even(Collective::kAllToAll, {}, 0, options), in, out));
  }
  template <Buffer InOut>
  void all_to_all(InOut&& data, const CallOptions& options = {}) {
    run(typed(even(Collective::kAllToAll, {}, 0, options), data));
  }
  Request all_to_all_async(const void* in, void* out, std::size_t count, DataType type,
                           const CallOptions& options = {}) {
    return start(even(Collective::kAllToAll, in, out, count, type, {}, 0, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request all_to_all_async(In&& in, Out&& out, const CallOptions& options = {}) {
    return start(typed(even(Collective::kAllToAll, {}, 0, options), in, out));
  }
  template <LentBuffer InOut>
  Request all_to_all_async(InOut&& data, const CallOptions& options = {}) {
    return start(typed(even(Collective::kAllToAll, {}, 0, options), data));
  }

  /// To rank r go in_counts[r] elements from in + in_displacements[r]; out_counts[s] come from
  /// rank s to out + out_displacements[s]. Each pair's counts must agree. No in place.
  void all_to_all_v(const void* in, Counts in_counts, Counts in_displacements, void* out,
                    Counts out_counts, Counts out_displacements, DataType type,
                    const CallOptions& options = {}) {
    run(uneven(even(Collective::kAllToAllV, in, out, 0, type, {}, 0, options), in_counts,
               in_displacements, out_counts, out_displacements));
  }
  template <Buffer In, Buffer Out>
  void all_to_all_v(const In& in, Counts in_counts, Counts in_displacements, Out&& out,
                    Counts out_counts, Counts out_displacements, const CallOptions& options = {}) {
    run(typed(uneven(even(Collective::kAllToAllV, {}, 0, options), in_counts, in_displacements,
                     out_counts, out_displacements),
              in, out));
  }
  Request all_to_all_v_async(const void* in, Counts in_counts, Counts in_displacements, void* out,
                             Counts out_counts, Counts out_displacements, DataType type,
                             const CallOptions& options = {}) {
    return start(uneven(even(Collective::kAllToAllV, in, out, 0, type, {}, 0, options), in_counts,
                        in_displacements, out_counts, out_displacements));
  }
  template <LentBuffer In, LentBuffer Out>
  Request all_to_all_v_async(In&& in, Counts in_counts, Counts in_displacements, Out&& out,
                             Counts out_counts, Counts out_displacements,
                             const CallOptions& options = {}) {
    return start(typed(uneven(even(Collective::kAllToAllV, {}, 0, options), in_counts,
                              in_displacements, out_counts, out_displacements),
                       in, out));
  }

  /// Returns when every rank has called it.
  void barrier(const CallOptions& options = {}) { run(even(Collective::kBarrier, {}, 0, options)); }
  Request barrier_async(const CallOptions& options = {}) {
    return start(even(Collective::kBarrier, {}, 0, options));
  }

  /// out = op over ranks 0..rank(). In place: in == out.
  void scan(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
            const CallOptions& options = {}) {
    run(even(Collective::kScan, in, out, count, type, op, 0, options));
  }
  template <Buffer In, Buffer Out>
  void scan(const In& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kScan, op, 0, options), in, out));
  }
  template <Buffer InOut>
  void scan(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kScan, op, 0, options), data));
  }
  Request scan_async(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                     const CallOptions& options = {}) {
    return start(even(Collective::kScan, in, out, count, type, op, 0, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request scan_async(In&& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kScan, op, 0, options), in, out));
  }
  template <LentBuffer InOut>
  Request scan_async(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kScan, op, 0, options), data));
  }

  /// out = op over ranks 0..rank()-1; rank 0's out is not touched. In place: in == out.
  void exscan(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
              const CallOptions& options = {}) {
    run(even(Collective::kExscan, in, out, count, type, op, 0, options));
  }
  template <Buffer In, Buffer Out>
  void exscan(const In& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kExscan, op, 0, options), in, out));
  }
  template <Buffer InOut>
  void exscan(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    run(typed(even(Collective::kExscan, op, 0, options), data));
  }
  Request exscan_async(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                       const CallOptions& options = {}) {
    return start(even(Collective::kExscan, in, out, count, type, op, 0, options));
  }
  template <LentBuffer In, LentBuffer Out>
  Request exscan_async(In&& in, Out&& out, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kExscan, op, 0, options), in, out));
  }
  template <LentBuffer InOut>
  Request exscan_async(InOut&& data, ReduceOp op, const CallOptions& options = {}) {
    return start(typed(even(Collective::kExscan, op, 0, options), data));
  }

  // ---- Counts of arrays, for bindings; kInvalidArgument where one is too short ---------------

  /// Sets the call's count from the lengths of its buffers.
  void size_call(Call* call, std::size_t in_elements, std::size_t out_elements) const;
  /// Makes it an in-place call on the buffer call->out, which has this length.
  void place_call(Call* call, std::size_t elements) const;

 protected:
  Collectives() = default;
  explicit Collectives(std::shared_ptr<detail::CommunicatorState> state);
  Collectives(Collectives&&) noexcept = default;
  Collectives& operator=(Collectives&&) noexcept = default;
  ~Collectives() = default;

  std::shared_ptr<detail::CommunicatorState> state_;

 private:
  static Call even(Collective collective, const void* in, void* out, std::size_t count,
                   DataType type, const ReduceOp& op, Rank root, const CallOptions& options) {
    return {.collective = collective,
            .in = in,
            .out = out,
            .count = count,
            .type = type,
            .op = op,
            .root = root,
            .options = options};
  }
  static Call even(Collective collective, const ReduceOp& op, Rank root,
                   const CallOptions& options) {
    return {.collective = collective, .op = op, .root = root, .options = options};
  }
  static Call uneven(Call call, Counts in_counts, Counts in_displacements, Counts out_counts,
                     Counts out_displacements) {
    call.in_counts = in_counts;
    call.in_displacements = in_displacements;
    call.out_counts = out_counts;
    call.out_displacements = out_displacements;
    return call;
  }
  template <typename In, typename Out>
  Call typed(Call call, const In& in, Out& out) const {
    static_assert(std::is_same_v<ElementOf<In>, ElementOf<Out>>, "in and out differ in type");
    call.in = std::ranges::data(in);
    call.out = std::ranges::data(out);
    call.type = data_type_of<ElementOf<In>>;
    const std::size_t in_elements = std::ranges::size(in), out_elements = std::ranges::size(out);
    if (detail::has_equal_buffers(call.collective) && in_elements == out_elements) {
      call.count = in_elements;
    } else {
      size_call(&call, in_elements, out_elements);
    }
    return call;
  }
  template <typename InOut>
  Call typed(Call call, InOut& data) const {
    call.out = std::ranges::data(data);
    call.type = data_type_of<ElementOf<InOut>>;
    if (detail::has_equal_buffers(call.collective)) {
      call.in = call.out;
      call.count = std::ranges::size(data);
    } else {
      place_call(&call, std::ranges::size(data));
    }
    return call;
  }
};

}  // namespace unisono
