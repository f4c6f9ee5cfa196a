#include "minim/tools/sizes.h"

#include <fmt/format.h>

#include "minim/core/allocator.h"

namespace minim {
namespace {

constexpr double kMoments = 4;        // bytes a parameter: sgd's one
constexpr double kWeightAndGrad = 4;  // in 16 bits
constexpr double kLogit = 4;          // the loss takes them in f32
constexpr double kActivation = 2;

}  // namespace

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(units); ++unit) bytes /= 1000;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

void check_bytes(double bytes, const std::string& what) {
  const auto there = double(memory::physical());
  if (bytes > there)
    fail(what, " need at least ", bytes_text(bytes), ", and this machine has ", bytes_text(there),
         " of memory: take smaller numbers");
}

void check_training_size(const models::DecoderConfig& m, double batch) {
  const double parameters = models::least_parameters(m);
  check_bytes(
      parameters * (kWeightAndGrad + kMoments),
      fmt::format("the {:.3g} or more parameters of a model with vocab {}, block {}, layers "
                  "{} and embd {}",
                  parameters, m.vocab, m.block, m.layers, m.embd));
  check_forward_size(m, batch, double(m.block));
}

void check_forward_size(const models::DecoderConfig& m, double batch, double block) {
  const double kept = double(m.layers) * double(m.embd) * kActivation;
  check_bytes(batch * block * (double(m.vocab) * kLogit + kept),
              fmt::format("the activations of batch {:.15g} with block {:.15g}", batch, block));
}

}  // namespace minim
