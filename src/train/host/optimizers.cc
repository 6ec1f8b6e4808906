// Steps of the optimizers: element by element, so any slice of a model can be stepped alone and
// gives the same bits.
#include <cmath>

#include "train/host/host_backend.h"

namespace unisono::train {

void HostBackend::sgd(const SgdStep& step, const float* gradients, std::size_t count,
                      float* velocity, float* parameters) {
  const auto [rate, momentum, decay, nesterov] = step;
  const float* g = gradients;
  float *p = parameters, *v = velocity;
  if (momentum == 0) {
    for (std::size_t i = 0; i < count; ++i) p[i] -= rate * (g[i] + decay * p[i]);
  } else if (nesterov) {
    for (std::size_t i = 0; i < count; ++i) {
      const float slope = g[i] + decay * p[i];
      v[i] = momentum * v[i] + slope;
      p[i] -= rate * (slope + momentum * v[i]);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      v[i] = momentum * v[i] + (g[i] + decay * p[i]);
      p[i] -= rate * v[i];
    }
  }
}

void HostBackend::adamw(const AdamWStep& step, const float* gradients, std::size_t count,
                        float* first, float* second, float* parameters) {
  const auto [beta1, rest1, beta2, rest2, epsilon, kept, rate, root] = step;
  const float* g = gradients;
  float *p = parameters, *m = first, *v = second;
  for (std::size_t i = 0; i < count; ++i) {
    m[i] = beta1 * m[i] + rest1 * g[i];
    v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
    p[i] = p[i] * kept - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

}  // namespace unisono::train
