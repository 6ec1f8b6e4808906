// One constant per algorithm, each defined in the file of its name. catalog.cc lists them.
#pragma once

#include "algorithms/algorithm.h"

namespace unisono::algorithms {

extern const Algorithm kAllReduceRing;
extern const Algorithm kAllReduceRecursiveDoubling;
extern const Algorithm kAllReduceHalvingDoubling;
extern const Algorithm kAllReduceBine;
extern const Algorithm kAllReduceDoubleBinaryTree;
extern const Algorithm kAllReduceOneShot;
extern const Algorithm kAllReduceTwoShot;
extern const Algorithm kReduceBinomial;
extern const Algorithm kReduceBine;
extern const Algorithm kReducePipelinedChain;
extern const Algorithm kReduceLinear;
extern const Algorithm kBroadcastBinomial;
extern const Algorithm kBroadcastBine;
extern const Algorithm kBroadcastPipelinedChain;
extern const Algorithm kBroadcastDoubleBinaryTree;
extern const Algorithm kBroadcastLinear;
extern const Algorithm kAllGatherRing;
extern const Algorithm kAllGatherBruck;
extern const Algorithm kAllGatherRecursiveDoubling;
extern const Algorithm kAllGatherBine;
extern const Algorithm kAllGatherPat;
extern const Algorithm kAllGatherLinear;
extern const Algorithm kAllGatherVRing;
extern const Algorithm kAllGatherVLinear;
extern const Algorithm kReduceScatterRing;
extern const Algorithm kReduceScatterRecursiveHalving;
extern const Algorithm kReduceScatterBine;
extern const Algorithm kReduceScatterPat;
extern const Algorithm kReduceScatterDirect;
extern const Algorithm kReduceScatterVRing;
extern const Algorithm kReduceScatterVDirect;
extern const Algorithm kGatherLinear;
extern const Algorithm kGatherBinomial;
extern const Algorithm kGatherVLinear;
extern const Algorithm kScatterLinear;
extern const Algorithm kScatterBinomial;
extern const Algorithm kScatterVLinear;
extern const Algorithm kAllToAllPairwise;
extern const Algorithm kAllToAllBruck;
extern const Algorithm kAllToAllLinear;
extern const Algorithm kAllToAllVPairwise;
extern const Algorithm kAllToAllVLinear;
extern const Algorithm kBarrierDissemination;
extern const Algorithm kScanLinear;
extern const Algorithm kScanRecursiveDoubling;
extern const Algorithm kScanDirect;
extern const Algorithm kExscanLinear;
extern const Algorithm kExscanRecursiveDoubling;
extern const Algorithm kExscanDirect;

}  // namespace unisono::algorithms
