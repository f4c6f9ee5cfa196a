// core/cpu/verbs.h -- what the tuned backend of the CPU does beside kernels of rows
// (core/backend.h).
#pragma once
#include <span>

#include "minim/core/number.h"
#include "minim/core/op_args.h"
#include "minim/core/step.h"

namespace minim::cpu {

void copy(const Arg& from, const Arg& to);
void fill(const Arg& to, const detail::Number& value);
void sum_to(const Arg& from, const Arg& to, Index by);

void survey(std::span<const Flat> gradients, amp::Factors factors, amp::Finite* kinds);
void multiply(std::span<const Flat> gradients, double factor, amp::Finite* kinds);
double power_sum(std::span<const Flat> gradients, double p, double factor, double unit);
bool adopt(const Flat& param, float* master, bool take);
void update(std::span<const optim::Update> updates);

}  // namespace minim::cpu
