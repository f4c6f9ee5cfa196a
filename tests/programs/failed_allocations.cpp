// Each of the first thousand allocations of a workload fails once: the library's calls end with an
// Error or in spite of it, never in std::terminate, and what was not touched by the failure works
// afterwards. Each failure has a process of its own, in which all is made for the first time.
//   usage: failed_allocations [WORKLOAD [N]]   one workload; its Nth allocation alone, in this
//   process
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "minim/amp/autocast.h"
#include "minim/amp/grad_scaler.h"
#include "minim/autograd/checkpoint.h"
#include "minim/core/parallel.h"
#include "minim/models/gpt.h"
#include "minim/models/model_file.h"
#include "minim/ops/call.h"
#include "minim/ops/composite.h"
#include "minim/ops/einsum.h"
#include "minim/optim/clip.h"
#include "minim/optim/optimizer.h"

namespace {

thread_local bool counting = false;  // what other threads ask for comes at no fixed place
thread_local long left = 0;          // allocations until the one that fails

bool fails() { return counting && left > 0 && --left == 0; }

}  // namespace

// What operator new and aligned_alloc of this process come to.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) {
  if (!fails()) return __libc_malloc(n);
  errno = ENOMEM;
  return nullptr;
}
void* aligned_alloc(size_t alignment, size_t n) {
  if (!fails()) return __libc_memalign(alignment, n);
  errno = ENOMEM;
  return nullptr;
}
}

using namespace minim;

