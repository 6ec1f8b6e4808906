// Tests leave alone what the developer's own jobs have learned of this machine, and learn for
// themselves. Linked to every test program: it says so before main(), and a test may say otherwise.
#include <cstdlib>

namespace unisono::test {
namespace {

[[maybe_unused]] const int kNoCache = setenv("UNISONO_CACHE", "off", 1);

}  // namespace
}  // namespace unisono::test
