// Kernels that look at whole rows: layer norm, softmax and losses. An item is a row unless it says
// otherwise. See item.h.
#pragma once

#include <cmath>

#include "train/cuda/kernels/item.h"
#include "train/cuda/kernels/sums.h"
#include "train/model/vector_math.h"

namespace unisono::train::kernels {

// ---- Layer norm ---------------------------------------------------------------------------------

/// moments[2 * row]: mean and inverse deviation.
struct RowMoments {
  std::uint64_t items, features;
  float epsilon;
  const float* x;
  float* moments;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t row) const {
    const float* values = x + row * features;
    const auto n = static_cast<double>(features);
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < features; ++i) sum += static_cast<double>(values[i]);
    const auto mean = static_cast<float>(sum / n);
    for (std::uint64_t i = 0; i < features; ++i) {
      const float distance = values[i] - mean;
      squares += static_cast<double>(distance * distance);
    }
    moments[2 * row] = mean;
    moments[2 * row + 1] =
        static_cast<float>(1 / std::sqrt(squares / n + static_cast<double>(epsilon)));
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items * features);
    visit(moments, 2 * items);
  }
};

/// An item is an element of y.
struct NormaliseRows {
  std::uint64_t items, features;
  const float *x, *moments, *weight, *bias;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [row, at] = split(i, features);
    y[i] = (x[i] - moments[2 * row]) * moments[2 * row + 1] * weight[at] + bias[at];
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(moments, items / features * 2);
    visit(weight, features);
    visit(bias, features);
    visit(y, items);
  }
};

/// levels[2 * row]: the mean of dy * weight, and what x - mean is multiplied by in dx.
struct RowSlopes {
  std::uint64_t items, features;
  const float *x, *dy, *moments, *weight;
  float* levels;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t row) const {
    const float *values = x + row * features, *slopes = dy + row * features;
    const float mean = moments[2 * row], inverse = moments[2 * row + 1];
    const auto n = static_cast<double>(features);
    double level = 0, along = 0;
    for (std::uint64_t i = 0; i < features; ++i) {
      const float slope = slopes[i] * weight[i];
      level += static_cast<double>(slope);
      along += static_cast<double>(slope * (values[i] - mean));
    }
    levels[2 * row] = static_cast<float>(level / n);
    levels[2 * row + 1] = static_cast<float>(along / n) * inverse * inverse;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items * features);
    visit(dy, items * features);
    visit(moments, 2 * items);
    visit(weight, features);
    visit(levels, 2 * items);
  }
};

/// An item is an element of dx.
struct NormaliseRowsGradient {
  std::uint64_t items, features;
  const float *x, *dy, *moments, *levels, *weight;
  float* dx;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [row, at] = split(i, features);
    const float centred = x[i] - moments[2 * row];
    dx[i] = (dy[i] * weight[at] - levels[2 * row] - centred * levels[2 * row + 1]) *
            moments[2 * row + 1];
  }
  template <class Visit>
  void buffers(Visit visit) {
    const std::uint64_t rows = items / features;
    visit(x, items);
    visit(dy, items);
    visit(moments, 2 * rows);
    visit(levels, 2 * rows);
    visit(weight, features);
    visit(dx, items);
  }
};

/// The first stage of the gradients of weight and bias; an item is a column of a segment of rows.
struct NormaliseRowsSums {
  std::uint64_t items, rows, features, length;
  const float *x, *dy, *moments;
  double* parts;  ///< [segments, 2 * features]: of the weight, of the bias
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [segment, column] = split(i, features);
    const std::uint64_t end = least(rows, (segment + 1) * length);
    double weight = 0, bias = 0;
    for (std::uint64_t r = segment * length; r < end; ++r) {
      const std::uint64_t at = r * features + column;
      weight += static_cast<double>(dy[at] * ((x[at] - moments[2 * r]) * moments[2 * r + 1]));
      bias += static_cast<double>(dy[at]);
    }
    parts[2 * segment * features + column] = weight;
    parts[(2 * segment + 1) * features + column] = bias;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, rows * features);
    visit(dy, rows * features);
    visit(moments, 2 * rows);
    visit(parts, 2 * items);
  }
};

// ---- Causal softmax, in place -------------------------------------------------------------------

