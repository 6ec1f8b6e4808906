// Everything a user needs:
//
//   auto comm = unisono::init();
//   std::vector<float> gradient = ...;
//   comm.all_reduce(gradient, unisono::ops::average);
#pragma once

// Rendezvous, communicators, collectives, point to point.
#include "unisono/addends.h"
#include "unisono/communicator.h"
// Memory that the ranks of a host share, and memory of the user's own.
#include "unisono/registered_memory.h"
#include "unisono/shared_buffer.h"
// Byte blobs, values and lists that differ in size from rank to rank.
#include "unisono/objects.h"
// Types, operators, element formats.
#include "unisono/float_types.h"
#include "unisono/types.h"
// Outcomes.
#include "unisono/error.h"
#include "unisono/request.h"
#include "unisono/traffic.h"
// Options, threads beside the ranks, and a store of your own.
#include "unisono/helper_threads.h"
#include "unisono/options.h"
#include "unisono/rendezvous.h"
