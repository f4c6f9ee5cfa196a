#include "minim/ops/reshape.h"

#include <algorithm>

namespace minim::op {

Shape Reshape::resolve(const Shape& from, Shape to) {
  const int open = int(std::find(to.begin(), to.end(), -1) - to.begin());
  if (open < to.rank()) {
    to[open] = 1;
    const Index known = to.numel();
    to[open] = known > 0 ? from.numel() / known : -1;
  }
  const bool negative = std::any_of(to.begin(), to.end(), [](Index n) { return n < 0; });
  if (negative || to.numel() != from.numel())
    fail("[reshape] ", from, " has ", from.numel(), " elements, which do not fill ", to);
  return to;
}

bool Reshape::strides_for(const Arg& x, const Shape& shape, Strides& strides) {
  strides = contiguous_strides(shape);
  if (x.shape.numel() <= 1) return true;
  Dims old_size{}, old_stride{};
  for (int i = 0; i < x.shape.rank(); ++i)
    if (x.shape[i] != 1) old_size.push_back(x.shape[i]), old_stride.push_back(x.strides[i]);
  // Groups of old and new axes with equal products; the old axes of a group must be dense to each
  // other.
  for (int i = 0, j = 0; j < shape.rank();) {
    if (shape[j] == 1) {
      ++j;
      continue;
    }
    int first = j;
    Index old_n = old_size[i], new_n = shape[j];
    while (old_n != new_n) {
      if (old_n > new_n) {
        new_n *= shape[++j];
      } else {
        ++i;
        if (old_stride[i - 1] != old_stride[i] * old_size[i]) return false;
        old_n *= old_size[i];
      }
    }
    Index step = old_stride[i];
    for (int k = j; k >= first; --k) {
      strides[k] = step;
      step *= shape[k];
    }
    ++i;
    ++j;
  }
  return true;
}

Index Reshape::view(OpArgs& args) {
  Shape shape = resolve(args.in[0].shape, args.attrs.as<Attrs>().shape);
  args.out[0].shape = shape;
  if (!strides_for(args.in[0], shape, args.out[0].strides))
    fail("[reshape] the strides ", args.in[0].strides, " of ", args.in[0].shape,
         " do not allow a view of ", shape, "; call contiguous() first");
  return 0;
}

std::vector<Example> Reshape::examples() {
  Examples<Attrs> all;
  all.add({{6}}, {{2, 3}});
  all.add({{2, 3, 4}}, {{6, -1}});
  all.add({{1, 5}}, {{5, 1, 1}});
  all.add({{0, 3}}, {{0}});
  all.add({{}}, {{1, 1}});
  return all;
}

}  // namespace minim::op
