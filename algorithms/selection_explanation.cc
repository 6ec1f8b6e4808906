// A choice and where it comes from, in words.
#include <cmath>
#include <sstream>
#include <string>

#include "algorithms/selection.h"
#include "base/collective.h"

namespace unisono::algorithms {
namespace {

// It reads "pipelined_chain in 16 chunks 2266 us, binomial 4400 us".
std::string list_predictions(const SelectionRequest& request) {
  std::string text;
  for (const Prediction& way : predict(request.to_plan_request(), request.bytes, request.links)) {
    text += (text.empty() ? "" : ", ") + std::string(way.algorithm->name);
    if (way.chunks > 1) text += " in " + std::to_string(way.chunks) + " chunks";
    text += " " + std::to_string(std::llround(way.us)) + " us";
  }
  return text;
}

std::string_view meaning_of(AccessPath path) {
  switch (path) {
    case AccessPath::kWindow:
      return "large buffers go through windows";
    case AccessPath::kSingleCopy:
      return "large buffers are read in place, by single copy where they are not mapped";
    case AccessPath::kAutomatic:
      return "large buffers are read in place where they are mapped, else by what the first calls "
             "show to be fastest: windows, streamed windows or single copy";
    case AccessPath::kMapped:
      return "large buffers are read in place where they are mapped, else through windows";
    case AccessPath::kStreamed:
      return "large buffers are read in place where they are mapped, else through windows that are "
             "written with non-temporal stores";
  }
  return "";
}

}  // namespace

std::string SelectionTable::explain(const SelectionRequest& request, std::string_view hint) const {
  const Result<Choice> choice = choose(request, hint);
  std::ostringstream out;
  out << unisono::name_of(request.collective) << ", " << request.bytes << " bytes, "
      << request.ranks << " ranks over " << name_of(request.link)
      << (request.shared_cores ? ", more ranks than processors" : ", a processor for each rank")
      << ": ";
  if (!choice) {
    out << choice.error().message();
    return out.str();
  }
  if (choice->algorithm == nullptr) {
    out << "native, all ranks share memory; " << meaning_of(choice->path);
  } else {
    const Cost cost = choice->algorithm->cost(request.ranks, choice->chunks, request.bytes);
    out << choice->algorithm->name << " in " << choice->chunks
        << (choice->chunks == 1 ? " chunk" : " chunks") << " per block: " << cost.rounds
        << " rounds, " << static_cast<std::size_t>(cost.bytes_sent) << " bytes sent per rank";
  }
  if (choice->algorithm == nullptr && request.access != AccessPath::kAutomatic) {
    out << " (UNISONO_ACCESS=" << unisono::name_of(request.access) << ')';
  }
  out << "\n  because ";
  if (!hint.empty()) {
    out << "it is asked for";
  } else if (choice->is_predicted) {
    out << "of the links between the hosts, " << request.links.latency_us << " us and "
        << request.links.bytes_per_us / 1000 << " GB/s; predicted: " << list_predictions(request);
  } else if (choice->row == nullptr) {
    out << "no row serves the call, and this algorithm is the first that does";
  } else if (choice->row->line == 0) {
    out << "of the default table: " << algorithms::to_text(*choice->row);
    if (chunk_bytes_within(choice->row->chunk_bytes, request.links) < choice->row->chunk_bytes) {
      out << ", where the links between the hosts carry less in 2 ms";
    }
  } else {
    out << "of " << (origin_.empty() ? "the table" : origin_) << ", line " << choice->row->line
        << ": " << algorithms::to_text(*choice->row);
  }
  return out.str();
}

}  // namespace unisono::algorithms
