// The reasons for which algorithms refuse a request. Pure functions; safe from any thread.
#pragma once

#include <string_view>

#include "algorithms/rank_math.h"
#include "plan/plan.h"

namespace unisono::algorithms {

inline std::string_view refuse_nothing(const plan::PlanRequest&) { return {}; }

/// For algorithms that only move data, where the number of ranks matters.
inline std::string_view need_power_of_two(const plan::PlanRequest& request) {
  return is_power_of_two(request.ranks) ? std::string_view{} : "needs a power of two ranks";
}

/// For reductions that combine what some of the ranks have come to.
inline std::string_view refuse_exact(const plan::PlanRequest& request) {
  if (request.ranks > 1 && request.order == Order::kExact) {
    return "rounds more than once, which the exact order does not";
  }
  return {};
}

/// For reductions that keep rank order but not the canonical tree.
inline std::string_view refuse_canonical(const plan::PlanRequest& request) {
  if (request.ranks > 1 && request.order == Order::kCanonical) {
    return "does not reduce in the canonical order";
  }
  return refuse_exact(request);
}

/// For reductions that combine ranks in an order of their own.
inline std::string_view need_commutative(const plan::PlanRequest& request) {
  if (request.ranks > 1 && !request.commutative) {
    return "does not keep rank order, which an operator that is not commutative needs";
  }
  return refuse_canonical(request);
}

/// The same of butterflies.
inline std::string_view need_commutative_at_power_of_two(const plan::PlanRequest& request) {
  const std::string_view reason = need_power_of_two(request);
  return reason.empty() ? need_commutative(request) : reason;
}

/// For reductions whose tree is the canonical one only at powers of two.
inline std::string_view need_power_of_two_for_canonical(const plan::PlanRequest& request) {
  if (request.order == Order::kCanonical && !is_power_of_two(request.ranks)) {
    return "reduces in the canonical order only at a power of two ranks";
  }
  return refuse_exact(request);
}

}  // namespace unisono::algorithms
