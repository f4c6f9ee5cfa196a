#!/usr/bin/env bash
# Keeps minim small enough to read: no source over 400 lines, and two budgets of lines of code (no
# comments, no blank lines; without kernels per instruction set, CUDA files and file formats).
#   tools/check_lines.sh   prints each budget; exit status 0 all kept, 1 not
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

most_lines=400 framework=9100 per_row=75
formats='models/(atomic_dir|manifest|model_file|parse_json|read_file|run_log|safetensors|sentence_piece|sync_file|token_array|token_file|tokenizer|utf8)\.'
sources() { find "$@" -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' -o -name '*.def' | sort; }
code_in() { xargs cat | grep -cvE '^ *(//.*)?$'; }

status=0
while read -r lines file; do
  [[ $file == total ]] || ((lines <= most_lines)) || { echo "$file: $lines lines; a file has at most $most_lines" && status=1; }
done < <(sources core ops autograd amp optim models tests tools examples | xargs wc -l)

budget() {  # what it is, lines, most
  echo "$1: $2 lines of code of $3"
  (($2 <= $3)) || status=1
}
budget 'core, autograd, amp, optim and models' \
  "$(sources core autograd amp optim models | grep -vE "^core/(cpu|cuda)/|\.cuh?$|^$formats" | code_in)" "$framework"
rows=$(grep -c '^ *OP(' ops/ops.def)
budget "the $rows ops of the table" "$(sources ops | grep -vE '\.cuh?$' | code_in)" $((rows * per_row))
exit "$status"
