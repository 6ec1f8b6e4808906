// For builds without verbs; see verbs_kinds.h.
#include "tests/verbs/verbs_kinds.h"

namespace unisono::test {

std::string why_no_verbs_ports() { return probe_verbs_transport({}).reason; }

std::vector<TransportKind> verbs_kinds() { return {}; }

Result<std::unique_ptr<Transport>> make_verbs(const std::string&, const std::string&, int, Rank,
                                              std::unique_ptr<Transport>) {
  return Status(ErrorCode::kUnsupported, why_no_verbs_ports());
}

}  // namespace unisono::test
