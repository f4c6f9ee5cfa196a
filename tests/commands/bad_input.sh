#!/usr/bin/env bash
# Bad input gets one line that says what is wrong, exit status 2, and costs nothing: no directory is
# made, and a run that is there stays as it was.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

small=(--toy-tokens 4000 --layers 1 --heads 2 --embd 16 --block 16 --batch 4)

# The same against a new directory and against one that holds a run.
refuses_train() {
  local expected=$1
  shift
  refuses new "$expected" train "$@" --out new
  refuses run "$expected" train "$@" --out run
}

succeeds train "${small[@]}" --steps 8 --checkpoint-every 4 --eval-every 0 --out run

: >empty
printf 'a short text' >short
printf 'valid \xff\xfe not' >broken
printf 'To be, or not to be, that is the question.\n%.0s' {1..20} >text
printf '\x01\x00\x02\x00\x63\x00%.0s' {1..100} >raw.bin  # ids 1, 2 and 99
printf '\x01\x00\x02' >odd.bin
printf '[model]\nlayrs = 1\n' >unknown.toml
printf '[train]\nlr = nan\n' >nan.toml
printf '[train\n' >broken.toml
printf '[input]\ndata = "a\\u0000b"\n' >nul.toml

refuses_train "'nowhere' does not exist" --data nowhere
refuses_train "'empty' is empty" --data empty
refuses_train "is a directory" --data run
refuses_train "UTF-8" --data broken
refuses_train "needs >= 65" --data short
refuses_train "--toy-tokens must be at least" --toy-tokens 5
refuses_train "has token id 99 at file offset" --data raw.bin --vocab 50
refuses_train "give the size of their vocabulary: --vocab N" --data raw.bin
refuses_train "odd size" --data odd.bin --vocab 50
refuses_train "'text' and 'raw.bin': texts and token files (.bin) cannot be mixed" --data text raw.bin
refuses_train "cannot be mixed" --data text --val-data raw.bin
refuses_train "'nowhere' does not exist" --data text --data nowhere
refuses_train "'nowhere' does not exist" --data text --val-data nowhere
refuses_train "contradicts val-data" --data text --val-data text --val-fraction 0.2
refuses_train "val-fraction = 1" --val-fraction 1
refuses_train "unexpected word 'short'" --steps 3 short
real=$minim
in_time() { timeout 10 "$real" "$@"; }
minim=in_time
refuses_train "'/dev/zero' is a device" --data /dev/zero
minim=$real
printf '\xef\xbb\xbf' >mark
refuses_train "'mark' is empty" --data mark
echo "data that cannot be trained on"

refuses_train "not divisible by heads = 3" --embd 16 --heads 3
refuses_train "lr = -1 (--lr): expected a number above 0" --lr -1
refuses_train "lr = nan" --lr nan
refuses_train "clip = inf" --clip inf
refuses_train "dropout = 1 (--dropout)" --dropout 1
refuses_train "steps = 0" --steps 0
refuses_train "(profile-trace) cannot be written" --profile-trace nowhere/x.json
refuses_train "(profile-trace) cannot be written" --profile-trace .
refuses_train "steps = 1e3 (--steps): expected a whole number" --steps 1e3
refuses_train "min-lr = 1" --lr 0.1 --min-lr 1
refuses_train "is more than steps = 5" --steps 5 --warmup 6
refuses_train "contradicts precision" --precision bf16-master --loss-scale dynamic
refuses_train "contradicts precision" --precision fp32 --loss-scale 1024
refuses_train "loss-scale = nan" --precision amp-fp16 --loss-scale nan
refuses_train "fits f32" --precision amp-fp16 --loss-scale 1e300
refuses_train "did you mean amp-fp16?" --precision fp16
refuses_train "unknown flag --layrs; did you mean --layers?" --layrs 2
refuses_train "fits f32" --precision amp-fp16 --loss-scale 1e-50
refuses_train "lr is given twice" --lr 1 --lr 2
refuses_train "needs a value" --steps
refuses_train "'nowhere'" --config nowhere
refuses_train "did you mean 'layers' in [model]?" --config unknown.toml
refuses_train "nan.toml:2" --config nan.toml
refuses_train "this is not TOML" --config broken.toml
refuses_train "parameters of a model" --layers 1000000000 --embd 1000000 --heads 1
refuses_train "activations of batch 1000000000000 " --batch 1000000000000
refuses_train "--toy-tokens need at least 8 PB" --toy-tokens 1000000000000000
refuses_train "--vocab has no effect here" --data text --vocab 5
refuses_train "--vocab has no effect here" --vocab 5
refuses_train "--tokenizer has no effect here" --data raw.bin --vocab 100 --tokenizer byte
refuses_train "--toy-tokens has no effect here" --data text --toy-tokens 50
for precision in fp32 bf16-master fp16-master bf16-sr; do
  refuses_train "--policy has no effect here" --precision $precision --policy lean
