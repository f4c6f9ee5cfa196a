#!/usr/bin/env bash
# Every kind of data that `minim train` reads, and every way to name a model for sample and eval.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

small=(--layers 1 --heads 2 --embd 16 --block 8 --batch 2 --steps 2)

# Tokens of 2 bytes, little-endian: 800 ids that walk through 0 to 49.
ids() {
  local i id
  for ((i = 0; i < 800; ++i)); do
    id=$((i * i % 50))
    printf "\\x$(printf %02x $id)\\x00"
  done
}

int32() { printf "\\x$(printf %02x $(($1 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))\\x$(printf %02x $(($1 >> 16 & 255)))\\x$(printf %02x $(($1 >> 24 & 255)))"; }

# llm.c's header: magic, version, tokens, zeros to 256 words.
llmc() {
  int32 20240520 && int32 1 && int32 800
  head -c $((253 * 4)) /dev/zero
  ids
}

no_nan() { ! grep -Eiq '\bnan\b|\binf\b|null' "$@" || failed "not a number in $*"; }

# Field of a summary.json or of eval --json.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p" "$2"; }

# close A B TOLERANCE
close() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a - b < t && b - a < t) }'; }

# used DIR DATA PROMPT: sample and eval work from the run's directory, checkpoint and file alike.
used() {
  local model first_text= first_loss= loss
  for model in "$1" "$1/checkpoint" "$1/checkpoint/model.safetensors"; do
    succeeds sample --model "$model" --count 20 --prompt "$3" --top-k 5 --temperature 0.8
    [[ -s stdout ]] || failed "$model says nothing"
    first_text=${first_text:-$(<stdout)}
    [[ $(<stdout) == "$first_text" ]] || failed "$model writes another text"
    succeeds eval --model "$model" --data "$2" --json
    no_nan stdout
    loss=$(field loss stdout)
    first_loss=${first_loss:-$loss}
    [[ $loss == "$first_loss" ]] || failed "$model has another loss: $loss, not $first_loss"
  done
  close "$first_loss" "$(field val_loss "$1/summary.json")" 1e-5 ||
    failed "eval says $first_loss, the run $(field val_loss "$1/summary.json")"
}

# trained DIR WORDS...
trained() {
  local dir=$1 name
  shift
  succeeds train "${small[@]}" "$@" --out "$dir"
  no_nan "$dir/summary.json" "$dir/log.jsonl"
  for name in steps train_loss val_loss val_tokens tokens_per_second skipped_steps final_scale \
    precision params peak_bytes; do
    [[ -n $(field $name "$dir/summary.json") ]] || failed "$dir/summary.json lacks $name"
  done
  [[ $(field steps "$dir/summary.json") == 2 ]] || failed "not 2 steps in $dir/summary.json"
}

printf 'Grüße aus Köln — 你好, мир! 🙂\n%.0s' {1..40} >text
trained char --data text --tokenizer char
used char text "Grüße"
trained byte --data text --tokenizer byte
used byte text "мир"
echo "a UTF-8 text by characters and by bytes: trained, sampled, evaluated"

# Pipes have no size and can be read once.
succeeds train "${small[@]}" --data <(cat text) --tokenizer char --out piped
same_bytes char/checkpoint/model.safetensors piped/checkpoint/model.safetensors
succeeds eval --model char --data <(cat text)
succeeds data text --json
sed '/"file"/d' stdout >of-file
succeeds data <(cat text) --json
same_bytes of-file <(sed '/"file"/d' stdout)
echo "a text through a pipe"

{ printf '\xef\xbb\xbf' && cat text; } >marked.txt
trained marked --data marked.txt --tokenizer char
same_bytes char/checkpoint/model.safetensors marked/checkpoint/model.safetensors
echo "a byte order mark is no character"

llmc >llmc.bin
trained llmc --data llmc.bin --vocab 50
used llmc llmc.bin "1 4 9"
trained gpt2 --data llmc.bin
[[ $(field params gpt2/summary.json) -gt $((50257 * 16)) ]] || failed "llm.c's vocabulary is 50257"
ids >raw.bin
trained raw --data raw.bin --vocab 50
used raw raw.bin "1 4 9"
same_bytes llmc/checkpoint/optimizer.safetensors raw/checkpoint/optimizer.safetensors
echo "token files with and without a header: trained, sampled, evaluated; the same weights"

# The tokens and the characters of a text in a .bin: the same run, and text again from it.
printf 'Noch ein Text: größer.\n%.0s' {1..30} >text2
succeeds data text text2 --to texts.bin
trained texts --data text text2
trained from-bin --data texts.bin
for file in model optimizer; do
  same_bytes texts/checkpoint/$file.safetensors from-bin/checkpoint/$file.safetensors
done
used from-bin texts.bin "größer"
succeeds data texts.bin --json
sed '/"files"/,$d' stdout >of-bin.json
succeeds data text text2 --json
sed -i '/"files"/,$d' stdout
for name in tokens vocabulary used smallest largest unknown_share tokenizer; do
  [[ -n $(field $name of-bin.json) && $(field $name of-bin.json) == "$(field $name stdout)" ]] ||
    failed "minim data: the text and the .bin differ in $name"
done
[[ $(field used stdout) == "$(field vocabulary stdout)" ]] || failed "a character is not used"
succeeds data raw.bin --vocab 53
grep -q '^largest *49$' stdout && grep -q '^dtype *uint16$' stdout || failed "minim data raw.bin"
echo "texts turned into a token file: the same run; minim data says the same of both"

# A step draws its micro-batches apart, so that the data are the same only when there is one place
# to begin: a training split of block + 1 tokens.
printf 'abcdefgh%.0s' 1 2 >short
small=(--layers 1 --heads 2 --embd 16 --steps 2)
trained batch-4 --batch 4 --data short --block 13
trained accum-2 --batch 2 --accum 2 --data short --block 13
close "$(field train_loss batch-4/summary.json)" "$(field train_loss accum-2/summary.json)" 1e-5 &&
  close "$(field val_loss batch-4/summary.json)" "$(field val_loss accum-2/summary.json)" 1e-5 ||
  failed "two micro-batches of 2 are not one of 4"
echo "two micro-batches of 2 train like one of 4"

# In epochs the sequences come one after another, however they are batched.
for way in "batch-4 --batch 4" "accum-2 --batch 2 --accum 2"; do
  trained $way --data text --block 8 --shuffle epoch
done
close "$(field train_loss batch-4/summary.json)" "$(field train_loss accum-2/summary.json)" 1e-5 ||
  failed "in epochs, two micro-batches of 2 are not one of 4"
echo "so they do on a long text that is shuffled in epochs"
