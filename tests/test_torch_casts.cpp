// The autocast table beside PyTorch's lists for CUDA, and what those lists leave unsaid.
#include "minim/tools/torch_casts.h"

#include <doctest/doctest.h>

#include <set>
#include <sstream>
#include <thread>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/ops/functional.h"

using namespace minim;
using amp::Autocast;
using doctest::Contains;

TEST_CASE("the policy torch is PyTorch's list for CUDA, and each difference has its reason") {
  std::set<std::string> names, rows;
  for (const TorchCasts& entry : torch_casts()) {
    CAPTURE(entry.names);
    std::istringstream words(entry.names);
    for (std::string name; words >> name;) CHECK(names.insert(name).second);
    const bool same = entry.row && row_of(entry).cast == entry.cast;
    CHECK((same || entry.reason));
    if (entry.row) rows.insert(entry.row);
  }
  CHECK(names.size() == 124);
  for (const OpRow* row : all_ops())  // what is cast here is on a list there
    if (row->cast != Cast::keep) CHECK_MESSAGE(rows.count(row->name), row->name);
}

TEST_CASE("a call that names its dtype, or writes in place, is not cast") {
  for (DType low : {DType::f16, DType::bf16}) {
    const Tensor h = full({4}, 3, low);
    Tensor in_place = h.clone(), wide = full({4}, 3);
    Autocast on(low);
    CHECK(sum(h).dtype() == DType::f32);
    CHECK(sum(h, {.dtype = low}).dtype() == low);
    CHECK(cumsum(h, {.dtype = low}).dtype() == low);
    CHECK(prod(h, {.dtype = low}).dtype() == low);
    CHECK(exp(h).to(low).dtype() == low);
    CHECK(in_place.add_(wide).dtype() == low);
    CHECK(in_place.mul_(2).to_vector() == std::vector<double>(4, 12));
    CHECK(wide.add_(h).dtype() == DType::f32);
  }
}

TEST_CASE("an f64 operand is not cast, and does not keep the others from it") {
  const Tensor h = full({2}, 300, DType::f16), two = full({}, 2, DType::f64);
  CHECK(pow(h, two).dtype() == DType::f16);
  Autocast on(DType::f16);
  CHECK(pow(h, two).dtype() == DType::f32);
  CHECK(pow(h, two).to_vector() == std::vector<double>(2, 90000));
  CHECK(pow(full({2}, 3, DType::f64), h).dtype() == DType::f64);
  const Tensor m = ones({2, 2}, DType::f64), w = ones({2, 2});
  CHECK(matmul(m, m).dtype() == DType::f64);
  CHECK_THROWS_WITH_AS(matmul(m, w), Contains("f64"), Error);  // as PyTorch: w is cast, m is not
}

TEST_CASE("the other 16-bit type in a region is promoted by promote and cast by lower") {
  const Tensor b = ones({2, 2}, DType::bf16), h = ones({2, 2}, DType::f16),
               at = zeros({2, 2}, DType::i64);
  Autocast on(DType::f16);
  CHECK(scatter_add(b, at, b).dtype() == DType::f32);
  CHECK(scatter_add(h, at, h).dtype() == DType::f16);
  CHECK(scatter_add(h, at, b).dtype() == DType::f32);
  CHECK(matmul(b, h).dtype() == DType::f16);
  CHECK((b + b).dtype() == DType::bf16);
}

TEST_CASE(
    "what was made in a region keeps its dtype where autocast is off and mixing it with f32 is "
    "refused") {
  const Tensor w = ones({2, 2}).set_requires_grad();
  Autocast on(DType::bf16);
  const Tensor y = matmul(w, w);
  Autocast off(Autocast::off);
  CHECK(y.dtype() == DType::bf16);
  try {
    matmul(y, w);
    FAIL("mixed without a word");
  } catch (const Error& e) {
    const std::string text = e.what();
    CAPTURE(text);
    for (const char* said : {"[matmul]", "x is bf16", "the result of matmul", "y is f32"})
      CHECK(text.find(said) != std::string::npos);
  }
  CHECK(matmul(y.to(DType::f32), w).dtype() == DType::f32);
}

TEST_CASE("a region holds on its own thread and backward needs none") {
  const Tensor w = ones({2, 2}).set_requires_grad();
  Autocast on(DType::f16);
  DType there = DType::f16;
  std::thread([&] { there = matmul(w, w).dtype(); }).join();
  CHECK(there == DType::f32);
  const Tensor y = matmul(w, w);
  std::thread([&] { y.backward(ones({2, 2}, DType::f16)); }).join();
  CHECK(w.grad().to_vector() == std::vector<double>(4, 4));
}

TEST_CASE("only leaves that are trained are cached: not activations, frozen weights or views") {
  const auto bytes = [] { return memory::stats().by_kind[size_t(MemoryKind::casts)].current; };
  const Tensor w = ones({4, 4}).set_requires_grad(), frozen = ones({4, 4});
  const size_t before = bytes();
  Autocast on(DType::f16);
  matmul(frozen, frozen);                       // no gradient
  matmul(w * 2.0, frozen);                      // an activation
  matmul(w.transpose(0, 1), w.slice(1, 0, 4));  // views of a leaf
  CHECK(bytes() == before);
  matmul(w, frozen);
  const size_t once = bytes();
  CHECK(once > before);
  {
    Autocast off(Autocast::off);
    Autocast again(DType::f16);
    matmul(w, w);
  }
  CHECK(bytes() == once);  // shared across a disabled region, and kept after it
}
