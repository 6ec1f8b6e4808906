// Tests leave alone what the developer's own jobs have learned of this machine, and learn for
// themselves. Linked to every test program; what was set before stays.
#include <cstdlib>

namespace unisono::test {
namespace {

[[maybe_unused]] const int kNoCache = setenv("UNISONO_CACHE", "off", 0);

}  // namespace
}  // namespace unisono::test
