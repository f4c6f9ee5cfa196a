#!/usr/bin/env bash
# Refuses an include against the arrow of the layers, and a library's header outside its place.
#   tools/check_includes.sh [ROOT]       checks the sources under ROOT (default: this repository)
#   tools/check_includes.sh --self-test  plants good and bad includes and sees which are refused
# Prints `file:line: what: which rule`. Exit status: 0 clean, 1 something refused, 2 bad usage.
set -euo pipefail

# Layer and the files in it; the last layer with a matching pattern owns a file, so ops/call.h is
# in ops/call. A file may include its own layer and those before it.
layers=(
  'core      core/*'
  'ops       ops/* op_includes.h'
  'autograd  autograd/*'
  'amp       amp/*'
  'ops/call  ops/call.* ops/functional.* ops/composite.* ops/einsum.* ops/methods.* autograd/checkpoint.* autograd/gradcheck.*'
  'optim     optim/*'
  'models    models/*'
  'minim.h   minim.h'
  'testing   testing/*'
  'examples  examples/*'
  'top       tools/* tests/* docs/*'
)

# Library, its headers as a regular expression, and the files that may include them.
libraries=(
  'doctest        ^doctest/                                                     tests/* examples/*'
  'Eigen          ^(eigen3/)?(unsupported/)?Eigen/                              tests/*'
  'CUDA           ^(cuda|cublas|cudnn|nccl|cub/|thrust/|cooperative_groups)     *.cu *.cuh core/cuda/* tests/test_cuda.cpp'
  'CLI11          ^CLI/                                                         tools/* models/* tests/*'
  'toml++         ^toml(\+\+|plusplus)?[/.]                                     tools/* models/* tests/*'
  'nlohmann-json  ^nlohmann/                                                    tools/* models/* tests/*'
  'fmt            ^fmt/                                                         tools/* models/* tests/*'
  'GoogleBenchmark  ^benchmark/                                                tools/bench_run.cpp'
  'SentencePiece  ^sentencepiece_                                               models/sentence_piece.cpp tests/*'
)

matches() { # PATH PATTERNS: one of the patterns matches the path
  local pattern patterns
  read -ra patterns <<<"$2"
  for pattern in "${patterns[@]}"; do
    # shellcheck disable=SC2053  # a pattern is meant, not a string
    [[ $1 != $pattern ]] || return 0
  done
  return 1
}

