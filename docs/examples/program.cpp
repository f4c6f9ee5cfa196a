// README's program: a GPT in fp16 with a loss scaler.
#include <minim/minim.h>

#include <cstdio>

using namespace minim;

int main() {
  auto data = models::toy_language(1337, 50000);
  models::GPT model({.vocab = data.vocab, .block = 32, .layers = 2, .heads = 2, .embd = 32});
  optim::AdamW opt(model.parameters(), {.lr = 3e-3, .weight_decay = 0.1});
  amp::GradScaler scaler;
  for (int64_t step = 0; step < 50; ++step) {
    auto starts = models::batch_starts(1337, step, 0, 16, int64_t(data.train.size()), 32);
    auto [x, y] = models::make_batch(data.train, starts, 32);
    Tensor loss;
    {
      amp::Autocast on(DType::f16);
      loss = cross_entropy(model(x), y);
    }
    opt.zero_grad();
    scaler.scale(loss).backward();
    scaler.unscale(opt);
    optim::clip_grad_norm(opt.parameters(), 1.0);
    amp::StepResult result = scaler.step(opt);  // .stepped, .found_inf, .first_bad, .scale_before
    scaler.update();
    if (step % 10 == 0 || !result.stepped) std::printf("%d %.4f\n", int(step), loss.item());
  }
}
