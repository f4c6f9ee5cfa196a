// Cases through Google Benchmark (https://github.com/google/benchmark), which decides how often
// each runs.
#include "minim/tools/bench.h"

#ifdef MINIM_BENCHMARK
#include <benchmark/benchmark.h>
#endif

#include <algorithm>
#include <chrono>
#include <map>

#include "minim/core/parallel.h"

namespace minim::bench {

#ifdef MINIM_BENCHMARK

namespace {

class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs)
      if (run.run_type == Run::RT_Iteration)
        samples_[run.run_name.function_name].push_back(run.real_accumulated_time /
                                                       double(run.iterations));
  }
  void fill(Measured& m) {
    std::vector<double>& all = samples_[m.name];
    if (all.empty()) fail("[bench] ", m.name, " has no sample");
    std::ranges::sort(all);
    m.seconds = (all[all.size() / 2] + all[(all.size() - 1) / 2]) / 2;
    m.best = all.front();
  }

 private:
  std::map<std::string, std::vector<double>> samples_;
};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void take_turns() {
  static std::string name = "minim", flag = "--benchmark_enable_random_interleaving=true";
  static char* words[] = {name.data(), flag.data(), nullptr};
  int count = 2;
  benchmark::Initialize(&count, words);
}

}  // namespace

bool available() { return true; }

std::vector<Measured> measure(const Set& set, double seconds) {
  take_turns();
  const int before = threads();
  std::vector<Measured> results;
  for (const Case& c : set) {
    set_threads(c.threads);
    results.push_back({.name = c.name, .threads = c.threads, .body = c.prepare()});
    const std::function<void()>& run = results.back().body.run;
    const double once = seconds_of(run);
    auto* timed =
        benchmark::RegisterBenchmark(c.name.c_str(), [run, n = c.threads](benchmark::State& state) {
          if (threads() != n) set_threads(n);
          for (auto _ : state) run();
        })->UseRealTime();
    const int repetitions = once > 0.05 ? 3 : once > 0.005 ? 5 : 15;
    if (c.ceiling)
      timed->Iterations(1)->Repetitions(int(std::clamp(4 * seconds / once, 5.0, 200.0)));
    else
      timed->MinTime(seconds / repetitions)->Repetitions(repetitions);
  }
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector, ".");
  benchmark::ClearRegisteredBenchmarks();
  set_threads(before);
  for (Measured& result : results) {
    collector.fill(result);
    if (results.size() > 1) result.relative = results[0].seconds / result.seconds;
    result.body.run = nullptr;
  }
  return results;
}

#else

bool available() { return false; }
std::vector<Measured> measure(const Set&, double) { return {}; }

#endif

}  // namespace minim::bench
