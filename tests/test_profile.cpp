#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "minim/autograd/node.h"
#include "minim/core/denormals.h"
#include "minim/core/parallel.h"
#include "minim/core/pool.h"
#include "minim/core/profile.h"
#include "minim/ops/functional.h"
#include "minim/tests/temp_dir.h"
#include "minim/tools/profile_report.h"
#include "minim/tools/run.h"
#include "minim/tools/trainer.h"

using namespace minim;

namespace {

void wait(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

const Profile::Row* find(const std::vector<Profile::Row>& rows, std::string_view name,
                         Phase phase) {
  for (const Profile::Row& r : rows)
    if (r.name == name && r.phase == phase) return &r;
  return nullptr;
}

/// The flushing bits of MXCSR (FTZ and DAZ), as a program linked with -ffast-math has them.
struct Flushing {
  Flushing() { _mm_setcsr(before | 0x8040u); }
  ~Flushing() { _mm_setcsr(before); }
  unsigned before = _mm_getcsr();
};

/// How many of the pool's threads took part and how many chunks kept denormals.
struct Seen {
  int threads = 0, kept = 0, chunks = 64;
};
Seen look_in_every_thread() {
  Seen seen;
  std::atomic<int> others{0}, kept{0};
  const auto caller = std::this_thread::get_id();
  parallel_for(seen.chunks, 1, [&](int64_t, int64_t) {
    others += std::this_thread::get_id() != caller;
    kept += denormals_kept();
    wait(1);
  });
  return {1 + (others > 0), kept, seen.chunks};
}

TrainConfig small() {
  TrainConfig c;
  c.input.toy_tokens = 3000;
  c.model = {.layers = 1, .heads = 2, .embd = 16, .block = 16};
  c.train.steps = 4;
  c.train.batch = 2;
  c.run = {.threads = 1, .log_every = 2, .eval_every = 0};
  return c;
}

}  // namespace

TEST_CASE("a scope counts its own time and not that of scopes inside it") {
  Profile profile(10);
  {
    ProfileScope on(&profile);
    Timed whole("whole", Phase::overhead);
    wait(5);
    {
      Timed part("part", Phase::forward);
      wait(20);
    }
  }
  const auto rows = profile.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].ns >= rows[1].ns);
  const Profile::Row &whole = *find(rows, "whole", Phase::overhead),
                     &part = *find(rows, "part", Phase::forward);
  CHECK(part.count == 1);
  CHECK(part.ns >= 20'000'000);
  CHECK(whole.ns >= 5'000'000);
  const auto& spans = profile.spans();  // in the order in which they ended
  REQUIRE(spans.size() == 2);
  CHECK(spans[1].begin <= spans[0].begin);
  CHECK(spans[0].end <= spans[1].end);
  CHECK(part.ns == spans[0].end - spans[0].begin);
  CHECK(profile.ns() == spans[1].end - spans[1].begin);  // all rows add up to the outermost scope
}

TEST_CASE("a profile sees each op forward and backward and casts by themselves") {
  Profile profile;
  Tensor x = tensor({1, 2, 3}).set_requires_grad();
  {
    ProfileScope on(&profile);
    sum(exp(x).to(DType::f16)).backward();
  }
  exp(x);  // after the scope: not seen
  const auto rows = profile.rows();
  for (Phase phase : {Phase::forward, Phase::backward}) {
    REQUIRE(find(rows, "exp", phase));
    CHECK(find(rows, "exp", phase)->count == 1);
  }
  REQUIRE(find(rows, "to", Phase::casts));
  CHECK(find(rows, "to", Phase::casts)->count == 2);  // there and back
  CHECK(find(rows, "backward pass", Phase::overhead));
  CHECK_FALSE(find(rows, "to", Phase::forward));
}

TEST_CASE("ops inside the optimizer's scope count as the optimizer's") {
  Profile profile;
  ProfileScope on(&profile);
  Timed update("update", Phase::optimizer);
  exp(ones({3}));
  CHECK(find(profile.rows(), "exp", Phase::optimizer));
}

TEST_CASE("denormals are counted among the elements of a strided result alone") {
  std::vector<double> values(24);
  for (size_t i = 0; i < values.size(); i += 2) values[i] = 1e-40;
  const Tensor x = tensor(values, {4, 6});
  Profile profile;
  for (const Tensor& part : {x.slice(1, 0, 2), x.transpose(0, 1), x.slice(1, 1, 6, 2)}) {
    const Arg arg = arg_of(part);
    profile.see("op", Phase::forward, {&arg, 1});
  }
  CHECK(profile.entries()[size_t(DType::f32)].seen == 8 + 24 + 12);
  CHECK(profile.entries()[size_t(DType::f32)].denormal == 4 + 12 + 0);
}

