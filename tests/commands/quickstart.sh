#!/usr/bin/env bash
# minim quickstart, short: four runs, a sample of each and one table. Its flags are those of train.
. "$(dirname "$0")/common.sh"
short=(--batch 2 --accum 1)
succeeds quickstart "${short[@]}" --steps 2 --out two
[[ $(ls two | xargs) == "1-fp32 2-amp-bf16 3-amp-fp16 4-amp-fp16" ]] || failed "the runs are: $(ls two)"
for run in two/*; do
  [[ -s $run/checkpoint/model.safetensors && $(<"$run/summary.json") == *'"steps": 2'* ]] ||
    failed "$run has no checkpoint of step 2"
done
titles=("fp32" "amp-bf16" "amp-fp16" "amp-fp16, no loss scale")
for title in "${titles[@]}"; do
  grep -qx -- "== $title ==" stdout || failed "no run is called $title"
  grep -qx -- "-- a sample, $title:" stdout || failed "no sample of $title"
  tail -n 4 stdout | grep -qE "^$title  +[0-9.]+  +[0-9.]+ %  +0  +[0-9]+  +[0-9.]+$" ||
    failed "no line of the table is of $title"
done
[[ $(tail -n 5 stdout | head -n 1) == "precision "*"loss above floor"* ]] || failed "no table"
# The loss scale is what keeps small gradients of f16.
[[ $(tail -n 2 stdout | grep -c ' 0.00 %') -eq 1 ]] || failed "the last run loses as much as the third"

succeeds quickstart "${short[@]}" --steps=2 --out=again
for run in two/*; do same_bytes "$run/checkpoint/model.safetensors" "again/${run#two/}/checkpoint/model.safetensors"; done
for flag in precision loss-scale config resume profile-trace; do
  refuses two "--$flag is for one run, and quickstart makes four" quickstart --$flag fp32 --out two
done
refuses two "unknown flag --stepss; did you mean --steps?" quickstart --stepss 2 --out two
refuses two "warmup = 5 (--warmup) is more than steps = 2 (--steps)" quickstart --steps 2 --warmup 5 --out two
succeeds quickstart "${short[@]}" --steps 1 --policy lean --out lean
grep -q "policy lean" stdout || failed "--policy is not applied"
grep -q 'policy = "torch"' lean/1-fp32/config.toml || failed "fp32 has a policy"
printf 'to be or not to be, that is the question\n%.0s' {1..50} >text
succeeds quickstart "${short[@]}" --steps 1 --data text --out text-runs
grep -q "^precision  *validation loss" stdout || failed "a text has no floor"
succeeds quickstart --help
grep -q "^Usage: minim quickstart" stdout && grep -q -- "--batch N  .*(default 128)" stdout || failed "not quickstart's help"
! grep -qE -- "--(precision|loss-scale|resume|config|profile-trace)" stdout || failed "flags that it refuses"
