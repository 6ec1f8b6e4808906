// `unisono info`: what this build and machine offer, every variable in force, and with --why what
// selection would choose. It asks the same probes and tables that the library asks.
#pragma once

namespace unisono {

int info_main(int argc, char** argv);

}  // namespace unisono
