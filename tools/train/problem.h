// What is learned: the samples to train on and to test with, and the model for them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tools/train/options.h"
#include "unisono/train/data.h"
#include "unisono/train/loader.h"
#include "unisono/train/model.h"
#include "unisono/train/sampler.h"

namespace unisono::train {

struct Problem {
  std::shared_ptr<const SampleSource> train, test;
};

/// Opens and checks the files. std::runtime_error with the path, the package and the option where
/// they are missing or damaged; std::invalid_argument where a step needs more samples than there
/// are, or those to test with have another shape or more classes.
Problem open_problem(const Options& options);

/// A model that fits the samples, with the options' checkpointing. std::invalid_argument for
/// samples that the kind of model cannot take.
std::unique_ptr<Model> make_model(const Options& options, const SampleSource& samples);

/// Whole steps of an epoch, the same on any number of ranks; no more than --limit-steps.
std::size_t steps_of_epoch(const Options& options, const SampleSource& samples);

/// The order in which all ranks together take the samples, for people: a step of one order is none
/// of another.
std::string order_of(const Options& options);

/// The order in which this rank takes its samples.
std::unique_ptr<Sampler> make_sampler(const Options& options, const Dataset& data, RankPlace place);

}  // namespace unisono::train
