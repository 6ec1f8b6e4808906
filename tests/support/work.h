// Work of a test's, from a function.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/callbacks.h"

namespace unisono::test {

inline std::shared_ptr<Work> work(std::function<void()> run) {
  struct OfTest final : Work {
    explicit OfTest(std::function<void()> its) : its(std::move(its)) {}
    void run() override { its(); }
    std::function<void()> its;
  };
  return std::make_shared<OfTest>(std::move(run));
}

}  // namespace unisono::test
