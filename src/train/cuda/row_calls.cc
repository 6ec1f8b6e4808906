// What takes tokens or targets from the host, a number for each row: embeddings and losses.
#include <algorithm>
#include <numeric>

#include "train/cuda/gpu_backend.h"

namespace unisono::train {
namespace {

/// Rows by token, each token's in their order: [begins[k], begins[k + 1]) of `rows` have tokens[k].
struct RowsByToken {
  explicit RowsByToken(std::span<const std::uint32_t> of_rows) : rows(of_rows.size()) {
    std::iota(rows.begin(), rows.end(), 0u);
    std::stable_sort(rows.begin(), rows.end(), [&](std::uint32_t left, std::uint32_t right) {
      return of_rows[left] < of_rows[right];
    });
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const std::uint32_t token = of_rows[rows[n]];
      if (!tokens.empty() && tokens.back() == token) continue;
      tokens.push_back(token);
      begins.push_back(static_cast<std::uint32_t>(n));
    }
    begins.push_back(static_cast<std::uint32_t>(rows.size()));
  }
  std::vector<std::uint32_t> rows, tokens, begins;
};

}  // namespace

void GpuBackend::embed(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                       const float* token_table, const float* position_table, float* y) {
  const Temporary<std::uint32_t> tokens(blocks_, host_tokens.size());
  upload(host_tokens, tokens.get());
  launch(kernels::Embed{shape.rows * shape.features, shape.context, shape.features,
                        shape.vocabulary, tokens.get(), token_table, position_table, y});
}

void GpuBackend::embed_gradient(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                                const float* dy, float* token_gradient, float* position_gradient) {
  if (shape.rows == 0) return;
  const RowsByToken order(host_tokens);
  const std::size_t distinct = order.tokens.size();
  const Temporary<std::uint32_t> tokens(blocks_, distinct), begins(blocks_, distinct + 1),
      rows(blocks_, shape.rows);
  upload(std::span(order.tokens), tokens.get());
  upload(std::span(order.begins), begins.get());
  upload(std::span(order.rows), rows.get());
  launch(kernels::EmbedTokenGradient{distinct * shape.features, shape.rows, shape.features,
                                     shape.vocabulary, tokens.get(), begins.get(), rows.get(), dy,
                                     token_gradient});
  // Positions that no row has are not touched.
  const std::size_t positions = std::min(shape.rows, shape.context);
  launch(kernels::EmbedPositionGradient{positions * shape.features, shape.rows, shape.context,
                                        shape.features, dy, position_gradient});
}

double GpuBackend::total(const double* values, std::size_t count) {
  const kernels::Segments segments = kernels::segments_of(count);
  const Temporary<double> parts(blocks_, segments.count);
  launch(kernels::SegmentSums{segments.count, count, segments.length, values, parts.get()});
  std::vector<double> sums(segments.count);
  download(parts.get(), sums.size() * sizeof(double), sums.data());
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double GpuBackend::cross_entropy(std::span<const std::int32_t> targets, std::size_t classes,
                                 const float* logits, double weight, float* gradient) {
  const std::size_t rows = targets.size();
  if (rows == 0) return 0;
  const Temporary<std::int32_t> classes_of_rows(blocks_, rows);
  const Temporary<double> losses(blocks_, rows), sums(blocks_, rows);
  const Temporary<float> largest(blocks_, rows);
  upload(targets, classes_of_rows.get());
  launch(kernels::RowLoss{rows, classes, classes_of_rows.get(), logits, losses.get(), sums.get(),
                          largest.get()});
  if (gradient != nullptr) {
    launch(kernels::LossGradient{rows * classes, classes, classes_of_rows.get(), logits, sums.get(),
                                 largest.get(), weight, gradient});
  }
  return total(losses.get(), rows);
}

std::size_t GpuBackend::count_correct(std::span<const std::int32_t> targets, std::size_t classes,
                                      const float* logits) {
  const std::size_t rows = targets.size();
  if (rows == 0) return 0;
  const Temporary<std::int32_t> classes_of_rows(blocks_, rows);
  const Temporary<double> hits(blocks_, rows);
  upload(targets, classes_of_rows.get());
  launch(kernels::RowHits{rows, classes, classes_of_rows.get(), logits, hits.get()});
  return static_cast<std::size_t>(total(hits.get(), rows));
}

}  // namespace unisono::train
