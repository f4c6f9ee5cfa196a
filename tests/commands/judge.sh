#!/usr/bin/env bash
# usage: judge.sh MINIM_JUDGE
# x * x of {1, 2} with the cotangent {1, 1} is {1, 4}, its gradient {2, 4}, whatever the layout; a refused
# call is told. (What tools/compare_ops.py, which needs PyTorch, asks for.)
set -euo pipefail
judge=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

header='{"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"c":{"dtype":"F64","shape":[2],"data_offsets":[16,32]}}  '
one='\0\0\0\0\0\0\360\77' two='\0\0\0\0\0\0\0\100' four='\0\0\0\0\0\0\20\100'
((${#header} % 8 == 0 && ${#header} < 256))
printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%s$one$two$one$one" "$header" >operands.safetensors
call() { # ID LAYOUT OP
  echo "{\"id\":\"$1\",\"layout\":\"$2\",\"operands\":[{\"tensor\":\"x\",\"layout\":\"$2\",\"grad\":true}]," \
    "\"steps\":[{\"op\":\"$3\",\"in\":[0,0]}],\"out\":[1],\"cotangents\":[\"c\"]}" >>calls.jsonl
}
call a dense mul
call b stepped mul
call c dense no_such_op
"$judge" .
printf "$two$four$one$four$two$four$one$four" >expected # a/g0 a/y0 b/g0 b/y0
tail -c 64 results.safetensors | cmp - expected
grep -q '"error":"minim has no no_such_op","id":"c","stage":"forward"' results.jsonl
[[ $(wc -l <results.jsonl) -eq 1 ]]
