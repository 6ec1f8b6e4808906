// What libunisono.so shows: each class and function that callers link says so.
#pragma once

#define UNISONO_API [[gnu::visibility("default")]]
