#!/usr/bin/env bash
# What happens around a run: two at once, streams that are closed or full, signals, a disk that
# refuses, a loss that is no number. Nothing is lost, and the exit status tells.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

small=(--toy-tokens 4000 --layers 1 --heads 2 --embd 16 --block 16 --batch 4 --eval-every 0
  --log-every 1)

# start DIR FLAGS...: a run in the background, which is under way when this returns.
start() {
  local dir=$1
  shift
  "$minim" train "${small[@]}" --out "$dir" --steps 1000000 "$@" >background 2>&1 &
  running=$!
  until [[ -s $dir/log.jsonl ]]; do kill -0 "$running" || failed "the run ended too early"; done
}
finish() {
  wait "$running" 2>/dev/null
  status=$?
  running=
}

start live
refuses none "in use by process $running" train "${small[@]}" --steps 5 --out live
refuses none "in use by process $running" train "${small[@]}" --steps 5 --out live/
refuses none "in use by process $running" train --resume live
[[ ! -e live.1 ]] || failed "a live run was moved aside"
echo short >short
refuses none "'nowhere' does not exist" train "${small[@]:2}" --data nowhere --out live
refuses none "training split of short has 5 tokens; block 16 needs >= 17" \
  train "${small[@]:2}" --data short --out live
kill -9 "$running"
finish
succeeds train "${small[@]}" --steps 5 --out live
[[ -e live.1/log.jsonl && ! -e live/lock ]] || failed "a dead run holds its directory"
echo "one run at a time in a directory; a killed one holds nothing"

# Both wait for their data, the first with the directory in its hands.
mkfifo first second
printf 'to be or not to be, that is the question\n%.0s' {1..20} >text
"$minim" train "${small[@]:2}" --data first --steps 5 --out twice >background 2>&1 &
running=$!
for ((wait = 0; wait < 500; ++wait)); do [[ ! -s twice/lock ]] || break; sleep 0.01; done
real=$minim
in_time() { timeout 10 "$real" "$@"; }
minim=in_time
refuses none "in use by process $running" train "${small[@]:2}" --data second --steps 5 --out twice
minim=$real
for ((wait = 0; wait < 1000; ++wait)); do [[ ! -s background ]] || break; sleep 0.01; done
[[ $(<background) == "minim: warning: data file 'first' is a pipe that nobody has opened to write to: waiting"* ]] ||
  failed "a run that waits for its data does not say so"
cat text >first
finish
[[ $status -eq 0 && -e twice/summary.json && ! -e twice.1 && ! -e twice/lock ]] ||
  failed "exit status $status of the first of two"
"$minim" train "${small[@]:2}" --data second --steps 5 --out new/never >background 2>&1 &
running=$!
for ((wait = 0; wait < 500; ++wait)); do [[ ! -s new/never/lock ]] || break; sleep 0.01; done
: >second
finish
[[ $status -eq 2 && ! -e new ]] || failed "a run that did not begin leaves its directory"
echo "a directory is held from before the data are read"

# Who reads a live run sees one checkpoint or the next.
start live2 --checkpoint-every 1
until [[ -e live2/checkpoint ]]; do kill -0 "$running" || failed "the run ended too early"; done
for ((i = 0; i < 40; ++i)); do
  succeeds sample --model live2 --count 1
  [[ ! -s stderr ]] || failed "a live run is read as damaged"
done
kill -9 "$running"
finish
echo "a live run with a save at each step is read 40 times"

for ((i = 0; i < 800; ++i)); do printf "\\x$(printf %02x $((i * i % 50)))\\x00"; done >ids.bin
cp ids.bin spare.bin
tokens=("${small[@]:2}" --data ids.bin --vocab 50 --steps 1000000)
"$minim" train "${tokens[@]}" --out shrunk >stdout 2>stderr &
running=$!
until [[ -s shrunk/log.jsonl ]]; do kill -0 "$running" || failed "the run ended too early"; done
touch ids.bin
step=$(wc -l <shrunk/log.jsonl)
until [[ $(wc -l <shrunk/log.jsonl) -gt $((step + 50)) ]]; do kill -0 "$running" || failed "a touch ended the run"; done
truncate -s 100 ids.bin
finish
[[ $status -eq 2 && $(<stderr) == *"'ids.bin' was changed while it was in use"* ]] || failed "status $status"
grep -q "saved at step" stdout && succeeds sample --model shrunk --count 3
cp spare.bin ids.bin
"$minim" train "${tokens[@]}" --out rewritten >background 2>&1 &
running=$!
until [[ -s rewritten/log.jsonl ]]; do kill -0 "$running" || failed "the run ended too early"; done
succeeds data text --to ids.bin
sleep 0.2
kill -INT "$running"
finish
[[ $status -eq 0 ]] || failed "exit status $status of a run whose file was written anew"
before=$(contents ids.bin)
head -c 200000 /dev/zero | tr '\0' 'x' >large
run_limited() { (ulimit -f 100 && exec "$real" "$@"); }
minim=run_limited
refuses ids.bin "'ids.bin' cannot be written" data large --to ids.bin
minim=$real
[[ $(contents ids.bin) == "$before" && ! -e ids.bin.tmp ]] || failed "a token file was lost"
for ((i = 0; i < 40000; ++i)); do echo "line $i of a longer text"; done >long
succeeds data text --to kept.bin
cp kept.bin old.bin && cp kept.bin.tokenizer.json old.bin.tokenizer.json
succeeds data long --to new.bin
for ((i = 1; i <= 25; ++i)); do
  "$minim" data long --to kept.bin >/dev/null 2>&1 &
  running=$!
  sleep "0.0$((i % 5 + 1))$((i / 5))"
  kill -9 "$running" 2>/dev/null
  finish
  of=old
  cmp -s kept.bin old.bin || { of=new && same_bytes kept.bin new.bin; }
  [[ ! -e kept.bin.tokenizer.json ]] || same_bytes kept.bin.tokenizer.json $of.bin.tokenizer.json
  succeeds data text --to kept.bin
