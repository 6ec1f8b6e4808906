// A fat binary that nvcc made, as the build left it, inside the object file: no assembler language
// is asked of the project.
#pragma once

/// At namespace scope outside of any: the bytes of `file`, a string literal, are from `name` up to
/// `name`_end, aligned to 64. Hidden, so that each library has its own.
#define UNISONO_EMBED_KERNELS(name, file)                                      \
  asm(".pushsection .rodata\n"                                                 \
      ".balign 64\n"                                                           \
      ".hidden " #name                                                         \
      "\n"                                                                     \
      ".globl " #name "\n" #name                                               \
      ":\n"                                                                    \
      ".incbin \"" file                                                        \
      "\"\n"                                                                   \
      ".hidden " #name                                                         \
      "_end\n"                                                                 \
      ".globl " #name "_end\n" #name                                           \
      "_end:\n"                                                                \
      ".byte 0\n"                                                              \
      ".popsection\n");                                                        \
  extern "C" __attribute__((visibility("hidden"))) const unsigned char name[]; \
  extern "C" __attribute__((visibility("hidden"))) const unsigned char name##_end[];