done
refuses run "--policy has no effect here" train --resume run --steps 12 --policy lean
refuses_train "--min-lr has no effect here" --schedule constant --min-lr 1e-4
refuses_train "NUL byte" --config nul.toml
printf '[input]\ndata = []\n' >none.toml
refuses_train "input.data (none.toml:2) is an empty list" --config none.toml
printf '[input.data]\n' >table.toml
refuses_train "input.data (table.toml:1): expected a value, not a table" --config table.toml
printf '[modle]\n' >section.toml
refuses_train "unknown section 'modle' (section.toml:1)" --config section.toml
printf 'a%.0s.' {1..100000} >dots.toml && printf 'a = 1\n' >>dots.toml
refuses_train "dots.toml:1: more than 200 dots" --config dots.toml
printf '[model]\nkv-heads = 2\n' >kv.toml
refuses_train "kv-heads = 2 (kv.toml:2) contradicts model = gpt" --config kv.toml
refuses_train "--bias has no effect here" --model llama --no-bias
long=$(printf 'x%.0s' {1..252})
refuses new "too long a path" train "${small[@]}" --out "new/$long"
refuses new "too long a path" train "${small[@]}" --out "new$(printf '/x%.0s' {1..2040})"
CUDA_VISIBLE_DEVICES='' refuses_train "--device cpu" --device cuda
refuses new "did you mean train?" trian
refuses short "short" train "${small[@]}" --out short
refuses short "short" train "${small[@]}" --out short/within
mkdir foreign && echo mine >foreign/notes.txt && echo '[other]' >foreign/config.toml
refuses foreign "is not a run of minim" train "${small[@]}" --out foreign
refuses foreign "is not a run of minim" train "${small[@]}" --out foreign/
refuses run "is not a run of minim" train "${small[@]}" --out .
cp text run
refuses run "the data 'run/text' in it" train "${small[@]:2}" --data run/text --out run
rm run/text
cp -r run slash
succeeds train "${small[@]}" --steps 2 --out slash/
[[ -e slash.1/log.jsonl && -e slash/log.jsonl ]] || failed "slash/ is not slash"
(cd slash && ! "$minim" train "${small[@]}" --out . 2>../stderr) && grep -q "current directory" stderr ||
  failed "the current directory"
latin=$'in\xfe.txt'
cp text "$latin"
refuses_train "data (--data) is 'in\\xfe.txt', which is not UTF-8" --data "$latin"
refuses_train "val-data (--val-data) is 'in\\xfe.txt'" --data text --val-data "$latin"
refuses_train "profile-trace (--profile-trace) is 'in\\xfe.txt'" --profile-trace "$latin"
printf '[train]\nsteps = 3\n' >$'c\xfe.toml'
refuses_train "config (--config) is 'c\\xfe.toml'" --config $'c\xfe.toml'
refuses $'r\xfe' "out (--out) is 'r\\xfe'" train "${small[@]}" --out $'r\xfe'
mv "$latin" $'in\xfe.model'
refuses_train "tokenizer (--tokenizer) is" --data text --tokenizer $'in\xfe.model'
refuses run "files (--files) is" data $'in\xfe.model' --json
refuses run "to (--to) is" data text --to $'in\xfe.bin'
refuses run "data (--data) is" eval --model run --data $'in\xfe.model' --json
mkdir $'dir\xfe'
(cd $'dir\xfe' && ! "$minim" train --data ../text --out r 2>../stderr) &&
  grep -q "the current directory's name is not UTF-8" stderr || failed "a directory that is not UTF-8"
