#include "base/keyed_mac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <memory>

namespace unisono {
namespace {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Kdf = std::unique_ptr<EVP_KDF, Freer<EVP_KDF_free>>;
using KdfContext = std::unique_ptr<EVP_KDF_CTX, Freer<EVP_KDF_CTX_free>>;
using Mac = std::unique_ptr<EVP_MAC, Freer<EVP_MAC_free>>;
using MacContext = std::unique_ptr<EVP_MAC_CTX, Freer<EVP_MAC_CTX_free>>;

OSSL_PARAM octets(const char* name, const void* data, std::size_t bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), bytes);
}

OSSL_PARAM sha256(const char* name) {
  return OSSL_PARAM_construct_utf8_string(name, const_cast<char*>("SHA256"), 0);
}

Status unavailable() { return {ErrorCode::kSystem, "OpenSSL offers no HKDF or HMAC with SHA-256"}; }

}  // namespace

Result<KeyedMac> KeyedMac::make(const JobKey& key, std::string_view job_id,
                                std::string_view purpose) {
  const Kdf kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  if (!kdf) return unavailable();
  const KdfContext context(EVP_KDF_CTX_new(kdf.get()));
  const OSSL_PARAM parameters[] = {
      sha256(OSSL_KDF_PARAM_DIGEST),
      octets(OSSL_KDF_PARAM_KEY, key.bytes().data(), key.bytes().size()),
      octets(OSSL_KDF_PARAM_SALT, job_id.data(), job_id.size()),
      octets(OSSL_KDF_PARAM_INFO, purpose.data(), purpose.size()), OSSL_PARAM_construct_end()};
  KeyedMac made;
  if (!context ||
      EVP_KDF_derive(context.get(), made.key_.data(), made.key_.size(), parameters) != 1) {
    return unavailable();
  }
  return made;
}

KeyedMac::~KeyedMac() { OPENSSL_cleanse(key_.data(), key_.size()); }

Result<std::string> KeyedMac::of(std::initializer_list<std::string_view> parts) const {
  const Mac mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  if (!mac) return unavailable();
  const MacContext context(EVP_MAC_CTX_new(mac.get()));
  const OSSL_PARAM parameters[] = {sha256(OSSL_MAC_PARAM_DIGEST), OSSL_PARAM_construct_end()};
  if (!context || EVP_MAC_init(context.get(), key_.data(), key_.size(), parameters) != 1) {
    return unavailable();
  }
  for (const std::string_view part : parts) {
    const auto* data = reinterpret_cast<const unsigned char*>(part.data());
    if (EVP_MAC_update(context.get(), data, part.size()) != 1) return unavailable();
  }
  std::string out(kBytes, '\0');
  std::size_t written = 0;
  const bool made = EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(out.data()),
                                  &written, out.size()) == 1;
  if (!made || written != kBytes) return unavailable();
  return out;
}

bool KeyedMac::proves(std::string_view mac, std::initializer_list<std::string_view> parts) const {
  const auto expected = of(parts);
  return expected && mac.size() == kBytes &&
         CRYPTO_memcmp(expected->data(), mac.data(), kBytes) == 0;
}

}  // namespace unisono
