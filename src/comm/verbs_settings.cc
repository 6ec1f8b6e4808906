#include "comm/verbs_settings.h"

namespace unisono {

VerbsOptions verbs_options(const Config& config, Rank rank, int size) {
  const VerbsConfig& from = config.verbs;
  VerbsOptions options;
  options.rank = rank;
  options.size = size;
  options.devices = from.devices;
  options.gid = from.gid;
  options.connect = from.connect == "cm" ? VerbsConnect::kCm : VerbsConnect::kExchange;
  options.service_level = from.service_level;
  options.traffic_class = from.traffic_class;
  options.partition_key = from.partition_key;
  options.queue_pairs = from.queue_pairs;
  options.ack_timeout = from.ack_timeout;
  options.retries = from.retries;
  options.relaxed_ordering = from.relaxed_ordering;
  options.registered_bytes_max = from.registered_bytes;
  options.checksum = config.checksum;
  return options;
}

}  // namespace unisono