cp -r run $'run\xfe'
succeeds sample --model $'run\xfe' --count 1
echo "settings that make no sense"

# Without room for the stacks of so many threads; a sanitizer's own memory would not fit either.
if ! grep -q __asan_init "$minim"; then
  limited() { (ulimit -v 700000 && exec timeout 60 "$real" "$@"); }
  real=$minim minim=limited
  refuses_train "threads could be made" "${small[@]}" --threads 300
  minim=$real
fi
echo "more threads than can be made"

refuses new "new/config.toml" train --resume new
mkdir bare
refuses bare "bare/config.toml" train --resume bare
cp run/config.toml bare
refuses bare "there is no checkpoint in 'bare' to resume from" train --resume bare
refuses bare "--checkpoint-every" train --resume bare
refuses run "tokenizer" train --resume run --data text
refuses run "the data: tokens of toy language, seed 1337 in the checkpoint" \
  train --resume run --toy-tokens 4001 --steps 12
refuses run "more than steps = 5 (--steps)" train --resume run --steps 5
for kept in 0 5 25; do
  rm -rf emptied && cp -r run emptied
  head -n $kept run/config.toml >emptied/config.toml
  refuses emptied "lacks" train --resume emptied --steps 12
done
head -c 20000 /dev/zero | tr '\0' '[' >deep
printf '\x20\x4e\0\0\0\0\0\0%s' "$(<deep)" >deep.safetensors
refuses run "nested deeper" sample --model deep.safetensors
for numbers in 's/"step": *8/"step":-8/' 's/"scale": *1.0/"scale":0/' 's/"skipped": *0/"skipped":"a"/'; do
  rm -rf edited && cp -r run edited && rm -r edited/checkpoint.prev
  sed -i "$numbers" edited/checkpoint/state.json
  echo '{"files":{},"format":"minim-checkpoint","version":1}' >edited/checkpoint/MANIFEST
  refuses edited "expected a number of at least" train --resume edited --steps 12
done