done
tr 'lo' '#%' <long >loud
succeeds data loud --to loud.bin
for ((i = 1; i <= 15; ++i)); do
  "$minim" data long --to two.bin >/dev/null & first=$!
  "$minim" data loud --to two.bin >/dev/null || failed "the second of two writers"
  wait "$first" || failed "the first of two writers"
  of=new
  cmp -s two.bin new.bin || { of=loud && same_bytes two.bin loud.bin; }
  same_bytes two.bin.tokenizer.json $of.bin.tokenizer.json
done
echo "a token file that changes ends its run, saved, one that is touched does not; one that is written anew is another file"

succeeds train "${small[@]}" --steps 2 --out whole
succeeds train "${small[@]}" --steps 2 --out out/named
for again in 1 2; do succeeds train "${small[@]}" --steps 2; done
[[ $(ls out | xargs) == "named run run.1" ]] || failed "the default --out is not a run of its own"
for inner in whole/checkpoint whole/checkpoint/more whole/checkpoint.new; do
  refuses "$inner" "is a checkpoint of a run" train "${small[@]}" --steps 2 --out "$inner"
done
refuses whole/config.toml "one of the run's own files" \
  train "${small[@]}" --steps 2 --out whole --profile-trace whole/config.toml
refuses long "a file that the run reads" \
  train --data long --steps 2 --out traced --profile-trace ./long
succeeds sample --model whole --count 5
echo "neither --out nor --profile-trace takes a file that a run needs"

mkdir planted && echo mine >mine
for name in lock log.jsonl config.toml.tmp; do
  rm -rf planted && mkdir planted && ln -s ../mine planted/$name
  run train "${small[@]}" --steps 2 --out planted
  [[ $(<mine) == mine ]] || failed "planted/$name was followed"
done
mkdir real-run && ln -s real-run linked
succeeds train "${small[@]}" --steps 2 --out linked
succeeds train "${small[@]}" --steps 2 --out linked
[[ -L linked && -e real-run/summary.json && -e real-run.1/summary.json ]] || failed "--out is a link"
echo "links that somebody planted are not followed; --out may be one"

"$minim" train "${small[@]}" --steps 5 --out closed >&- 2>stderr </dev/null || failed "closed stdout"
[[ $(grep -vc '^{' closed/log.jsonl) -eq 0 ]] || failed "log.jsonl became the standard output"
"$minim" info <&- >&- 2>&- || failed "everything closed"
for words in "ops" "info" "help" "--version" "train --help" "sample --model live --count 5" \
  "eval --model live --data toy" "train ${small[*]} --steps 5 --out full"; do
  # shellcheck disable=SC2086
  "$minim" $words >/dev/full 2>stderr
  status=$?
  [[ $status -eq 1 && $(<stderr) == *"standard output could not be written"* ]] ||
    failed "exit status $status into a full device: $words"
done
echo "a closed standard output is silent, a full one an error"

start hung-up
kill -HUP "$running"
finish
[[ $status -eq 0 ]] || failed "exit status $status after SIGHUP"
grep -q "stopped and saved at step" background || failed "SIGHUP did not save"
{ "$minim" train "${small[@]}" --steps 1000000 --out piped 2>stderr; echo $? >piped-status; } |
  head -n 3 >/dev/null
[[ $(<piped-status) -eq 1 ]] || failed "exit status $(<piped-status) without a reader"
grep -q "stopped and saved at step" stderr || failed "nothing was saved without a reader"
grep -q "who read it has closed the pipe" stderr || failed "a closed pipe is told as a full disk"
echo "a hang-up and a reader that leaves: saved"

start accumulating
kill -9 "$running" && finish
"$minim" train "${small[@]}" --accum 1000000000 --steps 2 --out accumulating >background 2>&1 &
running=$!
until [[ -s background ]] && grep -q training background; do kill -0 "$running" || failed "ended"; done
sleep 0.3
kill -INT "$running"
finish
[[ $status -eq 0 ]] || failed "exit status $status"
grep -q "saved at step 0" background || failed "SIGINT was not seen among the micro-batches"
echo "a signal among many micro-batches is seen"

(ulimit -f 40 && exec "$minim" train "${small[@]}" --steps 100000 --out limited) \
  >stdout 2>stderr
status=$?
[[ $status -eq 2 && $(<stderr) == *"log.jsonl"*"cannot be written"* ]] || failed "status $status"
grep -q "saved at step" stdout || failed "nothing was saved when the log could not be written"
succeeds sample --model limited --count 3
echo "a log that cannot be written: saved first"

run train "${small[@]}" --steps 12 --lr 1e30 --clip 0 --out broken
[[ $status -eq 1 && $(<stderr) == *"not finite from step"* ]] || failed "status $status of a nan"
! grep -q -e '-nan' stdout || failed "a nan has a sign"
run eval --model broken --data toy
[[ $status -eq 1 && $(<stderr) == *"the weights of"* ]] || failed "status $status of eval"
! grep -q -e '-nan' stdout || failed "a nan has a sign"
echo "a loss that is no number is an error with its first step"
