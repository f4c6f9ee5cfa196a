#include "minim/ops/gather.h"

#include "minim/ops/index_lines.h"

namespace minim::op {

void Gather::infer(OpArgs& args) {
  check_index_fits(name, args.in[1].shape, "x", args.in[0].shape, axis_of<Gather>(args));
  args.out[0].shape = args.in[1].shape;
}

void Gather::forward(OpArgs& args) {
  on_lines(args, [](const OpArgs& lines) { take(full_lines<Gather>(lines), lines); });
}
void Gather::backward(OpArgs& args) {
  on_lines(args, [](const OpArgs& lines) { give_back(full_lines<Gather>(lines), lines); });
}

std::vector<Example> Gather::examples() {
  Examples<Attrs> all;
  all.add({{5}, {3}}, {}, 5);
  all.add({{}, {}}, {.axis = -1}, 1);
  all.add({{}, {4}}, {}, 1);
  all.add({{3}, {}}, {}, 3);
  all.add({{5}, {9}}, {}, 5);  // elements are taken more than once
  all.add({{4, 5}, {4, 2}}, {.axis = 1}, 5);
  all.add({{4, 5}, {6, 3}}, {}, 4);
  all.add({{2, 3, 4}, {2, 3, 1}}, {.axis = -1}, 4);
  all.add({{2, 3, 4}, {1, 5, 4}}, {.axis = 1}, 3);
  all.add({{3, 4}, {3, 0}}, {.axis = 1}, 4);
  return all;
}

}  // namespace minim::op
