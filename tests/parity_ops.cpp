#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "minim/autograd/gradcheck.h"
#include "minim/ops/composite.h"
#include "minim/testing/op_checks.h"
#include "minim/tests/parity.h"

namespace minim::test {
namespace {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

/// The cases whose attributes are not the defaults; any other case is its row's plain call.
const std::map<std::string, Function> kCalls{
    {"gelu tanh", [](const Tensors& x) { return gelu(x[0], {.tanh = true}); }},
    {"gelu tanh wide", [](const Tensors& x) { return gelu(x[0], {.tanh = true}); }},
    {"clamp",
     [](const Tensors& x) {
       return clamp(x[0], {-1, 0.75});
     }},
    {"masked_fill", [](const Tensors& x) { return masked_fill(x[0], x[1], -2.5); }},
    {"to", [](const Tensors& x) { return to(x[0], {DType::bf16}); }},
    {"reshape",
     [](const Tensors& x) {
       return reshape(x[0], {{6, 8}});
     }},
    {"permute",
     [](const Tensors& x) {
       return permute(x[0], {{2, 0, 1}});
     }},
    {"slice",
     [](const Tensors& x) {
       return slice(x[0], {1, 1, 9, 2});
     }},
    {"expand",
     [](const Tensors& x) {
       return expand(x[0], {{5, 12}});
     }},
    {"index_select", [](const Tensors& x) { return index_select(x[0], x[1], {1}); }},
    {"cat", [](const Tensors& x) { return cat(x, 1); }},
    {"conv2d",
     [](const Tensors& x) {
       return conv2d(x[0], x[1], x[2], {.stride = {2, 1}, .padding = 1});
     }},
    {"max_pool2d",
     [](const Tensors& x) {
       return max_pool2d(x[0], {.kernel_size = 3, .stride = 2, .padding = 1});
     }},
    {"avg_pool2d",
     [](const Tensors& x) {
       return avg_pool2d(x[0], {.kernel_size = 3, .stride = 2, .padding = 1});
     }},
    {"cross_entropy smooth",
     [](const Tensors& x) {
       return cross_entropy(x[0], x[1], {.label_smoothing = 0.1, .reduction = Reduction::sum});
     }},
    {"scaled_dot_product_attention causal",
     [](const Tensors& x) {
       return scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = true});
     }},
    {"sum", [](const Tensors& x) { return sum(x[0], {.axes = {1}}); }},
    {"prod", [](const Tensors& x) { return prod(x[0], {.axes = {1}}); }},
    {"mean", [](const Tensors& x) { return mean(x[0], {.axes = {0}}); }},
    {"any", [](const Tensors& x) { return any(x[0], {.axes = {1}}); }},
    {"all", [](const Tensors& x) { return all(x[0], {.axes = {1}}); }},
    {"max", [](const Tensors& x) { return max(x[0], {.axes = {1}}); }},
    {"min", [](const Tensors& x) { return min(x[0], {.axes = {1}}); }},
    {"argmax", [](const Tensors& x) { return argmax(x[0], {.axis = 1}); }},
    {"argmin", [](const Tensors& x) { return argmin(x[0], {.axis = 1}); }},
    {"var", [](const Tensors& x) { return var(x[0], {.axes = {1}}); }},
    {"var offset", [](const Tensors& x) { return var(x[0], {.axes = {1}}); }},
    {"std", [](const Tensors& x) { return std(x[0], {.axes = {1}}); }},
    {"norm", [](const Tensors& x) { return norm(x[0], {.axes = {1}}); }},
    {"norm 1", [](const Tensors& x) { return norm(x[0], {.axes = {1}, .p = 1}); }},
    {"norm 3", [](const Tensors& x) { return norm(x[0], {.axes = {1}, .p = 3}); }},
    {"logsumexp", [](const Tensors& x) { return logsumexp(x[0], {.axes = {1}}); }},
    {"logsumexp wide", [](const Tensors& x) { return logsumexp(x[0], {.axes = {1}}); }},
    {"group_norm",
     [](const Tensors& x) { return group_norm(x[0], x[1], x[2], {.num_groups = 2}); }},
    {"batch_norm", [](const Tensors& x) { return batch_norm(x[0], {}, {}, x[1], x[2]); }},
    {"kl_div",
     [](const Tensors& x) { return kl_div(x[0], x[1], {.reduction = Reduction::batchmean}); }},
};

