// Every public option structure with one member named, as users write it: compiled with all
// warnings as errors.
#include <unisono/objects.h>

#include <chrono>
#include <unisono/unisono.hpp>

namespace {

using namespace unisono;
using std::chrono::milliseconds;

[[maybe_unused]] const InitOptions init_options[]{
    {.rendezvous = "env://"},
    {.store = nullptr},
    {.rank = 0},
    {.size = 1},
    {.job_key = "0123456789abcdef"},
    {.transport = "tcp"},
    {.device = 0},
    {.timeout = milliseconds(1'000)},
};
[[maybe_unused]] const CallOptions call_options[]{
    {.timeout = milliseconds(1'000)},
    {.algorithm = "ring"},
    {.order = Order::kCanonical},
    {.stream = nullptr},
};
[[maybe_unused]] const SpawnOptions spawn_options[]{
    {.as = SpawnOptions::As::kThreads},
    {.transport = "tcp"},
    {.timeout = milliseconds(1'000)},
    {.devices = {0}},
};
[[maybe_unused]] const ObjectOptions object_options[]{
    {.staging_bytes = 1}, {.size_limit = 1}, {.call = {.algorithm = ""}}};
[[maybe_unused]] const ObjectPiece pieces[]{
    {.source = 0}, {.offset = 0}, {.size = 0}, {.bytes = {}}};
[[maybe_unused]] const Error::Context contexts[]{{.host = ""}, {.link = ""}, {.operation = ""}};
[[maybe_unused]] const ReduceOp operators[]{{.kind = OpKind::kMax}, {.scalar = 2},
                                            {.function = nullptr},  {.context = nullptr},
                                            {.name = ""},           {.commutative = true}};
[[maybe_unused]] const Received received[]{{.source = 0}, {.tag = 0}, {.count = 0}};
[[maybe_unused]] const MemberCall member_calls[]{{.communicator = nullptr}, {.call = {}}};
[[maybe_unused]] const Call calls[]{
    {.collective = Collective::kBarrier},
    {.in = nullptr},
    {.out = nullptr},
    {.count = 0},
    {.type = DataType::kInt8},
    {.op = ops::sum},
    {.root = 0},
    {.tag = 0},
    {.in_counts = {}},
    {.in_displacements = {}},
    {.out_counts = {}},
    {.out_displacements = {}},
    {.options = {.order = Order::kCanonical}},
};

}  // namespace