TEST_CASE("a profile counts denormal results by op and dtype") {
  Profile profile;
  {
    ProfileScope on(&profile);
    Tensor x = tensor({0x1p-126, 0x1p-120, 0, 1});
    x * 0.25;                                              // one f32 below 2^-126
    tensor({6e-5, 6e-8, 1, 0}, DType::f16) * Tensor(1.0);  // two f16 below 2^-14
  }
  const auto& f32 = profile.entries()[size_t(DType::f32)];
  const auto& f16 = profile.entries()[size_t(DType::f16)];
  CHECK(f32.seen == 4);
  CHECK(f32.denormal == 1);
  CHECK(f16.seen == 4);
  CHECK(f16.denormal == 2);
  CHECK(find(profile.rows(), "mul", Phase::forward)->denormals == 3);
}

TEST_CASE("the time in which denormals are counted is no scope's" * doctest::test_suite("host")) {
  Profile profile(1);
  const Tensor x = ones({1 << 16});
  const Arg result{x.data(), x.dtype(), x.shape(), x.strides(), true};
  {
    ProfileScope on(&profile);
    Timed whole("whole", Phase::forward);
    whole.made({&result, 1});
  }
  const auto& span = profile.spans()[0];
  CHECK(profile.rows()[0].ns < span.end - span.begin);
}

TEST_CASE("every dtype counts as denormal what is below its smallest normal number and not 0" *
          doctest::test_suite("host")) {
  for (DType d : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::f8e4m3, DType::f8e5m2}) {
    CAPTURE(name_of(d));
    const double tiniest = info(d).tiniest, normal = std::ldexp(tiniest, info(d).digits - 1);
    const Tensor x = tensor({0, -0.0, tiniest, -tiniest, normal - tiniest, normal, -normal, 1}, d);
    CHECK(count_denormals(x.data(), d, x.numel()) == 3);
  }
  const Index n = 1 << 18;  // several pieces
  const Tensor many = full({n}, 0x1p-130);
  CHECK(count_denormals(many.data(), DType::f32, n) == n);
}

TEST_CASE("denormals are kept in kernels of every thread") {
  set_threads(2);
  const Seen seen = look_in_every_thread();
  CHECK(seen.kept == seen.chunks);
  const Tensor small = full({1 << 17}, 0x1p-126);
  const Tensor half = small * 0.5;
  for (double v : half.to_vector()) REQUIRE(v == 0x1p-127);
  set_threads(0);
}

TEST_CASE("the pool's threads flush denormals exactly when the calling thread does") {
  set_threads(2);
  look_in_every_thread();  // the threads are there before the mode changes
  {
    Flushing on;
    CHECK_FALSE(denormals_kept());
    const Seen seen = look_in_every_thread();
    CHECK(seen.threads == 2);
    CHECK(seen.kept == 0);
  }
  CHECK(denormals_kept());
  const Seen seen = look_in_every_thread();
  CHECK(seen.kept == seen.chunks);
  set_threads(0);
}

TEST_CASE("a block of the pool is used again by its thread and may be given back on another") {
  void* p = pool::take(100);
  CHECK(reinterpret_cast<uintptr_t>(p) % pool::kStep == 0);
  pool::give(p, 100);
  void* again = pool::take(65);  // of the same list
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(again == p);
#endif
  std::thread([&] { pool::give(again, 65); }).join();
  pool::clear();
  CHECK(pool::kept() == 0);
}

TEST_CASE("bytes of small blocks are counted wherever they are given back" *
          doctest::test_suite("host")) {
  const size_t before = memory::stats().total.current;
  std::vector<Tensor> held;
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) held.push_back(ones({4}));
  }).join();
  CHECK(memory::stats().total.current == before + 1000 * 64);
  held.clear();
  CHECK(memory::stats().total.current == before);
  CHECK(memory::stats().total.peak >= before + 1000 * 64);
}

TEST_CASE("what a thread frees at its very end is counted") {
  const size_t before = memory::stats().total.current;
  std::thread([] {
    static thread_local Tensor last;
    last = Tensor();  // made before the thread's first block, so freed after all else
    last = ones({4});
  }).join();
  CHECK(memory::stats().total.current == before);
}

TEST_CASE("scratch that the pool's threads take and give back leaves the counts as they were") {
  set_threads(1);
  set_threads(2);  // a thread that is new
  const size_t before = memory::stats().total.current;
  parallel_for(16, 1, [](int64_t, int64_t) {
    Scratch<float> few(16);
    wait(1);
  });
  CHECK(memory::stats().total.current == before);
  set_threads(0);
}