/// The row and its attributes as they are when not given.
struct Plain {
  const OpRow& row;
  Attrs attrs;
};
const std::map<std::string, Plain> kPlain{
#define OP(name, F, ...) {#name, {Op::name, Attrs(attrs_t<op::F>{})}},
#include "minim/ops/ops.def"
#undef OP
};

struct OperandSpec {
  std::string name;
  char kind;  ///< f, i or b
  Shape shape;
  double low = 0, high = 0;
};

struct Case {
  std::string name;
  std::vector<OperandSpec> operands;
  const OpRow& row;
  Function call;
};

OperandSpec parse_operand(const std::string& text) {
  std::istringstream in(text);
  OperandSpec spec;
  std::string sizes;
  in >> spec.name >> spec.kind >> sizes >> spec.low >> spec.high;
  std::replace(sizes.begin(), sizes.end(), 'x', ' ');
  std::istringstream numbers(sizes);
  for (Index n; numbers >> n;) spec.shape.push_back(n);
  return spec;
}

Case make_case(const std::string& name, const std::string& operands) {
  const Plain& plain = kPlain.at(name.substr(0, name.find(' ')));
  Case made{name, {}, plain.row, nullptr};
  std::istringstream in(operands);
  for (std::string text; std::getline(in, text, ';');) made.operands.push_back(parse_operand(text));
  const auto own = kCalls.find(name);
  made.call = own != kCalls.end() ? own->second : [&plain](Tensors x) {
    x.resize(plain.row.operands.size());  // the optional ones that are not given
    return call(plain.row, x, plain.attrs)[0];
  };
  return made;
}

/// The operands, rounded to `through` and stored in `d`.
Tensors make_operands(const Case& c, DType through, DType d) {
  Tensors xs;
  for (const OperandSpec& spec : c.operands) {
    std::vector<double> v = recurrence(spec.shape.numel(), uint32_t(1000 * xs.size() + 1));
    for (double& u : v)
      u = spec.kind == 'b'   ? u < 0.5
          : spec.kind == 'f' ? spec.low + (spec.high - spec.low) * u
                             : std::floor(spec.low + (spec.high - spec.low) * u);
    if (spec.kind == 'f')
      xs.push_back(tensor(tensor(v, spec.shape, through).to_vector(), spec.shape, d));
    else
      xs.push_back(tensor(v, spec.shape, spec.kind == 'b' ? DType::boolean : DType::i64));
  }
  return xs;
}

Tensor cotangent_of(const Tensor& y) {
  std::vector<double> g = recurrence(y.numel(), 77001);
  for (double& u : g) u = std::floor(128 * u - 64) / 32;
  return tensor(g, y.shape(), y.dtype());
}

/// The gradients of the case's floating operands, for cotangent g. `rounded` is what the result was
/// rounded to before backward read it, where that is to be followed.
Tensors gradients_of(const Case& c, const Tensors& values, const Tensor& g,
                     const Tensor& rounded = {}) {
  GradScope recording(true);
  Tensors xs, gradients;
  for (const Tensor& x : values) {
    xs.push_back(x.detach().clone());
    if (is_floating(x.dtype())) xs.back().set_requires_grad();
  }
  const Tensor y = c.call(xs);
  if (rounded.defined()) copy_elements(rounded, y);
  y.backward(g, false);
  for (const Tensor& x : xs)
    if (x.requires_grad()) gradients.push_back(x.grad());
  return gradients;
}

