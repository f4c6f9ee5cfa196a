// tools/judge/main.cpp -- runs calls that another program wrote down, for tools/compare_ops.py.
//
//   minim_judge DIR
//
// reads DIR/operands.safetensors and DIR/calls.jsonl, one call a line:
//
//   {"id": "17", "operands": [{"tensor": "a", "layout": "stepped", "grad": true}, {"number": 2.5}],
//    "steps": [{"op": "mul", "in": [0, 1], "attrs": {}}], "out": [2], "cotangents": ["c"]}
//
// Values are numbered: the operands first, then the results of each step; -1 is an operand that is
// not given. Layouts are those of testing/op_trial.h, by name_of: of operands and, as "layout" of
// the call, of cotangents. It writes DIR/results.safetensors, with ID/yK for result K and ID/gK for
// the gradient of operand K, and DIR/results.jsonl with
// {"id": ..., "stage": "forward" or "backward", "error": TEXT} for what was refused.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "minim/autograd/node.h"
#include "minim/models/safetensors.h"
#include "minim/testing/op_trial.h"
#include "minim/tools/judge/attrs.h"

namespace minim::judge {
namespace {

using Tensors = std::vector<Tensor>;

test::Layout layout_named(const std::string& name) {
  for (test::Layout l : test::kLayouts)
    if (name == test::name_of(l)) return l;
  if (name != "dense") fail("no layout ", name);
  return test::Layout::dense;
}

class Judge {
 public:
  explicit Judge(const std::filesystem::path& dir)
      : dir_(dir), stored_(models::SafeTensors::read(dir / "operands.safetensors")) {}

  void run() {
    std::ifstream calls(dir_ / "calls.jsonl");
    std::ofstream refused(dir_ / "results.jsonl");
    for (std::string line; std::getline(calls, line);) {
      const Json call = Json::parse(line);
      stage_ = "forward";
      try {
        judge(call);
      } catch (const std::exception& e) {
        refused << Json{{"id", call.at("id")}, {"stage", stage_}, {"error", e.what()}} << "\n";
      }
    }
    std::vector<models::Blob> blobs;
    for (const auto& [name, t] : results_)
      blobs.push_back(
          {name,
           t.dtype(),
           {t.shape().begin(), t.shape().end()},
           {static_cast<const std::byte*>(t.data()), size_t(t.numel()) * size_of(t.dtype())}});
    models::write_safetensors(dir_ / "results.safetensors", blobs);
  }

 private:
  Tensor read(const std::string& name) const {
    const models::Blob* blob = stored_.find(name);
    if (!blob) fail("operands.safetensors has no ", name);
    Tensor t = empty(Shape(std::span<const Index>(blob->shape)), blob->dtype);
    std::memcpy(t.data(), blob->bytes.data(), blob->bytes.size());
    return t;
  }

  Tensor operand(const Json& json) const {
    if (json.contains("number")) return number(json.at("number"));
    Tensor x =
        laid_out(read(json.at("tensor")), layout_named(json.value("layout", std::string("dense"))));
    if (json.value("grad", false)) x.set_requires_grad();
    return x;
  }

  void keep(const std::string& name, const Tensor& t) {
    NoGrad no_recording;
    results_.emplace_back(name, t.detach().contiguous());
  }

  void judge(const Json& call) {
    const std::string id = call.at("id");
    Tensors values;
    for (const Json& json : call.at("operands")) values.push_back(operand(json));
    const size_t operands = values.size();
    for (const Json& step : call.at("steps")) {
      Tensors in;
      for (int k : step.at("in")) in.push_back(k < 0 ? Tensor() : values.at(size_t(k)));
      for (const Tensor& y : call_named(step.at("op"), in, step.value("attrs", Json::object())))
        values.push_back(y);
    }
    const Json& out = call.at("out");
    for (size_t k = 0; k < out.size(); ++k) keep(id + "/y" + std::to_string(k), values.at(out[k]));
    stage_ = "backward";
    const test::Layout layout = layout_named(call.value("layout", std::string("dense")));
    const Json& cotangents = call.at("cotangents");
    for (size_t k = 0; k < cotangents.size(); ++k) {
      const Tensor& y = values.at(out[k]);
      if (cotangents[k].is_null() || !y.requires_grad()) continue;
      y.backward(laid_out(read(cotangents[k]).to(y.dtype()), layout), k + 1 < cotangents.size());
    }
    for (size_t k = 0; k < operands; ++k)
      if (values[k].requires_grad() && values[k].grad().defined())
        keep(id + "/g" + std::to_string(k), values[k].grad());
  }

  std::filesystem::path dir_;
  models::SafeTensors stored_;
  std::vector<std::pair<std::string, Tensor>> results_;
  const char* stage_ = "forward";
};

}  // namespace
}  // namespace minim::judge

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: minim_judge DIR\n";
    return 2;
  }
  try {
    minim::judge::Judge(argv[1]).run();
  } catch (const std::exception& e) {
    std::cerr << "minim_judge: " << e.what() << "\n";
    return 1;
  }
}
