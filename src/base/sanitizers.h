// Which sanitizers this file is compiled with: each 1 or 0. g++ and clang say it in ways of their
// own.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define UNISONO_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define UNISONO_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define UNISONO_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__)
#define UNISONO_THREAD_SANITIZER 1
#elif defined(__has_feature)
#define UNISONO_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define UNISONO_THREAD_SANITIZER 0
#endif