/// |y_j| + sum |x_i dy_j/dx_i| for each element y_j of f's results: what a relative error of eps in
/// everything that goes in makes of y_j is eps times that. As the c of a row is for errors that are
/// relative to its operands too, slopes of the inputs from `direct` on count as 1 at least.
std::vector<double> conditions_of(const autograd::TensorFunction& f, const Tensors& xs,
                                  size_t direct) {
  std::vector<double> sums;
  for (const Tensor& y : f(xs))
    for (double v : y.to_vector()) sums.push_back(std::fabs(v));
  const auto slopes = autograd::numeric_slopes(f, xs);
  for (size_t k = 0; k < xs.size(); ++k) {
    const std::vector<double> x = xs[k].to_vector();
    for (size_t i = 0; i < slopes[k].size(); ++i)
      for (size_t j = 0; j < slopes[k][i].size(); ++j)
        if (const double s = std::fabs(slopes[k][i][j]); s != 0)
          sums[j] += std::fabs(x[i]) * (k < direct ? s : std::max(1.0, s));
  }
  return sums;
}

double error_of(double got, double exact) {
  return got == exact || (std::isnan(got) && std::isnan(exact)) ? 0 : std::fabs(got - exact);
}

class Comparer {
 public:
  Comparer(const models::SafeTensors& file, std::vector<std::string>& findings)
      : file_(file), findings_(findings) {}

  void compare(const Case& c, DType d) {
    const DType through = d == DType::f64 ? DType::f32 : d;
    const Tensors xs = make_operands(c, through, d),
                  exact_xs = make_operands(c, through, DType::f64);
    const Tensor y = c.call(xs);
    check(c, d, "y", y,
          conditions_of([&](const Tensors& v) { return Tensors{c.call(v)}; }, exact_xs, 0),
          c.row.error, y.dtype(), {});
    if (!c.row.differentiable) return;
    const Tensor exact_y = c.call(exact_xs), g = cotangent_of(exact_y);
    Tensors inputs = exact_xs;
    inputs.push_back(g);
    const std::vector<double> conditions = conditions_of(
        [&](Tensors v) {
          const Tensor cotangent = v.back();
          v.pop_back();
          return gradients_of(c, v, cotangent);
        },
        inputs, xs.size());
    const Tensors got = gradients_of(c, xs, g.to(y.dtype()));
    const bool reads_result = c.row.saves.outputs & 1;
    const Tensors right = gradients_of(c, exact_xs, g),
                  followed = gradients_of(c, exact_xs, g, reads_result ? y : Tensor());
    auto condition = conditions.begin();
    for (size_t k = 0, at = 0; k < xs.size(); ++k) {
      if (!is_floating(xs[k].dtype())) continue;
      std::vector<double> inherited = followed[at].to_vector();
      const std::vector<double> plain = right[at].to_vector();
      for (size_t i = 0; i < plain.size(); ++i) inherited[i] = error_of(inherited[i], plain[i]);
      check(c, d, "d_" + c.operands[k].name, got[at], {condition, condition + Index(plain.size())},
            c.row.error + 1, d, inherited);
      condition += Index(plain.size());
      ++at;
    }
  }
  std::vector<Comparison> found;

