// What layers share: marking parameters.
#include "train/model/layer.h"

namespace unisono::train {

std::span<const float> Call::use(int parameter) {
  const auto index = static_cast<std::size_t>(parameter);
  if (index < pass.used.size()) pass.used[index] = 1;
  return parameters[parameter];
}

void Call::ready(int parameter) {
  if (pass.gradient_ready) pass.gradient_ready(parameter);
}

}  // namespace unisono::train
