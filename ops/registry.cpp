#include <algorithm>
#include <string_view>

#include "minim/ops/op.h"

namespace minim {

const char* name_of(Domain domain) {
  constexpr std::array<const char*, 6> names{"any",      "off_zero",    "small",
                                             "positive", "probability", "index"};
  return names[size_t(domain)];
}

namespace {

std::vector<const OpRow*>& rows() {
  static std::vector<const OpRow*> all{
#define OP(name, ...) &Op::name,
#include "minim/ops/ops.def"
#undef OP
  };
  return all;
}

}  // namespace

const std::vector<const OpRow*>& all_ops() { return rows(); }

namespace {

void run(const OpRow& row, const Kernel (&kernels)[kKernelSets], OpArgs& args) {
  const Backend& on = backend(args.out[0].device);
  const Kernel kernel = kernels[size_t(on.kernels)];
  if (!kernel) fail("[", row.name, "] has no kernel on ", on.name);
  on.launch(kernel, args);
}

}  // namespace

void run_forward(const OpRow& row, OpArgs& args) { run(row, row.forward, args); }
void run_backward(const OpRow& row, OpArgs& args) { run(row, row.backward, args); }

void register_op(const OpRow& row) {
  if (!row.name || !*row.name) fail("register_op: the row has no name");
  if (!row.why || !*row.why)
    fail("register_op: row '", row.name, "' does not say why its cast is what it is");
  if (row.operands.size() == 0 || (!row.forward[0] && !row.view) || !row.examples ||
      (row.differentiable && !row.backward[0]))
    fail("register_op: row '", row.name,
         "' lacks operands, a kernel or examples; build it with make_row");
  bool taken = std::any_of(rows().begin(), rows().end(),
                           [&](const OpRow* r) { return std::string_view(r->name) == row.name; });
  if (taken) fail("register_op: there is an op '", row.name, "' already");
  rows().push_back(&row);
}

}  // namespace minim
