// `unisono tune`: measures every algorithm of the catalog on this machine and writes the selection
// table that UNISONO_TUNING names.
#pragma once

namespace unisono {

int tune_main(int argc, char** argv);

}  // namespace unisono
