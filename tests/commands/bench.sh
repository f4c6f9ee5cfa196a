#!/usr/bin/env bash
# minim bench: which cases run, the numbers as JSON, and what changed since an earlier file. No time
# is asserted.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

refused=none  # the directory that must stay as it was
if "$minim" bench --group ceilings --seconds 0.0001 2>&1 | grep -q "built without"; then
  refuses $refused "libbenchmark-dev" bench
  echo "built without Google Benchmark: it says what to install"
  exit 0
fi

refuses $refused "group = row (--group)" bench --group row
refuses $refused "'rows/relu)' is no regular expression" bench --filter "rows/relu)"
refuses $refused "--filter has 20001 characters" bench --filter "$(printf '(%.0s' {1..10000})x$(printf ')%.0s' {1..10000})"
real=$minim
in_time() { timeout 10 "$real" "$@"; }
minim=in_time
refuses $refused "no case of --group gemm" bench --group gemm --filter '(.*)*(.*)*z'
minim=$real
refuses $refused "no case of --group gemm has 'relu' in its name" bench --group gemm --filter relu
refuses $refused "seconds = 0 (--seconds)" bench --seconds 0
refuses $refused "seconds = inf (--seconds)" bench --seconds inf
refuses $refused "threads = -1 (--threads)" bench --threads -1
refuses $refused "unexpected word 'rows'" bench rows
refuses $refused "did you mean" bench --regex relu
refuses $refused "'nowhere' does not exist" bench --compare nowhere
refuses $refused "'nowhere/x.json' cannot be written" bench --json nowhere/x.json
ln -s target.json link.json
refuses $refused "is no regular file" bench --json link.json
[[ -L link.json && ! -e target.json ]] || failed "link.json was replaced or followed"
echo '{"threads": 1, "cases": [{"name": "x"}]}' >other.json
refuses $refused "'other.json' is no file of minim bench --json" bench --compare other.json
echo 'no JSON' >text.json
refuses $refused "'text.json' is no file of minim bench --json" bench --compare text.json
echo '{"threads": 7, "cases": []}' >seven.json
refuses $refused "'seven.json' was measured with 7 threads, not 1: give --threads 7" \
  bench --threads 1 --compare seven.json
echo "bad flags and files: one line, before anything is measured"

quick=(bench --seconds 0.0001 --threads 1)
succeeds "${quick[@]}" --filter "relu/(forward|backward)/b?f(16|32)$" --json first.json
for case in ceilings/multiply-adds/t1 "ceilings/copy of 24 MB/t1" rows/relu/forward/f16 \
  rows/relu/forward/bf16 rows/leaky_relu/backward/f32; do
  grep -q "\"name\": \"$case\"" first.json || failed "no $case in first.json"
done
[[ $(grep -c '"name": "rows/' first.json) -eq 12 ]] || failed "other rows than relu and leaky_relu"
grep -q '^rows/relu/forward  *GB/s  ' stdout || failed "no line for relu"
! grep -q 'GFLOP/s.*%' stdout || failed "relu counted in multiply-adds"

succeeds "${quick[@]}" --filter "relu/forward/f32" --compare first.json --markdown
grep -q '^| case | ns before | ns now | speed, now / before |$' stdout || failed "no comparison"
[[ $(grep -c '^| rows/[a-z_]*/forward/f32 | [0-9]* | [0-9]* | [0-9.]* |$' stdout) -eq 2 ]] ||
  failed "not two rows compared"
succeeds "${quick[@]}" --group ceilings
[[ $(grep -c '/t1' stdout) -eq 3 ]] || failed "not three ceilings on one thread"
echo "cases by regular expression; JSON; the comparison"

for words in "gemm 48x64,32,64 GFLOP/s" "attention 12,4,64,32/backward GFLOP/s" "overhead recorded ns" \
  "step small/t1/amp-fp16-lean tokens/s" "rows /(matmul|conv2d)/backward/f16 GFLOP/s" \
  "rows /(cross_entropy|where|gather|scatter_add|group_norm)/.*/bf16 GB/s"; do
  read -r group filter unit <<<"$words"
  succeeds "${quick[@]}" --group "$group" --filter "$filter"
  grep -q "^$group/.* $unit  *[0-9]\|^$group/.*[0-9]  *$unit" stdout || failed "no $unit: $words"
done
grep -q 'activations' stdout && failed "bytes of a step where there is none"
succeeds "${quick[@]}" --group step --filter "small/t1/amp-bf16-lean" --json step.json
grep -q 'activations  *weights  *masters  *moments' stdout || failed "no bytes by kind"
grep -q '"activations": [1-9]' step.json || failed "no activations in step.json"
grep -q '"relative"' first.json || failed "no ratio in a set of several"
! grep -q '"relative"' step.json || failed "a ratio where each case is alone"
echo "every group, each in its unit"