namespace {

/// Allocations count from here to its end.
struct Counting {
  Counting() { counting = true; }
  ~Counting() { counting = false; }
};

using Snapshots = std::vector<std::vector<double>>;

std::vector<double> values_of(const std::vector<Tensor>& tensors) {
  std::vector<double> all;
  for (const Tensor& t : tensors) {
    const std::vector<double> values = t.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

Tensor numbers(std::initializer_list<int64_t> values, const Shape& shape) {
  return tensor(std::span<const int64_t>(values.begin(), values.size()), shape);
}

/// Two steps in fp16 with all that a loop uses. The weights at first, after each step, and where
/// one fails.
void train(Snapshots& seen) {
  manual_seed(7);
  const models::GPT model(
      {.vocab = 11, .block = 8, .layers = 2, .heads = 2, .embd = 8, .dropout = 0.1});
  const std::vector<Tensor> params = model.parameters();
  optim::AdamW opt(params, {.lr = 1e-2});
  amp::GradScaler scaler;
  const Tensor x = numbers({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  const Tensor y = numbers({2, 3, 4, 5, 6, 7, 8, 9}, {2, 4});
  const auto step = [&] {
    const Counting here;
    Tensor loss;
    {
      amp::Autocast on(DType::f16);
      loss = cross_entropy(autograd::checkpoint([&](const Tensor& t) { return model(t); }, x), y);
    }
    const HookHandle handle = loss.register_hook([](const Tensor& g) { return g * 0.5; });
    opt.zero_grad();
    scaler.scale(loss).backward();
    scaler.unscale(opt);
    optim::clip_grad_norm(params, 1.0);
    scaler.step(opt);
    scaler.update();
  };
  seen.push_back(values_of(params));
  try {
    for (int k = 0; k < 2; ++k) {
      step();
      seen.push_back(values_of(params));
    }
  } catch (const Error&) {
    seen.push_back(values_of(params));
    throw;
  }
}

/// Two steps by the reference, in the dtypes it takes apart.
void reference(Snapshots& seen) {
  const std::vector<Tensor> params{full({2, 3}, 0.5), full({4}, 0.25, DType::f64),
                                   full({2, 2}, 2, DType::bf16)};
  for (const Tensor& p : params) p.set_grad(p * 0.5);
  optim::AdamW opt(params, {.lr = 0.1, .masters = true, .fused = false});
  seen.push_back(values_of(params));
  try {
    for (int k = 0; k < 2; ++k) {
      {
        const Counting here;
        opt.step();
      }
      seen.push_back(values_of(params));
    }
  } catch (const Error&) {
    seen.push_back(values_of(params));
    throw;
  }
}

/// A model to a file. (Not back: what parses JSON ends the process in a destructor of its own.)
void files(Snapshots& seen) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("minim-" + std::to_string(::getpid()));
  manual_seed(7);
  const models::GPT model({.vocab = 256, .block = 4, .layers = 1, .heads = 1, .embd = 4});
  const models::Tokenizer tokenizer = models::Tokenizer::bytes();
  const struct Removed {
    const std::filesystem::path& file;
    ~Removed() { std::filesystem::remove(file); }
  } at_end{file};
  {
    const Counting here;
    models::save_model(file, model, tokenizer);
  }
  const models::LoadedModel loaded = models::load_model(file);
  seen.push_back(values_of(loaded.model->parameters()));
}

/// Rows with kernels of their own, views, and buffers beyond the pool's, on two threads.
void ops(Snapshots& seen) {
  const Counting here;
  const Tensor x = full({3, 64, 64}, 0.5).set_requires_grad();
  const Tensor w = full({64, 64}, 0.25).set_requires_grad();
  const Tensor q = reshape(matmul(x, w), {.shape = {1, 3, 64, 64}});
  const Tensor a = scaled_dot_product_attention(q, q.transpose(2, 3), q, {}, {.causal = true});
  const Tensor kernel = full({2, 3, 3, 3}, 0.125).set_requires_grad();
  const Tensor c = max_pool2d(conv2d(a, kernel, {}, {.padding = 1}), {.kernel_size = 2});
  const Tensor n = layer_norm(cat({c, c}, 1), ones({32}));
  const Tensor e = einsum("bchw,bcwk->hk", {n, n});
  mean(gelu(e) * e).backward();
  counting = false;
  seen.push_back(values_of({x.grad(), w.grad(), kernel.grad()}));
}

struct Workload {
  const char* name;
  void (*run)(Snapshots&);
};
constexpr Workload kWorkloads[] = {
    {"train", train}, {"reference", reference}, {"files", files}, {"ops", ops}};

/// 0: right or an Error, and right afterwards; 1: not; 3: the workload ended before its nth
/// allocation.
int run(const Workload& workload, long n) {
  set_threads(2);
  Snapshots seen, right;
  bool failed = false;
  left = n;
  try {
    workload.run(seen);
  } catch (const Error&) {
    failed = true;
  } catch (const std::exception& error) {
    std::printf("%s, allocation %ld: not an Error: %s\n", workload.name, n, error.what());
    return 1;
  }
  const bool reached = std::exchange(left, 0) == 0;
  workload.run(right);
  const bool as_ever = !failed
                           ? seen == right
                           : seen.empty() || std::ranges::find(right, seen.back()) != right.end();
  if (!as_ever)
    std::printf("%s, allocation %ld: other values than undisturbed\n", workload.name, n);
  return !as_ever ? 1 : reached ? 0 : 3;
}

/// In a process of its own; what run() returned, or 1 where it did not end by itself.
int run_apart(const Workload& workload, long n) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) std::exit(run(workload, n));
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("%s, allocation %ld: ended by signal %d\n", workload.name, n, WTERMSIG(status));
  return 1;
}

/// How many of the first thousand end badly.
long run_all(const Workload& workload) {
  long n = 0, bad = 0;
  for (int status = 0; n < 1000 && status != 3;) {
    status = run_apart(workload, ++n);
    if (status == 1) ++bad;
  }
  std::printf("%s: %ld allocations failed, one at a time; %ld ended badly\n", workload.name, n,
              bad);
  return bad;
}

}  // namespace

int main(int argc, char** argv) {
  long bad = 0;
  for (const Workload& workload : kWorkloads) {
    if (argc > 1 && std::strcmp(argv[1], workload.name) != 0) continue;
    bad += argc > 2 ? run(workload, std::atol(argv[2])) : run_all(workload);
  }
  return bad == 0 ? 0 : 1;
}