find_layer() { # PATH: sets `layer` to its number, or fails
  set -- "${1/#tests\/testing/testing}" # included, and installed, as minim/testing/...
  for ((layer = ${#layers[@]} - 1; layer >= 0; layer--)); do
    ! matches "$1" "${layers[layer]#* }" || return 0
  done
  return 1
}

refused=0
refuse() { # FILE LINE WHAT RULE
  echo "$1:$2: $3: $4"
  refused=$((refused + 1))
}

check_own_header() { # FILE LINE HEADER, the header without minim/
  local layer from
  if [[ /$3/ == */../* ]]; then
    refuse "$1" "$2" "minim/$3" "write the path without '..'"
  elif ! find_layer "$1"; then
    refuse "$1" "$2" "minim/$3" "$1 is in no layer of tools/check_includes.sh"
  elif from=$layer && ! find_layer "$3"; then
    refuse "$1" "$2" "minim/$3" "the header is in no layer of tools/check_includes.sh"
  elif ((layer > from)); then
    refuse "$1" "$2" "minim/$3" "${layers[from]%% *} may not include ${layers[layer]%% *}, a later layer"
  fi
}

check_library_header() { # FILE LINE HEADER
  local entry library headers places
  for entry in "${libraries[@]}"; do
    read -r library headers places <<<"$entry"
    if [[ $3 =~ $headers ]] && ! matches "$1" "$places"; then
      refuse "$1" "$2" "$3" "$library is only for $places"
    fi
  done
}

# What git knows or would add; every file where there is no git.
list_sources() {
  local name names=('*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.def') any=(-false)
  git ls-files -z --cached --others --exclude-standard -- "${names[@]}" 2>/dev/null && return
  for name in "${names[@]}"; do any+=(-o -name "$name"); done
  find . -path ./build -prune -o -type f \( "${any[@]}" \) -printf '%P\0'
}

check() { # ROOT
  cd "$1"
  local files file line text header
  local include='^[[:space:]]*#[[:space:]]*include[[:space:]]*(["<])([^">]+)[">]'
  mapfile -d '' files < <(list_sources)
  if [[ ${#files[@]} -eq 0 ]]; then
    echo "tools/check_includes.sh: no sources under $1" >&2
    return 1
  fi
  while IFS=: read -r file line text; do
    [[ $text =~ $include ]] || continue
    header=${BASH_REMATCH[2]}
    if [[ $header == minim/* ]]; then
      check_own_header "$file" "$line" "${header#minim/}"
    elif [[ ${BASH_REMATCH[1]} == '"' && $file != examples/* && (-f $header || -f ${file%/*}/$header) ]]; then
      refuse "$file" "$line" "$header" "headers of this repository are included as minim/..."
    else
      check_library_header "$file" "$line" "$header"
    fi
  done < <(grep -snHE '^[[:space:]]*#[[:space:]]*include' -- "${files[@]}")
  ((refused == 0))
}

# ok or bad, the file, the line in it
cases=(
  'ok   core/a.h               #include "minim/core/b.h"'
  'bad  core/c.h               #include "minim/ops/op.h"'
  'bad  core/d.h               # include <minim/amp/autocast.h>'
  'ok   ops/a.h                #include "minim/core/loops.h"'
  'bad  ops/b.h                #include "minim/autograd/node.h"'
  'bad  ops/c.h                #include "minim/ops/call.h"'
  'ok   autograd/a.h           #include "minim/ops/op.h"'
  'bad  autograd/b.h           #include "minim/amp/policy.h"'
  'bad  autograd/c.h           #include "minim/ops/call.h"'
  'ok   amp/a.h                #include "minim/autograd/node.h"'
  'bad  amp/b.h                #include "minim/ops/functional.h"'
  'ok   ops/call.cpp           #include "minim/amp/autocast.h"'
  'ok   autograd/checkpoint.cpp #include "minim/ops/call.h"'
  'ok   ops/functional.h       #include "minim/ops/call.h"'
  'ok   optim/a.h              #include "minim/amp/grad_scaler.h"'
  'bad  optim/b.h              #include "minim/models/gpt.h"'
  'ok   models/a.h             #include "minim/optim/adamw.h"'
  'bad  models/b.h             #include "minim/tools/config.h"'
  'ok   minim.h                #include "minim/models/gpt.h"'
  'bad  models/c.h             #include "minim/minim.h"'
  'ok   docs/a.cpp             #include <minim/minim.h>'
  'ok   ops/f.h                #include "minim/op_includes.h"'
  'bad  core/l.h               #include "minim/op_includes.h"'
  'ok   testing/a.h            #include "minim/ops/call.h"'
  'bad  models/f.h             #include "minim/testing/a.h"'
  'ok   examples/a/b.h         #include "minim/testing/a.h"'
  'ok   examples/a/c.cpp       #include "b.h"'
  'bad  examples/a/d.cpp       #include "minim/tests/a.h"'
  'bad  tests/testing/b.h      #include "minim/tools/config.h"'
  'ok   tests/testing/c.h      #include "minim/models/gpt.h"'
  'ok   tests/a.cpp            #include "minim/tools/config.h"'
  'bad  tests/b.cpp            #include "minim/elsewhere/a.h"'
  'bad  elsewhere/a.cpp        #include "minim/core/a.h"'
  'bad  tests/c.cpp            #include "minim/core/../amp/a.h"'
  'bad  core/e.h               #include "../amp/a.h"'
  'bad  core/f.h               #include "amp/a.h"'
  'bad  core/g.h               #include "a.h"'
  'ok   tests/d.cpp            #include <Eigen/Core>'
  'bad  core/cpu/gemm.cpp      #include <Eigen/Core>'
  'bad  core/h.cpp             #include <Eigen/Core>'
  'ok   core/cuda/device.cpp   #include <cuda_runtime.h>'
  'ok   core/a.cu              #include <cublas_v2.h>'
  'ok   core/loops.cuh         #include <cuda_fp16.h>'
  'bad  core/i.h               #include <cuda_runtime.h>'
  'bad  ops/d.cpp              #include <cudnn.h>'
  'ok   tools/a.cpp            #include <CLI/CLI.hpp>'
  'bad  amp/c.cpp              #include <CLI/CLI.hpp>'
  'ok   tools/b.cpp            #include <toml++/toml.h>'
  'bad  optim/c.cpp            #include <toml++/toml.h>'
  'ok   models/d.cpp           #include <nlohmann/json.hpp>'
  'bad  ops/e.cpp              #include <nlohmann/json.hpp>'
  'bad  core/j.cpp             #include <fmt/format.h>'
  'ok   models/sentence_piece.cpp  #include <sentencepiece_processor.h>'
  'bad  models/e.cpp           #include <sentencepiece_processor.h>'
  'ok   tools/bench_run.cpp    #include <benchmark/benchmark.h>'
  'bad  tools/bench_rows.cpp   #include <benchmark/benchmark.h>'
  'ok   core/k.cpp             // #include <fmt/format.h>'
)

self_test() {
  local folder entry verdict file line found wrong=0
  folder=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder is a local: expand it now
  trap "rm -rf '$folder'" EXIT
  for entry in "${cases[@]}"; do
    read -r verdict file line <<<"$entry"
    mkdir -p "$(dirname "$folder/$file")"
    printf '%s\n' "$line" >"$folder/$file"
  done
  local report
  report=$(check "$folder") || true
  for entry in "${cases[@]}"; do
    read -r verdict file line <<<"$entry"
    found=ok
    [[ $'\n'$report != *$'\n'"$file:1: "* ]] || found=bad
    [[ $found == "$verdict" ]] || { echo "$file: $line: found $found, it is $verdict" && wrong=$((wrong + 1)); }
  done
  echo "${#cases[@]} includes planted, $wrong judged wrongly"
  ((wrong == 0))
}

if [[ $# -gt 1 || ${1-} == -* && ${1-} != --self-test ]]; then
  echo "usage: tools/check_includes.sh [ROOT | --self-test]" >&2
  exit 2
fi
case "${1-}" in
  --self-test) self_test ;;
  '') check "$(dirname "${BASH_SOURCE[0]}")/.." ;;
  *) check "$1" ;;
esac
