// Matrices, and attention, which is products of them and a softmax between.

#include "train/cuda/gpu_backend.h"

namespace unisono::train {

void GpuBackend::multiply(const Product& product) {
  if (product.rows == 0 || product.columns == 0) return;
  if (product.inner != 0) return products_.multiply(product);
  // A sum of nothing.
  if (product.accumulate) return;
  for (std::size_t row = 0; row < product.rows; ++row) {
    fill(product.result + row * product.result_stride, product.columns, 0);
  }
}

void GpuBackend::repeat_row(const float* row, std::size_t rows, std::size_t width, float* to) {
  launch(kernels::RepeatRow{rows * width, width, row, to});
}

void GpuBackend::add_column_sums(const float* values, std::size_t rows, std::size_t width,
                                 float* sums) {
  if (rows == 0 || width == 0) return;
  const kernels::Segments segments = kernels::segments_of(rows);
  const Temporary<double> parts(blocks_, segments.count * width);
  launch(kernels::ColumnSums{segments.count * width, rows, width, segments.length, values,
                             parts.get()});
  launch(kernels::AddTotals{width, segments.count, width, parts.get(), sums});
}

namespace {

/// Where the matrices of one head lie, for all samples at once: samples are evenly apart, heads
/// are not, so a head is a batch.
struct HeadLayout {
  explicit HeadLayout(const Attention& shape)
      : row(3 * shape.features),
        sample(shape.context * row),
        output_sample(shape.context * shape.features),
        square(shape.context * shape.context),
        weight_sample(shape.heads * square) {}
  std::size_t row, sample;            ///< of inputs and their gradients
  std::size_t output_sample;          ///< rows are `features` apart
  std::size_t square, weight_sample;  ///< of weights, and from one sample's to the next
};

}  // namespace

void GpuBackend::attend(const Attention& shape, const float* x, float* weights, float* y) {
  if (shape.weights() == 0 || shape.width() == 0) return;
  const HeadLayout at(shape);
  const std::size_t context = shape.context, width = shape.width();
  const Temporary<float> unasked(blocks_, weights == nullptr ? shape.weights() : 0);
  if (weights == nullptr) weights = unasked.get();
  for (std::size_t head = 0; head < shape.heads; ++head) {
    const float* query = x + head * width;
    products_.multiply({context,
                        context,
                        width,
                        {query, at.row},
                        {query + shape.features, at.row, true},
                        weights + head * at.square,
                        context},
                       {shape.samples, at.sample, at.sample, at.weight_sample});
  }
  launch(kernels::CausalSoftmax{shape.samples * shape.heads * context, context, shape.scale(),
                                weights});
  for (std::size_t head = 0; head < shape.heads; ++head) {
    const float* value = x + 2 * shape.features + head * width;
    products_.multiply({context,
                        width,
                        context,
                        {weights + head * at.square, context},
                        {value, at.row},
                        y + head * width,
                        shape.features},
                       {shape.samples, at.weight_sample, at.sample, at.output_sample});
  }
}

void GpuBackend::attend_gradient(const Attention& shape, const float* x, const float* weights,
                                 const float* dy, float* dx) {
  if (shape.weights() == 0 || shape.width() == 0) return;
  const HeadLayout at(shape);
  const std::size_t context = shape.context, width = shape.width(), features = shape.features;
  const Temporary<float> scores(blocks_, shape.weights());
  for (std::size_t head = 0; head < shape.heads; ++head) {
    const float* value = x + 2 * features + head * width;
    const float* slope = dy + head * width;
    products_.multiply({context,
                        width,
                        context,
                        {weights + head * at.square, context, true},
                        {slope, features},
                        dx + 2 * features + head * width,
                        at.row},
                       {shape.samples, at.weight_sample, at.output_sample, at.sample});
    products_.multiply({context,
                        context,
                        width,
                        {slope, features},
                        {value, at.row, true},
                        scores.get() + head * at.square,
                        context},
                       {shape.samples, at.output_sample, at.sample, at.weight_sample});
  }
  launch(kernels::CausalSoftmaxGradient{shape.samples * shape.heads * context, context,
                                        shape.scale(), weights, scores.get()});
  for (std::size_t head = 0; head < shape.heads; ++head) {
    const float* query = x + head * width;
    const float* score = scores.get() + head * at.square;
    float* dquery = dx + head * width;
    products_.multiply(
        {context, width, context, {score, context}, {query + features, at.row}, dquery, at.row},
        {shape.samples, at.weight_sample, at.sample, at.sample});
    products_.multiply({context,
                        width,
                        context,
                        {score, context, true},
                        {query, at.row},
                        dquery + features,
                        at.row},
                       {shape.samples, at.weight_sample, at.sample, at.sample});
  }
}

}  // namespace unisono::train
