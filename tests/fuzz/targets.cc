#include "tests/fuzz/target.h"

namespace unisono::fuzz {

Targets all_targets() {
  Targets targets;
  add_frames(&targets);
  add_handshake(&targets);
  add_launcher_store(&targets);
  add_rendezvous(&targets);
  add_shared_memory(&targets);
  add_texts(&targets);
  add_objects(&targets);
#ifdef UNISONO_FUZZ_VERBS
  add_verbs(&targets);
#endif
#ifdef UNISONO_FUZZ_TRAIN
  add_train(&targets);
#endif
  return targets;
}

}  // namespace unisono::fuzz