/// Row t of each [context, context] over columns up to t; later ones become 0.
struct CausalSoftmax {
  std::uint64_t items, context;
  float scale;
  float* scores;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t t = split(i, context).remainder;
    float* row = scores + i * context;
    float largest = row[0];
    for (std::uint64_t s = 1; s <= t; ++s) largest = row[s] > largest ? row[s] : largest;
    double sum = 0;
    for (std::uint64_t s = 0; s <= t; ++s) {
      row[s] = vector_exp((row[s] - largest) * scale);
      sum += static_cast<double>(row[s]);
    }
    const auto inverse = static_cast<float>(1 / sum);
    for (std::uint64_t s = 0; s <= t; ++s) row[s] *= inverse;
    for (std::uint64_t s = t + 1; s < context; ++s) row[s] = 0;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(scores, items * context);
  }
};

/// Gradients of weights become gradients of unscaled scores.
struct CausalSoftmaxGradient {
  std::uint64_t items, context;
  float scale;
  const float* weights;
  float* gradients;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t t = split(i, context).remainder;
    const float* weight = weights + i * context;
    float* row = gradients + i * context;
    double sum = 0;
    for (std::uint64_t s = 0; s <= t; ++s) sum += static_cast<double>(row[s] * weight[s]);
    const auto level = static_cast<float>(sum);
    for (std::uint64_t s = 0; s <= t; ++s) row[s] = weight[s] * (row[s] - level) * scale;
    for (std::uint64_t s = t + 1; s < context; ++s) row[s] = 0;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(weights, items * context);
    visit(gradients, items * context);
  }
};

// ---- Losses -------------------------------------------------------------------------------------

struct RowLoss {
  std::uint64_t items, classes;
  const std::int32_t* targets;
  const float* logits;
  double* losses;
  double* sums;    ///< of the exponentials of logit - largest
  float* largest;  ///< logit
  UNISONO_HOST_DEVICE void operator()(std::uint64_t row) const {
    const float* values = logits + row * classes;
    float most = values[0];
    for (std::uint64_t c = 1; c < classes; ++c) most = values[c] > most ? values[c] : most;
    double sum = 0;
    for (std::uint64_t c = 0; c < classes; ++c) {
      sum += std::exp(static_cast<double>(values[c] - most));
    }
    largest[row] = most;
    sums[row] = sum;
    losses[row] = std::log(sum) - static_cast<double>(values[targets[row]] - most);
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(targets, items);
    visit(logits, items * classes);
    visit(losses, items);
    visit(sums, items);
    visit(largest, items);
  }
};

/// An item is an element of the gradient.
struct LossGradient {
  std::uint64_t items, classes;
  const std::int32_t* targets;
  const float* logits;
  const double* sums;
  const float* largest;
  double weight;
  float* gradient;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [row, c] = split(i, classes);
    const double exponential = std::exp(static_cast<double>(logits[i] - largest[row]));
    const double expected = c == static_cast<std::uint64_t>(targets[row]) ? 1.0 : 0.0;
    gradient[i] = static_cast<float>((exponential / sums[row] - expected) * weight);
  }
  template <class Visit>
  void buffers(Visit visit) {
    const std::uint64_t rows = items / classes;
    visit(targets, rows);
    visit(logits, items);
    visit(sums, rows);
    visit(largest, rows);
    visit(gradient, items);
  }
};

/// 1 where the first largest logit is the target's, else 0.
struct RowHits {
  std::uint64_t items, classes;
  const std::int32_t* targets;
  const float* logits;
  double* hits;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t row) const {
    const float* values = logits + row * classes;
    std::uint64_t best = 0;
    for (std::uint64_t c = 1; c < classes; ++c) best = values[c] > values[best] ? c : best;
    hits[row] = best == static_cast<std::uint64_t>(targets[row]) ? 1 : 0;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(targets, items);
    visit(logits, items * classes);
    visit(hits, items);
  }
};

/// Sums of segments of numbers; an item is a segment.
struct SegmentSums {
  std::uint64_t items, terms, length;
  const double* values;
  double* sums;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t segment) const {
    const std::uint64_t end = least(terms, (segment + 1) * length);
    double sum = 0;
    for (std::uint64_t i = segment * length; i < end; ++i) sum += values[i];
    sums[segment] = sum;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(values, terms);
    visit(sums, items);
  }
};

}  // namespace unisono::train::kernels