# damaged NAME COMMAND...: a copy of the run in ./damaged on whose checkpoint the command worked.
damaged() {
  rm -rf damaged && cp -r run damaged
  (cd "damaged/$1" && shift && "$@")
}
flip_byte() {  # in the middle
  local at=$(($(stat -c %s "$1") / 2)) byte
  byte=$(od -An -tu1 -j "$at" -N 1 "$1")
  printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
cut_short() { truncate -s -5 "$1"; }

for harm in flip_byte cut_short rm; do
  for file in model.safetensors optimizer.safetensors state.json; do
    damaged checkpoint "$harm" "$file"
    succeeds train --resume damaged --steps 12 --checkpoint-every 2
    grep -q "resumed at step 4" stdout || failed "$harm $file: not resumed from checkpoint.prev"
    grep -q "'$file'.*going on from .*checkpoint.prev, step 4" stdout ||
      failed "$harm $file: what is damaged is not said"
    damaged checkpoint "$harm" "$file"
    run sample --model damaged --count 1
    [[ $status -eq 0 && $(<stderr) == *"'$file'"*"taken instead: "*"checkpoint.prev"*", step 4"* ]] ||
      failed "$harm $file: sample says nothing"
    run eval --model damaged --data toy --toy-tokens 4000 --json
    [[ $status -eq 0 && $(<stderr) == *"'$file'"* && $(<stdout) == *'"damage": '*"'$file'"* ]] ||
      failed "$harm $file: eval says nothing"
    refuses damaged "'$file'" sample --model damaged --strict
    refuses damaged "'$file'" eval --model damaged --data toy --strict
    rm -r damaged/checkpoint.prev
    refuses damaged "$file" train --resume damaged --steps 12
    refuses damaged "$file" sample --model damaged
    refuses damaged "$file" eval --model damaged --data toy
  done
done
damaged checkpoint rm MANIFEST
refuses damaged "is not a checkpoint" train --resume damaged --steps 12
damaged checkpoint cut_short MANIFEST
rm -r damaged/checkpoint.prev
refuses damaged "MANIFEST" train --resume damaged --steps 12
echo "a damaged checkpoint: the one before is taken; without one, the damage is named"

header='{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '
printf "\\x$(printf %02x ${#header})\\x00\\x00\\x00\\x00\\x00\\x00\\x00%s\\x00\\x00\\x00\\x00" \
  "$header" >foreign.safetensors
cp run/checkpoint/model.safetensors lone.safetensors
cut_short lone.safetensors
for model in foreign.safetensors lone.safetensors text empty nowhere bare; do
  refuses bare "$model" sample --model $model
  refuses bare "$model" eval --model $model --data toy
done
refuses bare "not a model of minim" sample --model foreign.safetensors
refuses run "temperature = nan" sample --model run --temperature nan
refuses run "top-k = -1" sample --model run --top-k -1
refuses run "--prompt" sample --model run --prompt "☃"
refuses run "longer than the model's block of 16" eval --model run --data toy --block 17
refuses run "--data is missing" eval --model run
refuses run "--policy has no effect here" eval --model run --data toy --policy lean
refuses run "--val-fraction has no effect here" eval --model run --data toy --split all --val-fraction 0.3
refuses run "--seed has no effect here: it is for the toy text" eval --model run --data text --seed 3
refuses run "--top-k has no effect here" sample --model run --temperature 0 --top-k 3
refuses run "--seed has no effect here" sample --model run --temperature 0 --seed 3
refuses run "--vocab has no effect here: it is for a token file" data text --vocab 99
refuses run "--model is missing" sample
refuses run "data file 'text'" eval --model run --data text
refuses run "has token id 99" eval --model run --data raw.bin
printf '{"format": "other"}' >raw.bin.tokenizer.json
refuses_train "raw.bin.tokenizer.json': not a tokenizer of minim" --data raw.bin --vocab 100
refuses run "raw.bin.tokenizer.json" data raw.bin
rm raw.bin.tokenizer.json
succeeds data text --to text.bin
refuses_train "has 17 tokens, not 14" --data text.bin --vocab 14
head -c 100 /dev/zero >plain.bin
refuses_train "different tokenizers" --data text.bin plain.bin
refuses_train "--tokenizer has no effect here: it is for a text" --data text.bin --tokenizer char
refuses_train "tokenizer = bpe (--tokenizer): expected one of auto, char, byte, or a file named *.model" \
  --data text --tokenizer bpe
refuses_train "--tokenizer 'no.model': tokenizer file 'no.model' does not exist" --data text --tokenizer no.model
refuses run "made with another tokenizer" eval --model run --data text.bin
refuses run "no file is given" data
refuses run "'nowhere' does not exist" data nowhere
refuses text.bin "is one of the files that are read" data text.bin --to text.bin
for name in to.bin.tmp to.bin.tokenizer.json to.bin.tokenizer.json.tmp; do
  cp text $name
  refuses $name "'to.bin${name#to.bin}', which is one of the files that are read" data text ./$name --to to.bin
  rm $name
done
refuses run "ends in .bin" data text --to run/text
refuses run "'nowhere/x.bin' cannot be written" data text --to nowhere/x.bin
refuses run "unknown flag --tto; did you mean --to?" data text --tto x.bin
echo "models, prompts and texts that do not fit"