TEST_CASE("the rows of a profiled step add up to the step and name its parts") {
  TrainConfig c = small();
  c.run.profile = true;
  Trainer trainer(c);
  REQUIRE(trainer.profile());
  trainer.step();
  trainer.step();
  const auto rows = trainer.profile()->rows();
  CHECK(find(rows, "step", Phase::overhead)->count == 2);
  for (auto [name, phase] : {std::pair{"linear", Phase::forward},
                             {"linear", Phase::backward},
                             {"batch", Phase::data},
                             {"update", Phase::optimizer}}) {
    CAPTURE(name);
    REQUIRE(find(rows, name, phase));
    CHECK(find(rows, name, phase)->ns > 0);
  }
  int64_t sum = 0;
  for (int64_t ns : trainer.profile()->ns_by_phase()) sum += ns;
  CHECK(sum == trainer.profile()->ns());
  const std::string text = profile_report(*trainer.profile(), 2);
  CHECK(text.find("the time of 2 steps") != std::string::npos);
  CHECK(text.find("optimizer") != std::string::npos);
  CHECK(denormal_report(*trainer.profile(), trainer.optimizer()).starts_with("denormals (kept): "));
}

TEST_CASE("a profiled run has the losses of one that is not") {
  TrainConfig c = small();
  Trainer plain(c);
  c.run.profile = true;
  Trainer profiled(c);
  CHECK_FALSE(plain.profile());
  for (int i = 0; i < 3; ++i) CHECK(plain.step()->loss == profiled.step()->loss);
}

TEST_CASE("a trace is JSON of complete events that lie inside their step") {
  TrainConfig c = small();
  const test::TempDir temp;
  c.run.profile_trace = (temp.path / "trace.json").string();
  c.run.out = (temp.path / "run").string();
  std::ostringstream out;
  const Summary s = run_training({c, {}}, out);
  CHECK(out.str().find("the time of 4 steps") != std::string::npos);
  CHECK(out.str().find("peak memory ") != std::string::npos);
  CHECK(s.peak_by_kind[size_t(MemoryKind::moments)] >= size_t(8 * s.params));
  CHECK(s.peak_by_kind[size_t(MemoryKind::gradients)] >= size_t(4 * s.params));
  const auto trace = nlohmann::json::parse(std::ifstream(c.run.profile_trace));
  std::vector<std::pair<double, double>> steps;
  for (const auto& e : trace["traceEvents"])
    if (e["name"] == "step") steps.emplace_back(e["ts"], double(e["ts"]) + double(e["dur"]));
  CHECK(steps.size() == 4);
  size_t matrix_products = 0;
  for (const auto& e : trace["traceEvents"]) {
    CHECK(e["ph"] == "X");
    const double begin = e["ts"], end = begin + double(e["dur"]);
    bool inside = false;
    for (const auto& [from, to] : steps) inside |= from - 1e-3 <= begin && end <= to + 1e-3;
    CHECK(inside);
    matrix_products += e["name"] == "linear" && e["cat"] == "forward";
  }
  CHECK(matrix_products > 4);
}

TEST_CASE("a trace that cannot be written is said before the training") {
  TrainConfig c = small();
  const test::TempDir temp;
  c.run.profile_trace = (temp.path / "not" / "there.json").string();
  c.run.out = (temp.path / "run").string();
  std::ostringstream out;
  CHECK_THROWS_WITH_AS(run_training({c, {}}, out), doctest::Contains("profile-trace"), Error);
  CHECK(out.str().find("step") == std::string::npos);
  CHECK_FALSE(std::filesystem::exists(temp.path / "run"));
  for (const char* inside : {"trace.json", "../run/trace.json"}) {  // the run makes the directory
    c.run.profile_trace = (temp.path / "run" / inside).string();
    run_training({c, {}}, out);
    CHECK(std::filesystem::exists(temp.path / "run" / "trace.json"));
  }
}

TEST_CASE("a trace that is lost at the end does not fail the run that is done") {
  TrainConfig c = small();
  const test::TempDir temp;
  c.train.steps = 20;  // a trace of more than a pipe holds: written only once the reader has gone
  c.run.profile_trace = (temp.path / "pipe").string();
  c.run.out = (temp.path / "run").string();
  REQUIRE(::mkfifo(c.run.profile_trace.c_str(), 0600) == 0);
  std::thread reader([&] { std::ifstream(c.run.profile_trace).close(); });  // opens it and goes
  std::ostringstream out;
  CHECK_NOTHROW(run_training({c, {}}, out));
  ::close(::open(c.run.profile_trace.c_str(), O_RDWR | O_NONBLOCK));  // lets go of a late reader
  reader.join();
  CHECK(out.str().find("(profile-trace) cannot be written; the run goes on") != std::string::npos);
  CHECK(std::filesystem::exists(temp.path / "run" / "summary.json"));
}

TEST_CASE("a resumed run with no step left has no profile to show") {
  TrainConfig c = small();
  const test::TempDir temp;
  c.run.out = (temp.path / "run").string();
  std::ostringstream out;
  run_training({c, {}}, out);
  c.resume = c.run.out;
  c.run.out = (temp.path / "again").string();
  c.run.profile = true;
  run_training({c, {}}, out);
  CHECK(std::filesystem::exists(temp.path / "again" / "summary.json"));
  CHECK(out.str().find("the time of") == std::string::npos);
}
