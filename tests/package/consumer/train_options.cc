// The trainer's option structures with one member named, as options.cc has the library's.
#include <unisono/train/data.h>
#include <unisono/train/data_parallel.h>
#include <unisono/train/distributed_data_parallel.h>
#include <unisono/train/loader.h>
#include <unisono/train/models.h>
#include <unisono/train/optimizer.h>
#include <unisono/train/sampler.h>
#include <unisono/train/schedule.h>
#include <unisono/train/zero.h>

namespace {

using namespace unisono::train;

[[maybe_unused]] const MlpOptions mlp[]{{.widths = {4, 2}}, {.dropout = 0}, {.seed = 1}};
[[maybe_unused]] const CnnOptions cnn[]{
    {.channels = 1}, {.size = 28}, {.filters = {16}}, {.classes = 10}, {.seed = 1}};
[[maybe_unused]] const GptOptions gpt[]{{.vocabulary = 9}, {.context = 8}, {.layers = 1},
                                        {.width = 8},      {.heads = 1},   {.dropout = 0},
                                        {.seed = 1}};
[[maybe_unused]] const IdxOptions idx[]{
    {.directory = ""}, {.is_test = true}, {.is_flat = true}, {.mean = 0}, {.deviation = 1}};
[[maybe_unused]] const LoadOptions load[]{
    {.mode = LoadMode::kGather}, {.sort_batches = true}, {.keep = {}}, {.threads = 1},
    {.staging_bytes = 1},        {.progress = {}}};
[[maybe_unused]] const LoaderOptions loader[]{
    {.batch_samples = 1}, {.drop_last = true}, {.shuffle = true},  {.seed = 1},
    {.workers = 1},       {.ahead = 1},        {.memory = nullptr}};
[[maybe_unused]] const DistributedSamplerOptions distributed[]{
    {.shuffle = true}, {.seed = 1}, {.drop_last = true}};
[[maybe_unused]] const MicroBatchOptions micro_batches[]{
    {.micro_batches = 1}, {.micro_batch_samples = 1}, {.shuffle = true}, {.seed = 1}};
[[maybe_unused]] const SortedBatchOptions sorted[]{
    {.batch_samples = 1}, {.shuffle = true}, {.seed = 1}, {.drop_last = true}};
[[maybe_unused]] const ScheduleOptions schedule[]{{.base_rate = 1},
                                                  {.scaling = RateScaling::kNone},
                                                  {.base_batch = 1},
                                                  {.global_batch = 1},
                                                  {.warm_up_steps = 1}};
[[maybe_unused]] const SgdOptions sgd[]{{.momentum = 0}, {.weight_decay = 0}, {.nesterov = true}};
[[maybe_unused]] const AdamWOptions adamw[]{
    {.beta1 = 0}, {.beta2 = 0}, {.epsilon = 0}, {.weight_decay = 0}};
[[maybe_unused]] const ZeroOptions zero[]{
    {.broadcast_buffers = true}, {.reduction = {}}, {.gather = {}}};
[[maybe_unused]] const DdpOptions ddp[]{
    {.bucket_bytes_max = 1}, {.first_bucket_bytes = 1},
    {.overlap = true},       {.find_unused_parameters = true},
    {.static_graph = true},  {.broadcast_buffers = true},
    {.uneven_inputs = true}, {.join_divisor = JoinDivisor::kActiveRanks},
    {.hook = nullptr},       {.reduction = {}}};
[[maybe_unused]] const DataParallelOptions data_parallel[]{
    {.devices = {0}},           {.gpus = {0}},
    {.output_device = 0},       {.dim = 0},
    {.first_batch = 1},         {.parallel_loss = true},
    {.weighted_loss = true},    {.inputs_on_first_device = true},
    {.threads_per_step = true}, {.loss = nullptr},
    {.outputs_loss = nullptr},  {.seed = 1}};

}  // namespace
