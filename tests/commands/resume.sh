#!/usr/bin/env bash
# A run that was killed, in the midst of a save too, or interrupted, and resumed ends with the same
# bytes as one that was left alone, in each precision and on any number of threads.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

setting=(--toy-tokens 4000 --layers 1 --heads 2 --embd 16 --block 16 --batch 4 --dropout 0.1
  --eval-every 8 --log-every 1)
kills=0 random_kills=0 saves_hit=0
seed=${MINIM_KILL_SEED:-$RANDOM}  # of the moments; how far a run is by then also depends on the machine
RANDOM=$seed
echo "MINIM_KILL_SEED=$seed"

# What tells runs apart is how fast they were.
log_of() { sed 's/"tokens_per_second":[^,}]*//' "$1/log.jsonl"; }

same_run() {
  local file
  for file in model.safetensors optimizer.safetensors state.json; do
    same_bytes "$1/checkpoint/$file" "$2/checkpoint/$file"
  done
  diff <(log_of "$1") <(log_of "$2") || failed "the logs of $1 and $2 differ"
}

# start DIR FLAGS...: in the background, from the last checkpoint where there is one.
start() {
  local dir=$1
  shift
  if [[ -e $dir/checkpoint ]]; then
    "$minim" train "${setting[@]}" --resume "$dir" "$@" >stdout 2>stderr &
  else
    "$minim" train "${setting[@]}" --out "$dir" "$@" >stdout 2>stderr &
  fi
  running=$!
}

finish() {
  wait "$running" 2>/dev/null
  status=$?
  running=
}

kill_now() {
  kill -9 "$running" 2>/dev/null
  finish
  [[ $status -eq 0 || $status -eq 137 ]] || failed "exit status $status of a killed run"
  [[ $status -ne 137 ]] || kills=$((kills + 1))
}

random_milliseconds() {
  local ms=$((RANDOM % $1))
  printf '%d.%03d' $((ms / 1000)) $((ms % 1000))
}

kill_at_random() {
  local dir=$1 landed=$kills
  shift
  start "$dir" "$@"
  sleep "$(random_milliseconds $((duration / 2 + 1)))"
  kill_now
  random_kills=$((random_kills + kills - landed))
}

# Kills the run once its staging directory, which only a save has, is there.
kill_in_save() {
  local dir=$1
  shift
  touch before
  start "$dir" "$@"
  while kill -0 "$running" 2>/dev/null && ! [[ $dir/checkpoint.tmp -nt before ]]; do :; done
  kill_now
  [[ ! $dir/checkpoint.tmp -nt before ]] || saves_hit=$((saves_hit + 1))
}

killed_and_resumed() {
  local dir=killed-$1 flags=(--precision "$1" --steps 60) hit=$saves_hit attempt
  for attempt in {1..20}; do  # a fast run may end before the kill
    rm -rf "$dir"*
    kill_at_random "$dir" "${flags[@]}" --checkpoint-every 4
    kill_in_save "$dir" "${flags[@]}" --checkpoint-every 1
    kill_at_random "$dir" "${flags[@]}" --checkpoint-every 3
    kill_in_save "$dir" "${flags[@]}" --checkpoint-every 1
    [[ $saves_hit -eq $hit ]] || break
  done
  [[ $saves_hit -gt $hit ]] || failed "no kill landed in a save"
  start "$dir" "${flags[@]}" --checkpoint-every 4
  finish
  [[ $status -eq 0 ]] || failed "exit status $status of the last resumed run"
}

whole_and_killed() {
  local precision=$1 before=${EPOCHREALTIME/./}
  succeeds train "${setting[@]}" --precision "$precision" --steps 60 --checkpoint-every 4 \
    --out "whole-$precision" --threads 1
  duration=$(((${EPOCHREALTIME/./} - before) / 1000 + 1))
  killed_and_resumed "$precision"
  same_run "whole-$precision" "killed-$precision"
  echo "$precision: the same bytes; so far $random_kills kills at random points, $saves_hit in a save"
}

for precision in fp32 amp-bf16 amp-fp16 bf16-master fp16-master bf16-sr; do
  whole_and_killed $precision
done
for ((more = 0; random_kills < 10 && more < 10; ++more)); do  # some came after the end
  rm -rf whole-fp32*
  whole_and_killed fp32
done
[[ $random_kills -ge 10 ]] || failed "only $random_kills kills at random points landed"

