#include "tests/cuda/fake_driver/capture.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "tests/cuda/fake_driver/entry.h"

using Nodes = std::vector<std::shared_ptr<fake_cuda::Node>>;

struct CUgraph_st {
  Nodes nodes;
};

struct CUgraphExec_st {
  Nodes nodes;
  CUctx_st* context = nullptr;
  // Launches so far, and those that are over: they run one behind the other in whatever streams.
  std::uint64_t launched = 0;
  std::uint64_t over = 0;
};

namespace fake_cuda {
namespace {

struct Graphs {
  std::map<CUgraph_st*, std::shared_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec_st*, std::shared_ptr<CUgraphExec_st>> executables;
  std::vector<std::shared_ptr<CUgraph_st>> dead_graphs;
  std::vector<std::shared_ptr<CUgraphExec_st>> dead_executables;
  std::set<std::shared_ptr<Capture>> captures;
  std::uint64_t made = 0;
};

Graphs& graphs() {
  static Graphs* const value = new Graphs;
  return *value;
}

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void finish(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const StreamPointer& stream : capture->streams) {
    stream->capture.reset();
    stream->tips.clear();
  }
  graphs().captures.erase(capture);
}

// Whether everything that `tips` names comes before `last` or is it.
bool is_joined(const Nodes& tips, const Nodes& last) {
  std::set<Node*> before;
  Nodes open = last;
  while (!open.empty()) {
    const std::shared_ptr<Node> node = open.back();
    open.pop_back();
    if (!before.insert(node.get()).second) continue;
    open.insert(open.end(), node->after.begin(), node->after.end());
  }
  return std::all_of(tips.begin(), tips.end(),
                     [&](const std::shared_ptr<Node>& tip) { return before.contains(tip.get()); });
}

CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (stream.get() == context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = ++graphs().made;
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->tips.clear();
  graphs().captures.insert(capture);
  return CUDA_SUCCESS;
}

CUresult check_end(const Capture& capture, const CUstream_st& stream) {
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture.thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  for (const StreamPointer& other : capture.streams) {
    if (!is_joined(other->tips, stream.tips)) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream handle, CUgraph* graph) {
  const Lock lock(machine().mutex);
  *graph = nullptr;
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  const CUresult result = check_end(*capture, *stream);
  if (result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) return result;
  finish(capture);
  if (result != CUDA_SUCCESS) return result;
  auto made = std::make_shared<CUgraph_st>();
  made->nodes = capture->nodes;
  graphs().graphs[made.get()] = made;
  *graph = made.get();
  return CUDA_SUCCESS;
}

// Of blocking streams, which the legacy stream would wait for; null for any other stream.
Capture* capture_beside(const CUstream_st& stream) {
  if (stream.context->legacy != &stream) return nullptr;
  for (const auto& capture : graphs().captures) {
    for (const StreamPointer& other : capture->streams) {
      const bool is_blocking = (other->flags & CU_STREAM_NON_BLOCKING) == 0;
      if (other->context == stream.context && is_blocking) return capture.get();
    }
  }
  return nullptr;
}

CUstreamCaptureStatus status_of(const CUstream_st& stream) {
  if (!stream.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** nodes, std::size_t* count) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (capture_beside(*stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = status_of(*stream);
  const bool is_active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr && is_active) *id = stream->capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (count != nullptr) *count = 0;
  return CUDA_SUCCESS;
}

CUresult capture_info_12_3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                           CUgraph* graph, const CUgraphNode** nodes, const void** edges,
                           std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return capture_info(handle, status, id, graph, nodes, count);
}

CUresult is_capturing(CUstream handle, CUstreamCaptureStatus* status) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (capture_beside(*stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = status_of(*stream);
  return CUDA_SUCCESS;
}

CUresult exchange_mode(CUstreamCaptureMode* mode) {
  std::swap(thread_mode, *mode);
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (!graphs().graphs.contains(graph)) return CUDA_ERROR_INVALID_HANDLE;
  auto made = std::make_shared<CUgraphExec_st>();
  made->nodes = graph->nodes;
  made->context = context;
  graphs().executables[made.get()] = made;
  *executable = made.get();
  return CUDA_SUCCESS;
}

// In any order that keeps what follows what, another one each time, and late.
void run_nodes(const CUgraphExec_st& executable, std::minstd_rand& random) {
  std::unordered_map<const Node*, std::vector<Node*>> followers;
  std::unordered_map<const Node*, std::size_t> awaited;  // how many must still run before it
  std::vector<Node*> ready;
  for (const std::shared_ptr<Node>& node : executable.nodes) {
    awaited[node.get()] = node->after.size();
    for (const auto& before : node->after) followers[before.get()].push_back(node.get());
    if (node->after.empty()) ready.push_back(node.get());
  }
  std::size_t ran = 0;
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    Node* const node = ready.back();
    ready.pop_back();
    if (settings().delay_us > 0 && random() % 4 == 0) {
      const unsigned late = random() % static_cast<unsigned>(settings().delay_us + 1);
      std::this_thread::sleep_for(std::chrono::microseconds(late));
    }
    node->operation.run();
    ++ran;
    for (Node* const follower : followers[node]) {
      if (--awaited[follower] == 0) ready.push_back(follower);
    }
  }
  if (ran == executable.nodes.size()) return;
  complain("of the " + std::to_string(executable.nodes.size()) + " nodes of a graph " +
           std::to_string(ran) + " ran: the others wait for each other, or for what is not in it");
}

void run_graph(CUgraphExec_st& executable, std::uint64_t launch, std::minstd_rand& random) {
  wait_in_stream(*executable.context, [&] { return executable.over == launch; });
  run_nodes(executable, random);
  const Lock lock(machine().mutex);
  ++executable.over;
  machine().progress.notify_all();
}

CUresult graph_launch(CUgraphExec handle, CUstream stream_handle) {
  const Lock lock(machine().mutex);
  const auto found = graphs().executables.find(handle);
  if (found == graphs().executables.end()) {
    complain("a graph is launched after cuGraphExecDestroy, or never was");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  StreamPointer stream;
  if (const CUresult result = find_stream(stream_handle, nullptr, &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  auto executable = found->second;
  auto random = std::make_shared<std::minstd_rand>(stream->random());
  const std::uint64_t launch = executable->launched++;
  return enqueue(*stream,
                 {[executable, launch, random] { run_graph(*executable, launch, *random); }});
}

CUresult graph_destroy(CUgraph graph) {
  const Lock lock(machine().mutex);
  const auto found = graphs().graphs.find(graph);
  if (found == graphs().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  graphs().dead_graphs.push_back(found->second);
  graphs().graphs.erase(found);
  return CUDA_SUCCESS;
}

CUresult executable_destroy(CUgraphExec executable) {
  const Lock lock(machine().mutex);
  const auto found = graphs().executables.find(executable);
  if (found == graphs().executables.end()) return CUDA_ERROR_INVALID_VALUE;
  graphs().dead_executables.push_back(found->second);
  graphs().executables.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult add_node(CUstream_st& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto node = std::make_shared<Node>();
  node->operation = std::move(operation);
  node->after = stream.tips;
  capture.nodes.push_back(node);
  stream.tips = {node};
  return CUDA_SUCCESS;
}

CUresult break_capture(CUstream_st& stream, CUresult error) {
  stream.capture->invalid = true;
  return error;
}

void abandon_capture(CUstream_st& stream) {
  complain("a capturing stream is destroyed");
  const std::shared_ptr<Capture> capture = stream.capture;
  capture->invalid = true;
  if (capture->origin == &stream) finish(capture);
}

CUresult refuse_in_capture(CUstream_st& stream) {
  if (stream.capture) return break_capture(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Capture* const beside = capture_beside(stream);
  if (beside == nullptr) return CUDA_SUCCESS;
  beside->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult refuse_while_capturing() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : graphs().captures) {
    const bool own = capture->thread == std::this_thread::get_id() &&
                     capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool everybodys = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                            thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !everybodys) continue;
    capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult record_in_capture(CUevent_st& event, CUstream_st& stream) {
  if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.capture = stream.capture;
  event.tips = stream.tips;
  return CUDA_SUCCESS;
}

CUresult wait_in_capture(CUstream_st& stream, CUevent_st& event) {
  if (!event.capture || event.capture->ended) {
    if (event.capture) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event.latest) return CUDA_SUCCESS;
    return break_capture(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (event.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!stream.capture) {
    if (stream.context->legacy == &stream) {
      event.capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream.capture = event.capture;
    stream.tips = event.tips;
    event.capture->streams.insert(stream.shared_from_this());
    return CUDA_SUCCESS;
  }
  if (stream.capture != event.capture) {
    stream.capture->invalid = true;
    event.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  stream.tips.insert(stream.tips.end(), event.tips.begin(), event.tips.end());
  return CUDA_SUCCESS;
}

std::uint64_t count_graphs() { return graphs().graphs.size() + graphs().executables.size(); }

std::uint64_t report_graph_leaks() {
  for (std::size_t i = 0; i < count_graphs(); ++i) complain("leak: a graph");
  return count_graphs();
}

std::vector<Entry> capture_entries() {
  return {entry<&begin_capture>("cuStreamBeginCapture", 10010),
          entry<&end_capture>("cuStreamEndCapture", 10000),
          entry<&is_capturing>("cuStreamIsCapturing", 10000),
          entry<&capture_info>("cuStreamGetCaptureInfo", 11030, 12030),
          entry<&capture_info_12_3>("cuStreamGetCaptureInfo", 12030),
          entry<&exchange_mode>("cuThreadExchangeStreamCaptureMode", 10010),
          entry<&instantiate>("cuGraphInstantiateWithFlags", 11040),
          entry<&graph_launch>("cuGraphLaunch", 10000),
          entry<&graph_destroy>("cuGraphDestroy", 10000),
          entry<&executable_destroy>("cuGraphExecDestroy", 10000)};
}

}  // namespace fake_cuda
