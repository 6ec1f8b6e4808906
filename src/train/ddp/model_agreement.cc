#include "train/ddp/model_agreement.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "train/model/backend.h"
#include "unisono/train/distributed_data_parallel.h"

namespace unisono::train {
namespace {

// One line per entry. Compared as text, so that what differs can be shown as it is.
std::vector<std::string> entries_of(const Model& model) {
  std::vector<std::string> lines;
  for (const Arena::Entry& entry : model.parameters().entries()) {
    lines.push_back("parameter " + entry.name + " " + to_string(entry.shape));
  }
  for (const Arena::Entry& entry : model.buffers().entries()) {
    lines.push_back("buffer " + entry.name + " " + to_string(entry.shape));
  }
  return lines;
}

void broadcast_arena(Arena& arena, Communicator& communicator, Rank root) {
  if (communicator.size() == 1 || arena.values().empty()) return;
  // Waited for: a stream goes on behind a call that has failed.
  communicator
      .start({.collective = Collective::kBroadcast,
              .in = arena.values().data(),
              .out = arena.values().data(),
              .count = arena.values().size(),
              .type = DataType::kFloat32,
              .root = root,
              .options = in_stream(backend_of(arena))})
      .wait();
}

// Bounds what is allocated on the word of another rank.
constexpr std::uint64_t kTextBytesMax = 64u << 20;

// The root's text to all.
std::string broadcast_text(std::string text, Communicator& communicator, Rank root) {
  std::uint64_t bytes = text.size();
  communicator.broadcast(std::span(&bytes, 1), root);
  if (bytes > kTextBytesMax) {
    throw std::invalid_argument("rank " + std::to_string(root) + "'s model has " +
                                std::to_string(bytes) + " bytes of names, more than " +
                                std::to_string(kTextBytesMax) + "; name fewer parameters");
  }
  text.resize(bytes);
  communicator.broadcast(text.data(), text.size(), DataType::kUint8, root);
  return text;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::string line_at(std::string_view text, std::size_t index) {
  for (; index > 0 && !text.empty(); --index) {
    text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
  }
  return text.empty() ? "nothing more" : std::string(text.substr(0, text.find('\n')));
}

// -1: equal to the end.
std::int64_t first_difference(const std::vector<std::string>& mine, std::string_view theirs) {
  if (join(mine) == theirs) return -1;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (line_at(theirs, i) != mine[i]) return static_cast<std::int64_t>(i);
  }
  return static_cast<std::int64_t>(mine.size());
}

}  // namespace

void check_same_model(const Model& model, Communicator& communicator) {
  if (!model.runs_on_gpu() && !model.parameters().storage().on_host()) {
    throw std::invalid_argument(model.describe() +
                                " computes on the host and was made in the scope of a GPU's "
                                "DeviceMemory; make it outside, or take a model of models.h");
  }
  if (communicator.size() == 1) return;
  const std::vector<std::string> mine = entries_of(model);
  const std::string reference = broadcast_text(join(mine), communicator, 0);
  const std::int64_t difference = first_difference(mine, reference);
  std::vector<std::int64_t> differences(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span(&difference, 1), differences);
  const auto found = std::find_if(differences.begin(), differences.end(),
                                  [](std::int64_t index) { return index >= 0; });
  if (found == differences.end()) return;
  const auto other = static_cast<Rank>(found - differences.begin());
  const auto index = static_cast<std::size_t>(*found);
  const std::string theirs =
      broadcast_text(index < mine.size() ? mine[index] : "nothing more", communicator, other);
  throw std::invalid_argument("the models differ: rank 0 has " + line_at(reference, index) +
                              " where rank " + std::to_string(other) + " has " + theirs +
                              "; every rank must build the same model");
}

void broadcast_model(Model& model, Communicator& communicator, Rank root) {
  broadcast_arena(model.parameters(), communicator, root);
  broadcast_arena(model.buffers(), communicator, root);
}

void broadcast_buffers(Model& model, Communicator& communicator, Rank root) {
  broadcast_arena(model.buffers(), communicator, root);
}

std::string list_names(const Arena& parameters, const std::vector<int>& indices) {
  constexpr std::size_t kShownMax = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(indices.size(), kShownMax); ++i) {
    text +=
        (i == 0 ? "" : ", ") + parameters.entries().at(static_cast<std::size_t>(indices[i])).name;
  }
  if (indices.size() > kShownMax) {
    text += " and " + std::to_string(indices.size() - kShownMax) + " more";
  }
  return text;
}

}  // namespace unisono::train
