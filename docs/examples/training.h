// docs/examples/training.h -- trains a classifier in one precision or all six and compares them:
// what mlp.cpp and convnet.cpp share.
#pragma once
#include <minim/minim.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string_view>

#include "minim/models/shuffle.h"

namespace example {

using namespace minim;

struct Examples {
  Tensor x, labels;  ///< f32 (n, ...), i64 (n)
};

struct Task {
  std::function<std::unique_ptr<models::Module>()> model;  ///< returns class scores (n, classes)
  Examples train, held_out;
  int64_t steps, batch;
  double lr;
  double least;  ///< the accuracy on held_out that every precision must reach
};

struct Outcome {
  double accuracy = 0, loss = 0;  ///< on held_out
  int64_t skipped = 0;            ///< steps that the loss scaler refused
};

/// A batch of the epoch's own order: each example once an epoch.
inline Examples take(const Examples& all, int64_t step, int64_t batch) {
  const int64_t n = all.x.size(0);
  Tensor index = empty({batch}, DType::i64);
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t at = step * batch + i;
    index.span<int64_t>()[size_t(i)] =
        int64_t(models::shuffled(1, uint64_t(at / n), uint64_t(at % n), uint64_t(n)));
  }
  return {index_select(all.x, index), index_select(all.labels, index)};
}

/// Scores in the precision's casts, from inputs in the dtype of the parameters.
inline Tensor scores(const models::Module& model, const Tensor& x, const amp::Precision& p) {
  amp::Autocast casts(p.autocast ? p.compute : DType::f32, p.policy);
  return model(x.to(p.params));
}

inline Outcome train(const Task& task, const amp::Precision& p) {
  manual_seed(1);  // every precision begins with the same weights
  auto model = task.model();
  model->name_parameters();
  std::vector<Tensor> exact = model->parameters();
  if (p.params != DType::f32) model->to(p.params);
  optim::AdamW opt(model->parameters(),
                   {.lr = task.lr, .masters = p.masters, .stochastic_rounding = p.stochastic});
  for (size_t i = 0; p.masters && i < exact.size(); ++i) opt.set_master(i, exact[i].detach());
  const optim::Schedule schedule{
      .lr = task.lr, .warmup = 10, .steps = task.steps, .decay = optim::Decay::cosine};
  amp::GradScaler scaler(p.scaler_config);  // disabled where p needs none
  Outcome outcome;
  for (int64_t step = 0; step < task.steps; ++step) {
    const auto [x, labels] = take(task.train, step, task.batch);
    Tensor loss = cross_entropy(scores(*model, x, p), labels);
    opt.zero_grad();
    scaler.scale(loss).backward();
    opt.set_lr(schedule.at(opt.applied_steps()));
    outcome.skipped += !scaler.step(opt).stepped;
    scaler.update();
  }
  NoGrad no_recording;
  model->eval();
  Tensor y = scores(*model, task.held_out.x, p);
  outcome.loss = cross_entropy(y, task.held_out.labels).item();
  outcome.accuracy = mean(eq(argmax(y, {.axis = 1}), task.held_out.labels).to(DType::f32)).item();
  return outcome;
}

/// The program: `[--precision P]`, by default all six. Fails unless each reaches task.least, and
/// fp32's accuracy within 1 %.
inline int run(int argc, char** argv, const Task& task) try {
  std::vector<std::string_view> modes{"fp32",        "amp-bf16",    "amp-fp16",
                                      "bf16-master", "fp16-master", "bf16-sr"};
  const std::vector<std::string_view> args(argv + 1, argv + argc);
  if (args.size() == 2 && args[0] == "--precision")
    modes = {args[1]};
  else if (!args.empty())
    fail("usage: ", argv[0], " [--precision P]");
  bool good = true;
  double fp32 = 0;
  std::printf("precision    accuracy    loss  skipped  seconds\n");
  for (const std::string_view mode : modes) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome o = train(task, amp::resolve_precision(mode));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (mode == "fp32") fp32 = o.accuracy;
    const bool close = mode == modes[0] || std::fabs(o.accuracy - fp32) <= 0.01;
    const bool high = o.accuracy > task.least;
    std::printf("%-11s  %6.2f %%  %.4f  %7d  %7.1f%s%s\n", mode.data(), 100 * o.accuracy, o.loss,
                int(o.skipped), seconds.count(), high ? "" : "  FAIL: accuracy is low",
                close ? "" : "  FAIL: more than 1 % from fp32");
    good = good && high && close;
  }
  return good ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}

}  // namespace example
