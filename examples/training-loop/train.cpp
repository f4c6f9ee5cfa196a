// A training loop of one's own over data of one's own: Friedman's first regression problem
// ("Multivariate adaptive regression splines", 1991), 10 inputs of which 5 matter.
// usage: train [PRECISION]; exits with 1 unless it comes close to the noise in the data.
#include <minim/minim.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>
#include <random>

using namespace minim;

namespace {

constexpr Index kFeatures = 10, kBatch = 64, kAccumulate = 2;
constexpr int64_t kSteps = 1200;

struct Data {
  std::vector<double> x, y;  ///< row-major; y is scaled to about [-1, 1]

  Data(size_t n, unsigned seed) : x(n * kFeatures), y(n) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> noise(0, 1);
    std::generate(x.begin(), x.end(), [&] { return uniform(random); });
    for (size_t i = 0; i < n; ++i) {
      const double* v = &x[i * kFeatures];
      double f = 10 * std::sin(std::numbers::pi * v[0] * v[1]) + 20 * std::pow(v[2] - 0.5, 2) +
                 10 * v[3] + 5 * v[4];
      y[i] = (f + noise(random) - 15) / 15;
    }
  }

  /// The given rows as tensors (n, kFeatures) and (n, 1).
  std::pair<Tensor, Tensor> rows(std::span<const size_t> which, DType dtype) const {
    std::vector<double> xs, ys;
    for (size_t i : which) {
      xs.insert(xs.end(), &x[i * kFeatures], &x[i * kFeatures] + kFeatures);
      ys.push_back(y[i]);
    }
    const Index n = Index(which.size());
    return {tensor(xs, {n, kFeatures}, dtype), tensor(ys, {n, 1})};
  }
};

/// Endless mini-batches, each epoch in a new order.
class Batches {
 public:
  explicit Batches(size_t n) : order_(n) { std::iota(order_.begin(), order_.end(), size_t(0)); }
  std::span<const size_t> next() {
    if (at_ + kBatch > order_.size()) at_ = 0;
    if (at_ == 0) std::shuffle(order_.begin(), order_.end(), random_);
    at_ += kBatch;
    return std::span(order_).subspan(at_ - kBatch, kBatch);
  }

 private:
  std::vector<size_t> order_;
  size_t at_ = 0;
  std::mt19937 random_{7};
};

}  // namespace

int main(int argc, char** argv) try {
  const amp::Precision precision = amp::resolve_precision(argc > 1 ? argv[1] : "amp-bf16");
  std::printf("%s\n", amp::describe(precision).c_str());
  const Data train(4096, 1), held_out(1024, 2);

  models::Sequential net;
  for (Index in : {kFeatures, Index(64)}) {
    models::init::kaiming_uniform(net.add<models::Linear>(in, 64).weight);
    net.add([](const Tensor& x) { return gelu(x); });
  }
  net.add<models::Linear>(64, 1);
  net.to(precision.params);
  net.name_parameters();
  optim::AdamW opt(net.parameters(), {.weight_decay = 1e-2,
                                      .masters = precision.masters,
                                      .stochastic_rounding = precision.stochastic});
  const optim::Schedule schedule{
      .lr = 5e-3, .warmup = 50, .steps = kSteps, .decay = optim::Decay::cosine};
  amp::GradScaler scaler(precision.scaler_config);  // of scale 1 where none is needed

  auto loss_of = [&](const Data& data, std::span<const size_t> rows) {
    auto [x, y] = data.rows(rows, precision.params);
    amp::Autocast casts(precision.autocast ? precision.compute : DType::f32, precision.policy);
    return mse(net(x), y);
  };
  auto error_on = [&](const Data& data) {  // root mean square, in units of the noise
    NoGrad no_tape;
    std::vector<size_t> all(data.y.size());
    std::iota(all.begin(), all.end(), size_t(0));
    return 15 * std::sqrt(loss_of(data, all).item());
  };

  Batches batches(train.y.size());
  int skipped = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    opt.set_lr(schedule.at(opt.applied_steps()));
    opt.zero_grad();
    for (int micro = 0; micro < kAccumulate; ++micro)
      scaler.scale(loss_of(train, batches.next()) / double(kAccumulate)).backward();
    scaler.unscale(opt);
    optim::clip_grad_norm(opt.parameters(), 1.0);
    skipped += !scaler.step(opt).stepped;
    scaler.update();
    if ((step + 1) % 300 == 0)
      std::printf("step %4d  error on training data %.3f, on held-out data %.3f  skipped %d\n",
                  int(step + 1), error_on(train), error_on(held_out), skipped);
  }
  return error_on(held_out) < 1.3 ? 0 : 1;  // the noise alone is 1
} catch (const Error& e) {
  std::fprintf(stderr, "train: %s\n", e.what());
  return 2;
}