 private:
  static constexpr double kTheirs64 = 8;  ///< the c that PyTorch's f64 is granted
  /// @param inherited errors that come from reading a rounded result, as PyTorch does too; or none
  void check(const Case& c, DType d, const std::string& tensor, const Tensor& ours,
             const std::vector<double>& condition, double constant, DType stored,
             const std::vector<double>& inherited) {
    const bool f64 = d == DType::f64;  // PyTorch's f64, which has errors of its own
    const std::string through = f64 ? "f32" : name_of(d),
                      name = c.name + "/" + name_of(d) + "/" + tensor,
                      reference = c.name + "/ref-" + through + "/" + tensor;
    const std::vector<double> got = ours.to_vector(), exact = values_of(file_, reference),
                              theirs = f64 ? exact : values_of(file_, name);
    if (got.size() != exact.size())
      return findings_.push_back(name + " has another number of elements");
    DType unit = file_.find(f64 ? reference : name)->dtype;
    if (!is_floating(unit)) unit = DType::f32;
    found.push_back(
        {c.name, tensor, d, errors_of(got, exact, unit), errors_of(theirs, exact, unit)});
    const double factor = f64 ? (constant + kTheirs64) * 0x1p-53 : constant * 0x1p-24;
    for (size_t i = 0; i < got.size(); ++i) {
      const double noise = factor * condition[i] + (inherited.empty() ? 0 : inherited[i]);
      const double allowed = std::max(error_of(theirs[i], exact[i]),
                                      half_ulp(stored, std::fabs(exact[i]) + noise) + noise);
      if (error_of(got[i], exact[i]) <= allowed) continue;
      std::ostringstream text;
      text.precision(17);
      text << name << "[" << i << "] is " << got[i] << ", in f64 " << exact[i] << ", PyTorch's "
           << theirs[i] << "; allowed is an error of " << allowed;
      findings_.push_back(text.str());
    }
  }
  const models::SafeTensors& file_;
  std::vector<std::string>& findings_;
};

/// "long NAME/K" of the golden file, in one dtype.
void compare_long(const models::SafeTensors& file, const std::string& what, const Case& c, DType d,
                  std::vector<Comparison>& found) {
  const Tensors xs = make_operands(c, d, d), exact_xs = make_operands(c, d, DType::f64);
  const Tensor y = c.call(xs), exact_y = c.call(exact_xs), g = cotangent_of(exact_y);
  auto add = [&](const std::string& tensor, const Tensor& got, const Tensor& exact) {
    Comparison one{what, tensor, d, errors_of(got.to_vector(), exact.to_vector(), d), {}};
    std::istringstream theirs(
        file.metadata().at("long " + what + "/" + std::string(name_of(d)) + "/" + tensor));
    theirs >> one.torch.absolute >> one.torch.relative;
    found.push_back(one);
  };
  add("y", y, exact_y);
  const Tensors got = gradients_of(c, xs, g.to(y.dtype())), exact = gradients_of(c, exact_xs, g);
  for (size_t k = 0, at = 0; k < xs.size(); ++k)
    if (is_floating(xs[k].dtype())) {
      add("d_" + c.operands[k].name, got[at], exact[at]);
      ++at;
    }
}

}  // namespace

std::vector<Comparison> compare_long_sums(std::vector<std::string>& findings) {
  const models::SafeTensors file = golden("ops.safetensors");
  std::vector<Comparison> found;
  for (const auto& [key, operands] : file.metadata()) {
    if (!key.starts_with("long ") || std::ranges::count(key, '/') != 1) continue;
    const std::string what = key.substr(5), name = what.substr(0, what.find('/'));
    for (DType d : {DType::f32, DType::f16, DType::bf16})
      compare_long(file, what, make_case(name, operands), d, found);
  }
  for (const Comparison& c : found)
    if (c.minim.absolute > std::max(8.0, 2 * c.torch.absolute)) {
      std::ostringstream text;
      text << c.what << "/" << name_of(c.dtype) << "/" << c.tensor << " errs by "
           << c.minim.absolute << " epsilons, PyTorch by " << c.torch.absolute;
      findings.push_back(text.str());
    }
  return found;
}

std::vector<Comparison> compare_ops(std::vector<std::string>& findings) {
  const models::SafeTensors file = golden("ops.safetensors");
  Comparer comparer(file, findings);
  for (const auto& [key, operands] : file.metadata())
    if (key.starts_with("case "))
      for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16})
        comparer.compare(make_case(key.substr(5), operands), d);
  return comparer.found;
}

}  // namespace minim::test
