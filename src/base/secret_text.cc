#include "base/secret_text.h"

#include <openssl/crypto.h>

namespace unisono {

void cleanse_bytes(void* memory, std::size_t bytes) { OPENSSL_cleanse(memory, bytes); }

}  // namespace unisono
