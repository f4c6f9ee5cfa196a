#!/usr/bin/env bash
# Mutation check: breaks one place of the library at a time and looks whether a test notices.
#   usage: tools/mutate.sh [--list | --check | WORD]
#     WORD: only mutants whose description contains it; --check: only whether each has its place
# Needs an up-to-date build/release, but for --check. The sources stay as they are: a mutant is a copy of one file in
# a directory that comes first among the includes; the translation units that use it are compiled
# again and linked before the library, in which they then stand for the old ones.
# Exit status: 0 all were killed, 1 one survived or could not be tried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD build=$PWD/build/release

# One mutant: what it breaks @ file @ old text @ new text @ translation units @ test cases. The old
# text stands once in the file. rows/NAME is the row's unit that CMake writes.
mutants=$(
  cat <<'TABLE'
layer_norm forgets eps @ ops/layer_norm.h @ math::rsqrt(var + W(attrs.eps)) @ math::rsqrt(var) @ rows/layer_norm @ *norm*,*eps*
rms_norm forgets eps @ ops/rms_norm.h @ squares / W(A(lane.n)) + W(attrs.eps) @ squares / W(A(lane.n)) @ rows/rms_norm @ *norm*,*eps*
a row beyond the range passes @ core/wide.h @  && v <= kSafe<A>; @ ; @ rows/rms_norm @ *norms of 5e24*
a row below the range passes @ core/wide.h @ v >= A(1) / kSafe<A> && @ @ rows/std @ *std of 1e20*
a masked class is smoothed @ ops/cross_entropy.cpp @ (is_masked(x[j]) ? A(0) : uniform) @ uniform @ ops/cross_entropy @ *label smoothing*
log_softmax forgets its sum @ ops/log_softmax.h @ math::exp((row[j] - top) - rest) @ math::exp(row[j] - top) @ rows/log_softmax @ *log_softmax*
f16 ties away from zero @ core/half.h @ x + 0xc8000fffu + ((x >> 13) & 1u) @ x + 0xc8001000u @ tests/test_dtype @ *f16*
bf16 ties away from zero @ core/half.h @ x + 0x7fffu + ((x >> 16) & 1u) @ x + 0x8000u @ tests/test_dtype @ *bf16*
a number that does not fit is taken @ core/number.cpp @ held = fits(v, dtype) @ held = true @ core/number @ *number*,*tensors turns*
a number that becomes 0 is not told of @ core/number.cpp @ if (vanishes) @ if (false && vanishes) @ core/number @ *number*,C3*
an i64 is rounded twice on its way to f16 @ core/dtype.h @ | (low != 0 ? 0x800 : 0) @ | 0 @ core/tensor core/convert @ *i64*
as_strided adds the offset unchecked @ core/tensor.cpp @ __builtin_add_overflow(r.end, offset, &r.end) @ (r.end += offset, false) @ core/tensor @ *strided view*
as_strided steps unchecked @ core/tensor.cpp @ overflows = __builtin_mul_overflow(shape[i], strides[i], &whole) @ whole = shape[i] * strides[i] @ core/tensor @ *strided view*
clamp has a slope at its bound @ ops/clamp.h @ (x > lo || lo == -inf) @ (x >= lo || lo == -inf) @ rows/clamp @ *corners*
item<T> takes what does not fit @ core/tensor.h @ if (!v.fits<T>()) @ if (false) @ tests/test_numbers @ *item*
f64 to f16 rounds twice @ core/half.h @ explicit f16(double d) : u(from_float(round_to_odd(d))) @ explicit f16(double d) : u(from_float(float(d))) @ tests/test_dtype @ *round*
unscaling multiplies by the scale @ amp/grad_scaler.cpp @ inverse_of(state_.scale) @ state_.scale @ amp/grad_scaler @ *scale*
growth one step late @ amp/grad_scaler.h @ ++s.growth_tracker >= c.growth_interval @ ++s.growth_tracker > c.growth_interval @ amp/grad_scaler tests/test_grad_scaler @ *scale*
growth stops below the cap @ amp/grad_scaler.h @ c.growth_factor <= c.max_scale @ c.growth_factor < c.max_scale @ amp/grad_scaler tests/test_grad_scaler @ *scale*
no floor under the backoff @ amp/grad_scaler.h @ std::max(float(s.scale * c.backoff_factor), float(c.min_scale)) @ float(s.scale * c.backoff_factor) @ amp/grad_scaler tests/test_grad_scaler @ *scale*
a skip does not restart the growth @ amp/grad_scaler.h @ float(c.min_scale));\n    s.growth_tracker = 0; @ float(c.min_scale)); @ amp/grad_scaler tests/test_grad_scaler @ *scale*
fused scaled step forgets the unscale factor @ core/cpu/step.cpp @ g[j] * inverse_scale * clip @ g[j] * clip @ core/cpu/step @ *scale*,*fused*
sums leave their order @ core/sum.h @ kSumBlock = 1024 @ kSumBlock = 512 @ tests/test_sum @ *sum*
the tail of a sum goes to lane 0 @ core/sum.h @ lanes[j - whole] += f(j) @ lanes[0] += f(j) @ tests/test_sum @ *sum*
Adam without bias correction of m @ optim/step.cpp @ lr / (1 - std::pow(beta1, t)) @ lr @ optim/step @ *Adam*
Adam without bias correction of v @ optim/step.cpp @ std::sqrt(1 - std::pow(beta2, t)) @ 1.0 @ optim/step @ *Adam*
weight decay grows weights @ optim/step.cpp @ 1 - lr * decay @ 1 + lr * decay @ optim/step @ *Adam*
Adam's eps is corrected too @ core/update.h @ math::sqrt(top) / c.root2 + c.eps @ (math::sqrt(top) + c.eps) / c.root2 @ core/cpu/step @ *Adam*
SGD's nesterov is plain momentum @ core/update.h @ c.nesterov ? g + c.momentum * m : m @ m @ core/cpu/step @ *SGD*,*nesterov*
stochastic rounding has 15 bits @ core/update.h @ 16 * (e % 2) & 0xffffu @ 16 * (e % 2) & 0x7fffu @ core/cpu/step @ *round*
a master takes all when one value is written @ core/cpu/step.cpp @ if (written[j] != rounded[j]) master[j] = values[j] @ master[j] = values[j] @ core/cpu/step @ *master*
a master keeps what was written over @ core/cpu/step.cpp @ if (written[j] != rounded[j]) master[j] = values[j] @ if (written[j] == rounded[j]) master[j] = values[j] @ core/cpu/step @ *master*
set_lr flattens the groups' rates @ optim/optimizer.cpp @ *group.lr * (lr / first) @ lr @ optim/optimizer @ *rates
averages are swapped over averages @ optim/ema.cpp @ if (is_averaged(params_[i])) @ if (false) @ optim/ema @ *swapped over by others*
parameters of one name share a key @ optim/optimizer.cpp @ while (!taken.insert(key).second) key @ if (false) key @ optim/optimizer @ *parameters of one name*
an accident freezes a parameter @ models/module.cpp @ !a || !a->frozen @ !a @ models/module @ *is frozen when*
a conversion makes inf of a value @ models/module.cpp @ !detail::fits(v[i], dtype) @ false @ models/module @ *a finite value that*
clipping forgets its 1e-6 @ optim/clip.cpp @ max_norm / (norm + 1e-6) @ max_norm / norm @ optim/clip @ *clip*
clipping scales up @ optim/clip.cpp @ std::min(1.0, max_norm / (norm + 1e-6)) @ max_norm / (norm + 1e-6) @ optim/clip @ *clip*
attention's mask is turned round @ ops/attention.h @ x[j] = mask[j * mask_step_] ? @ x[j] = !mask[j * mask_step_] ? @ ops/scaled_dot_product_attention ops/attention_fused @ *attention*
causal attention sees one key ahead @ ops/scaled_dot_product_attention.cpp @ seen = call.seen_before(query + 1) @ seen = call.seen_before(query + 2) @ ops/scaled_dot_product_attention @ *attention*
fused causal attention sees one key ahead @ ops/attention_fused.cpp @ b.first + 1 - from @ b.first + 2 - from @ ops/attention_fused @ *attention*
masked_fill's mask is turned round @ ops/masked_fill.h @ return mask != A(0) ? value : x @ return mask == A(0) ? value : x @ rows/masked_fill @ *masked_fill*
ignored targets count @ ops/cross_entropy.cpp @ target[r] != attrs.ignore_index @ target[r] >= 0 @ ops/cross_entropy @ *cross_entropy*,*target*
the mean counts ignored targets @ ops/class_loss_struct.h @ std::max<Index>(1, valid) @ n @ ops/cross_entropy @ *cross_entropy*
label smoothing is not divided by the classes @ ops/cross_entropy.cpp @ uniform = smoothing / finite_classes(x, n) @ uniform = smoothing @ ops/cross_entropy @ *cross_entropy*
dropout does not scale @ ops/dropout.h @ A(0) : x * A(1 / (1 - a.p)) @ A(0) : x @ rows/dropout @ *dropout*
a Philox constant is off by one @ core/random.h @ 0xBB67AE85u @ 0xBB67AE86u @ tests/test_random @ *Philox*
what backward needs may change @ autograd/tape.cpp @ x.saved.storage->version != x.saved.version @ x.saved.storage->version < x.saved.version @ autograd/tape @ *version*,*in place*,*in-place*
f16 with bf16 promotes to f16 @ core/promotion.h @ /*f16    */ {f16, f16, f16, f16, f16, f32, @ /*f16    */ {f16, f16, f16, f16, f16, f16, @ tests/test_dtype @ *
autocast rounds f64 @ amp/autocast.cpp @ if (native == DType::f64 || !floating) @ if (!floating) @ amp/autocast @ *autocast*,*f64*
var is of the population @ ops/var.h @ double(n) - attrs.correction @ double(n) @ rows/var @ var*
warmup starts at 0 @ optim/schedule.h @ lr * double(applied + 1) / double(warmup + 1) @ lr * double(applied) / double(warmup) @ tests/test_schedule @ *
average without warmup @ optim/ema.cpp @ std::min(decay_, (1 + n) / (10 + n)) @ decay_ @ optim/ema @ *average*,*Ema*,*EMA*
an empty batch of rows is no matrix @ ops/matrix.h @ if (!empty && x.strides[d] @ if (x.strides[d] @ ops/matmul @ a product without rows*
runs of blocks of k go on in one chain @ core/cpu/product.h @ to.add = k % kDeep > 0; @ to.add = k > 0; @ core/cpu/gemm @ gemm: a product has*
runs of runs are one run @ core/cpu/product.h @ const bool first = run % kProductFan == 0; @ const bool first = run == 0; @ core/cpu/gemm @ gemm: a product has*
runs of keys go on in one @ ops/attention_fused.cpp @ from % kKeyRun > 0}); @ from > 0}); @ ops/attention_fused @ gemm: errors of attention*
a run of queries keeps the last one's sums @ ops/attention_fused.cpp @ b.first % kQueryRun == 0 ? 0 : @ b.first == 0 ? 0 : @ ops/attention_fused @ gemm: errors of attention*
an earlier run of keys keeps an old maximum @ ops/attention_fused.cpp @ if (!first) shrink_rows(all); @ if (false) shrink_rows(all); @ ops/attention_fused @ gemm: errors of attention*
images go on in one sum @ ops/conv2d.cpp @ (u - first) % kProductFan > 0); @ u > first); @ ops/conv2d @ gemm: errors of a conv*
the bias is added to each slab @ core/cpu/product.h @ else if (last && g_.bias) @ else if (g_.bias) @ core/cpu/gemm @ *product*
tasks by columns take the rows of others @ core/cpu/product.h @ by_columns ? t % down : t / across; @ t / across; @ core/cpu/gemm @ *product*
a small product forgets alpha @ core/cpu/gemm.cpp @ g.alpha == 1 && !g.accumulate @ !g.accumulate @ core/cpu/gemm @ *product*
a small product's losses go uncounted @ core/cpu/gemm.cpp @ (fits(g.c_dtype) && !Probe::current()) @ fits(g.c_dtype) @ core/cpu/gemm @ *product*
a buffer that is given back stays counted @ core/allocator.cpp @ add(small.bytes[kScratch], -int64_t(size)); @  @ core/allocator @ *buffers stay*
attention divides by no heads @ ops/attention.h @ group = std::max<Index>(1, heads @ group = std::max<Index>(0, heads @ ops/attention_fused ops/scaled_dot_product_attention @ op scaled_dot_product_attention: random*
no query head fits any key heads @ ops/scaled_dot_product_attention.cpp @ std::min(q[rank - 3], k[rank - 3]) > 0 @ k[rank - 3] > 0 @ ops/scaled_dot_product_attention @ op scaled_dot_product_attention: random*
a row of several axes repeats its first run @ core/row_io.h @ at += rest % shape[i] * strides[i], rest /= shape[i] @ at += 0 * strides[i], rest /= shape[i] @ rows/var @ op var: random*
a run of rows goes on into the next line @ core/rowwise.h @ r - at % most + most, r - at + line}) @ r - at % most + most}) @ rows/layer_norm @ rows that lie*
a thread leaves the last of its rows out @ core/rowwise.h @ first + n * (part + 1) / units, @ first + n * (part + 1) / units - 1, @ rows/layer_norm @ what a weight*
broadcast rows lose their place @ core/walk.h @ row /= sizes_[d]; @ row /= 1; @ rows/add @ op add: random*
a masked row meets an infinite slope @ core/rowwise.h @ if (some) return @ return @ rows/rms_norm @ N1: a row*
a masked channel meets an infinite slope @ ops/channel_norm.cpp @ if (!CpuLane{n}.any( @ if (false && CpuLane{n}.any( @ ops/channel_norm @ N1: a row*
an element out of a channel meets its NaN @ ops/channel_norm.cpp @ gs[j] == A(0) ? W(0) : W(gs[j]) @ W(gs[j]) @ ops/channel_norm @ N1: a row*
a position left out of a loss meets its NaN @ ops/cross_entropy.cpp @ p.counts(r) && slope(r) != A(0) @ p.counts(r) @ ops/cross_entropy @ N1:*
an infinite batch moves the running statistics @ ops/composite.cpp @ where(finite, to * (1 - m) + batch, to) @ to * (1 - m) + batch @ ops/composite @ R6:*
no small block is no Error @ core/allocator.cpp @ if (!block) pool::fail_full(size, name_of(kind)); @ if (!block) throw std::bad_alloc(); @ core/allocator @ no more memory*
strided loads are dense @ core/convert.cpp @ convert_to<A>(p[i * stride]) @ convert_to<A>(p[i]) @ core/convert @ tensors convert*
f64 to 16 bits by way of f32 @ core/convert.cpp @ p[i] = convert_to<T>(values[i]) @ p[i] = convert_to<T>(float(values[i])) @ core/convert @ tensors round*
f64 to 16 bits by way of f32, apart @ core/convert.cpp @ p[i * stride] = convert_to<T>(values[i]) @ p[i * stride] = convert_to<T>(float(values[i])) @ core/convert @ tensors round*
a NaN of few bits becomes inf in bf16 @ core/half.h @ uint16_t((x >> 16) | 0x40u) @ uint16_t(x >> 16) @ tests/test_dtype @ no payload*
AVX2 leaves a loop out @ core/per_isa.h @ void loop_v3(Args... args) {\n  Loop::run(args...); @ void loop_v3(Args...) { @ rows/exp @ every ISA this CPU has gives*
recompute draws other random numbers @ autograd/checkpoint.cpp @ outer(std::exchange(generator(), g)) @ outer(generator()) @ autograd/checkpoint @ recompute writes*
the order of a sum depends on the threads @ core/cpu/sum_to.cpp @ lanes[r % kLanes]; @ lanes[r % (8 + threads())]; @ core/cpu/sum_to @ 2 and 4 threads*
the reference optimizer does not clip @ core/plain/update.cpp @ * A(u.factors.clip) @  @ core/plain/update @ the reference optimizer*
the slope of div squares its divisor @ ops/div.h @ -g * (x / y) / y @ -g * x / (y * y) @ rows/div @ op div: what fits*
a power need fit though its slope does @ ops/pow.h @ math::pow_slope(g, x, y) @ g * y * math::pow(x, y - A(1)) @ rows/pow @ op pow: what fits*
silu beyond its end is not bounded @ ops/silu.h @ math::select(a > end, end, a) @ a @ rows/silu @ op silu: what fits*
silu's slope forgets its tail @ ops/silu.h @ math::select(x < A(0), tail, A(1) - tail) @ math::select(x < A(0), tail, A(1)) @ rows/silu @ op silu:*
a mean is inf where its sum is @ ops/pair_loss_struct.h @ std::is_same_v<A, float> && !is_finite(total) @ false @ rows/mse @ *sums and means*
gradients of parts do not add up @ autograd/tape.cpp @ accumulate(leaf.grad, addend) @ leaf.grad = addend @ autograd/tape @ every split*
a write in place loses its operand's gradient @ ops/methods.cpp @ if (y.requires_grad()) @ if (false) @ ops/methods @ *in place*
two threads add to a leaf at once @ autograd/record.cpp @ while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield(); @ busy_.test_and_set(); @ autograd/record @ one thread at a time*
two backwards go through one graph @ autograd/tape.cpp @ if (by = 0; n.walker.compare_exchange_strong(by, visit_, std::memory_order_acquire)) @ if (n.walker.exchange(visit_) != visit_) @ autograd/tape @ a hook may not go*
a recomputed function's hook runs twice @ autograd/record.cpp @ if (!replay || @ if (true || @ autograd/record @ *checkpointed*
scaled and other gradients are added @ autograd/loss_scale.cpp @ if (carried != scale) fail_meeting @ if (false) fail_meeting @ autograd/loss_scale @ a sum of a scaled*
a scaled gradient times a number is taken for unscaled @ autograd/loss_scale.cpp @ return scale(0) * scale(1); @ return 1; @ autograd/loss_scale @ what is computed*
recompute moves running statistics again @ ops/composite.cpp @ || Recorder::replaying() @  @ ops/composite @ *running statistics*
TABLE
)

trim() { sed 's/^ *//; s/ *$//' <<<"$1"; }
unit_source() {
  case $1 in
    rows/*) echo "$build/generated/$1.cpp" ;;
    *) echo "$root/$1.cpp" ;;
  esac
}

# Compiles unit $1 with the overlay; prints the object's path.
compile() {
  local source command object=$work/${1//\//_}.o from
  source=$(unit_source "$1")
  command=$(grep -F -- " -c $source" <<<"$commands" | head -n 1)
  [[ -n $command ]] || { echo "no command compiles $source" >&2 && return 1; }
  from=$work/minim/$1.cpp
  [[ -f $from ]] || from=$source
  command=${command%% -MD*}
  command=${command#ccache }
  command=$(sed 's/ -include [^ ]*cmake_pch.hxx//' <<<"$command")  # it holds headers as they are
  (cd "$build" && ${command/ -I/ -I$work -I} -Wno-error -w -o "$object" -c "$from") >&2 || return 1
  echo "$object"
}

# wrong_place FILE OLD: why FILE cannot be mutated; nothing where it can.
wrong_place() {
  local old text after
  printf -v old '%b' "$2"
  text=$(<"$1") after=${text#*"$old"}
  [[ $after != "$text" ]] || { echo "the old text is not in the file" && return; }
  [[ $after != *"$old"* ]] || echo "the old text is there twice"
}

# try FILE OLD NEW UNITS TESTS; prints killed, survived or why it could not be tried.
try() {
  local file=$1 old new units=$4 tests=$5 text unit object objects=() link place
  printf -v old '%b' "$2"
  printf -v new '%b' "$3"
  text=$(<"$file")
  local why=$(wrong_place "$file" "$2") after=${text#*"$old"}
  [[ -z $why ]] || { echo "$why" && return; }
  rm -rf "$work" && mkdir -p "$work/minim/$(dirname "$file")"
  printf '%s\n' "${text%%"$old"*}$new$after" >"$work/minim/$file"
  link=$link_command
  for unit in $units; do
    if ! object=$(compile "$unit" 2>"$work/log"); then
      grep -q 'static assertion failed' "$work/log" && echo killed || echo "does not compile"
      return
    fi
    place=CMakeFiles/minim_tests.dir/$unit.cpp.o
    link=${link/" $place "/ }
    objects+=("$object")
  done
  # Before all others, so that of two equal inline functions the mutated one is kept.
  link=${link/ CMakeFiles/ ${objects[*]} CMakeFiles}
  link=${link/-o minim_tests/-o $work/minim_tests}
  (cd "$build" && eval "$link") >&2 || { echo "does not link" && return; }
  if ! timeout 300 "$work/minim_tests" --test-case="$tests" >"$work/log" 2>&1; then
    echo killed
  elif grep -q 'test cases: *0 ' "$work/log"; then
    echo "no test is called $tests"
  else
    echo SURVIVED
  fi
}

if [[ ${1-} == --list ]]; then
  cut -d '@' -f 1,2 <<<"$mutants"
  exit
fi
if [[ ${1-} == --check ]]; then
  lost=0
  while IFS=@ read -r what file old _; do
    why=$(wrong_place "$(trim "$file")" "$(trim "$old")")
    [[ -z $why ]] || { echo "$(trim "$what"): $why, $(trim "$file")" && lost=1; }
  done <<<"$mutants"
  exit $lost
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commands=$(ninja -C "$build" -t commands minim_tests)
link_command=$(grep -- ' -o minim_tests ' <<<"$commands" | grep -v ' -c ')
link_command=${link_command#: && }
link_command=${link_command% && :*}
link_command=${link_command%%&& cd *}

total=0 killed=0
while IFS=@ read -r what file old new units tests; do
  [[ $what == *"${1-}"* ]] || continue
  verdict=$(try "$(trim "$file")" "$(trim "$old")" "$(trim "$new")" "$units" "$(trim "$tests")")
  total=$((total + 1))
  [[ $verdict != killed ]] || killed=$((killed + 1))
  printf '%-10s %-50s %s\n' "$verdict" "$(trim "$what")" "$(trim "$file")"
done <<<"$mutants"
echo "$killed of $total mutants killed"
[[ $total -gt 0 && $killed == "$total" ]]