# Token files, read in epochs of 12 steps, with a file of its own to validate on.
for name in one two val; do
  for ((i = 0; i < 400; ++i)); do printf "\\x$(printf %02x $((i * i % 50 + ${#name})))\\x00"; done >$name.bin
done
toy=("${setting[@]}")
setting=(--data one.bin two.bin --val-data val.bin --vocab 53 --shuffle epoch --layers 1 --heads 2
  --embd 16 --block 16 --batch 4 --dropout 0.1 --eval-every 8 --log-every 1 --checkpoint-every 16)
succeeds train "${setting[@]}" --steps 200 --out whole-files
start killed-files --steps 200
until [[ -e killed-files/log.jsonl && $(wc -l <killed-files/log.jsonl) -gt 60 ]]; do
  kill -0 "$running" || failed "the run ended too early"
done
kill_now
[[ $status -eq 137 ]] || failed "the kill came too late"
start killed-files
finish
[[ $status -eq 0 ]] || failed "exit status $status of the resumed run on files"
grep -q "resumed at step" stdout || failed "not resumed"
same_run whole-files killed-files
setting=("${toy[@]}")
echo "several token files in epochs, killed and resumed: the same bytes"

before=$(contents killed-fp32)
succeeds train --resume killed-fp32
[[ $(contents killed-fp32) == "$before" ]] || failed "resuming a finished run changed it"
echo "a finished run that is resumed stays as it is"

for precision in fp32 amp-bf16; do
  for threads in 1 2; do
    succeeds train --toy-tokens 4000 --layers 1 --heads 2 --embd 64 --block 64 --batch 8 --steps 3 \
      --dropout 0.1 --precision $precision --threads $threads --out "threads-$threads"
  done
  same_bytes threads-1/checkpoint/model.safetensors threads-2/checkpoint/model.safetensors
done
echo "one thread and two: the same bytes"

# A background job of a script ignores SIGINT until the run has set its handler, which it has by its
# first line of log.
long=(--steps 600 --precision amp-fp16)
succeeds train "${setting[@]}" "${long[@]}" --out long
for signal in INT TERM; do
  dir=stopped-by-$signal
  start "$dir" "${long[@]}"
  until [[ -s $dir/log.jsonl ]]; do kill -0 "$running" || failed "the run ended too early"; done
  kill "-$signal" "$running"
  finish
  [[ $status -eq 0 ]] || failed "exit status $status after SIG$signal"
  grep -q "stopped and saved at step" stdout || failed "SIG$signal did not stop the run"
  [[ ! -e $dir/summary.json ]] || failed "an unfinished run wrote its summary"
  succeeds train --resume "$dir"
  same_run long "$dir"
done
echo "stopped by SIGINT and by SIGTERM, saved, resumed: the same bytes"

# From another directory, with another number of steps.
mkdir -p elsewhere/deep project && printf 'to be or not to be, that is the question\n%.0s' {1..20} >project/text
(cd project && "$minim" train --layers 1 --heads 2 --embd 16 --block 16 --batch 4 --steps 4 \
  --data text --out run >../stdout 2>../stderr) || failed "a run of project/text"
(cd elsewhere/deep && "$minim" train --resume ../../project/run --steps 8 >../../stdout 2>../../stderr) ||
  failed "resumed from elsewhere"
grep -q "^settings that are others from here on: steps 4 -> 8; the rate of the next step is 0.0015, not 0$" \
  stdout || failed "what changed is not told"
(cd project && "$minim" train --config run/config.toml --steps 2 >../stdout 2>../stderr) &&
  [[ -e project/run.1/config.toml ]] || failed "the saved configuration has another out"
for checkpoint in run/checkpoint run/checkpoint/ ./run/./checkpoint//; do
  refuses project "is a checkpoint: give the directory of its run, --resume project/run" \
    train --resume project/$checkpoint --steps 12
done
refuses project "--resume project/run" train --resume project/run/checkpoint --out project/other
echo "relative data are found from another directory; what changed is told"

fp32=killed-fp32
refuses $fp32 "heads: 2 in the checkpoint, 4 now; embd: 16 in the checkpoint, 32 now" \
  train --resume $fp32 --embd 32 --heads 4
refuses $fp32 "precision: fp32 in the checkpoint, amp-bf16 now" \
  train --resume $fp32 --precision amp-bf16
printf 'to be or not to be, that is the question\n%.0s' {1..20} >text
refuses $fp32 "vocab: 36 in the checkpoint, 15 now" train --resume $fp32 --data text
echo "other sizes, another precision, another vocabulary: each difference is named, nothing is lost"
