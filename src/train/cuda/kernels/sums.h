// Kernels for sums over many rows, in two stages: sums of segments, then their sums. How long a
// segment is follows from the extents alone (segments_of), so the order of the additions does too.
// All in double. See item.h.
#pragma once

#include <cmath>

#include "train/cuda/kernels/item.h"

namespace unisono::train::kernels {

struct Segments {
  std::uint64_t length, count;
};

/// So that both stages have about as many terms in a row.
inline Segments segments_of(std::uint64_t terms) {
  constexpr std::uint64_t kShortest = 16;
  const auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(terms)));
  const std::uint64_t length = root < kShortest ? kShortest : root;
  return {length, (terms + length - 1) / length};
}

// ---- Columns of [rows, width]. An item is a column of a segment of rows. ------------------------

struct ColumnSums {
  std::uint64_t items, rows, width, length;
  const float* values;
  double* parts;  ///< [segments, width]
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [segment, column] = split(i, width);
    const std::uint64_t end = least(rows, (segment + 1) * length);
    double sum = 0;
    for (std::uint64_t r = segment * length; r < end; ++r) {
      sum += static_cast<double>(values[r * width + column]);
    }
    parts[i] = sum;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(values, rows * width);
    visit(parts, items);
  }
};

// ---- Channels of [rows, channels, plane] --------------------------------------------------------

/// An item is a lane of a channel of a segment of rows: lane l has elements l, l + lanes, ... of
/// each plane, so neighbours read neighbours.
struct ChannelWalk {
  std::uint64_t rows, channels, plane, length, lanes;

  UNISONO_HOST_DEVICE std::uint64_t elements() const { return rows * channels * plane; }

  struct Place {
    std::uint64_t segment, channel, lane;
  };
  UNISONO_HOST_DEVICE Place place_of(std::uint64_t item) const {
    const auto [above, lane] = split(item, lanes);
    const auto [segment, channel] = split(above, channels);
    return {segment, channel, lane};
  }
  /// Row of the place in the matrix of parts, [segments * lanes, columns].
  UNISONO_HOST_DEVICE std::uint64_t part_row(const Place& place) const {
    return place.segment * lanes + place.lane;
  }
  template <class Visit>
  UNISONO_HOST_DEVICE void for_each(const Place& place, const Visit& visit) const {
    const std::uint64_t end = least(rows, (place.segment + 1) * length);
    for (std::uint64_t r = place.segment * length; r < end; ++r) {
      const std::uint64_t first = (r * channels + place.channel) * plane;
      for (std::uint64_t p = place.lane; p < plane; p += lanes) visit(first + p);
    }
  }
};

struct ChannelSums {
  std::uint64_t items;
  ChannelWalk walk;
  const float* x;
  double* parts;  ///< [segments * lanes, channels]
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto place = walk.place_of(i);
    double sum = 0;
    const float* from = x;
    walk.for_each(place, [&](std::uint64_t at) { sum += static_cast<double>(from[at]); });
    parts[walk.part_row(place) * walk.channels + place.channel] = sum;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, walk.elements());
    visit(parts, items);
  }
};

/// Of the squared distances from the channel's mean.
struct ChannelSquares {
  std::uint64_t items;
  ChannelWalk walk;
  const float* x;
  const double* means;
  double* parts;  ///< [segments * lanes, channels]
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto place = walk.place_of(i);
    const float* from = x;
    const auto mean = static_cast<float>(means[place.channel]);
    double sum = 0;
    walk.for_each(place, [&](std::uint64_t at) {
      const float distance = from[at] - mean;
      sum += static_cast<double>(distance * distance);
    });
    parts[walk.part_row(place) * walk.channels + place.channel] = sum;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, walk.elements());
    visit(means, walk.channels);
    visit(parts, items);
  }
};

/// By channel of dy, then of dy * (x - mean).
struct ChannelGradients {
  std::uint64_t items;
  ChannelWalk walk;
  const float *x, *dy, *means;
  double* parts;  ///< [segments * lanes, 2 * channels]
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto place = walk.place_of(i);
    const float *from = x, *slopes = dy;
    const float mean = means[place.channel];
    double sum = 0, along = 0;
    walk.for_each(place, [&](std::uint64_t at) {
      sum += static_cast<double>(slopes[at]);
      along += static_cast<double>(slopes[at] * (from[at] - mean));
    });
    double* row = parts + walk.part_row(place) * 2 * walk.channels;
    row[place.channel] = sum;
    row[walk.channels + place.channel] = along;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, walk.elements());
    visit(dy, walk.elements());
    visit(means, walk.channels);
    visit(parts, 2 * items);
  }
};

// ---- The second stage: an item is a column of the parts, [rows, stride] -------------------------

UNISONO_HOST_DEVICE double column_total(const double* parts, std::uint64_t rows,
                                        std::uint64_t stride, std::uint64_t column) {
  double sum = 0;
  for (std::uint64_t r = 0; r < rows; ++r) sum += parts[r * stride + column];
  return sum;
}

/// sums[i] += the total.
struct AddTotals {
  std::uint64_t items, rows, stride;
  const double* parts;
  float* sums;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    sums[i] += static_cast<float>(column_total(parts, rows, stride, i));
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(parts, rows == 0 ? 0 : (rows - 1) * stride + items);
    visit(sums, items);
  }
};

struct StoreTotals {
  std::uint64_t items, rows, stride;
  const double* parts;
  float* sums;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    sums[i] = static_cast<float>(column_total(parts, rows, stride, i));
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(parts, rows == 0 ? 0 : (rows - 1) * stride + items);
    visit(sums, items);
  }
};

struct MeanTotals {
  std::uint64_t items, rows, stride;
  const double* parts;
  double count;
  double* means;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    means[i] = column_total(parts, rows, stride, i) / count;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(parts, rows == 0 ? 0 : (rows - 1) * stride + items);
    visit(means, items);
  }
};

}  // namespace unisono::train::kernels
