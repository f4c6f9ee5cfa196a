// Tensors, modules, optimizers and scalers that outlive main() and their threads, in several
// orders: what a global is destroyed after, it must not need. The test is that this ends with 0.
#include <memory>
#include <thread>

#include "minim/amp/grad_scaler.h"
#include "minim/autograd/checkpoint.h"
#include "minim/models/layers.h"
#include "minim/ops/composite.h"
#include "minim/optim/ema.h"

using namespace minim;

namespace {

/// A training step's worth of objects; members are destroyed last to first.
struct Step {
  std::unique_ptr<models::Sequential> net;
  std::unique_ptr<optim::AdamW> opt;
  std::unique_ptr<optim::Ema> ema;
  std::unique_ptr<amp::GradScaler> scaler;
  Tensor loss, hooked;
  std::vector<HookHandle> handles;

  void make() {
    net = std::make_unique<models::Sequential>();
    for (int i = 0; i < 3; ++i) net->add<models::Linear>(4, 4);
    opt = std::make_unique<optim::AdamW>(net->parameters());
    ema = std::make_unique<optim::Ema>(*opt, 0.9);
    scaler = std::make_unique<amp::GradScaler>();
    const Tensor x = ones({64, 4});
    const auto f = [this](const Tensor& v) { return (*net)(v); };
    mean(autograd::checkpoint(f, x)).backward();
    opt->step();
    Tensor y = f(x);
    for (int i = 0; i < 1000; ++i) y = y + y;
    hooked = y;
    handles.push_back(y.register_hook([x](const Tensor& g) { return g + x; }));
    loss = scaler->scale(mean(autograd::checkpoint(f, y)));
  }
};

// Before any use of the library, so that they are destroyed after all that it makes on first use.
Tensor chain;
Step first;
std::shared_ptr<Step> shared;
thread_local Tensor of_thread;

Step& late() {
  static Step step;
  return step;
}

}  // namespace

int main() {
  chain = ones({1}).set_requires_grad();
  for (int i = 0; i < 1000; ++i) chain = chain * 1.5;
  first.make();
  late().make();
  shared = std::make_shared<Step>();
  shared->make();
  of_thread = chain * 2.0;
  std::thread([] {
    of_thread = chain * 3.0 + shared->loss;
    static thread_local Step mine;
    mine.make();
  }).join();
  static Tensor last = first.loss + late().loss + shared->loss + of_thread;
  static std::shared_ptr<Step> also = shared;
}
