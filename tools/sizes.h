// tools/sizes.h -- sizes that this machine cannot hold are refused before anything is allocated.
#pragma once
#include <string>

#include "minim/models/decoder.h"

namespace minim {

/// "12.3 MB"
std::string bytes_text(double bytes);

/// @throws Error, naming `what` and both numbers, when `bytes` are more than the machine's memory.
void check_bytes(double bytes, const std::string& what);

/// The least that training needs: weights, gradients and moments, and a batch's activations.
void check_training_size(const models::DecoderConfig& model, double batch);

/// The least that a forward pass over `batch` sequences of `block` tokens needs.
void check_forward_size(const models::DecoderConfig& model, double batch, double block);

}  // namespace minim
