// tools/bench.h -- what `minim bench` measures: cases, in sets that are compared with each other
// and therefore run in turns.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "minim/core/tensor.h"
#include "minim/ops/op.h"

namespace minim::bench {

/// What is timed, and the work that one run does; 0 where that says nothing.
struct Body {
  std::function<void()> run;
  double flops = 0, bytes = 0, tokens = 0;
  std::vector<std::pair<std::string, double>> notes = {};  ///< of one run: peak bytes, by kind
};

/// The name's last part is the dtype or the precision: "rows/relu/backward/bf16".
struct Case {
  std::string name;
  int threads = 1;
  std::function<Body()> prepare = {};
  bool ceiling = false;  ///< its best single run counts
};
using Set = std::vector<Case>;

struct Measured {
  std::string name;
  int threads = 1;
  double seconds = 0, best = 0;  ///< of one run: the median and the least of the repetitions
  double relative = 0;           ///< speed, the first of its set = 1; 0 where it is alone
  Body body = {};                ///< without `run`
};

/// False: this minim was built without Google Benchmark.
bool available();
/// Prepares all, runs each once, then takes turns until each ran for `seconds`.
std::vector<Measured> measure(const Set& set, double seconds);

// The groups. `threads` is what "all threads" means.
/// Multiply-adds, then copies: the last, of as much as a row of the op table is given, is the
/// ceiling of what is counted in bytes. Where there are two cores and threads, also the time from
/// one to the other and back.
std::vector<Set> ceiling_sets(int threads);
std::vector<Set> row_sets(int threads);
std::vector<Set> gemm_sets(int threads);
std::vector<Set> attention_sets(int threads);
std::vector<Set> step_sets(int threads);
std::vector<Set> overhead_sets(int threads);

inline constexpr DType kDTypesMeasured[] = {DType::f32, DType::f16, DType::bf16};

enum class Direction : uint8_t { forward, backward };
/// A call of the row, or its backward kernel alone. @param flops 0: the work is the bytes that the
/// row reads and writes; backward reads what row.saves says.
Body body_of(const OpRow& row, std::vector<Tensor> operands, const Attrs& attrs, Direction way,
             double flops = 0);

}  // namespace minim::bench
