#!/usr/bin/env bash
# usage: run.sh COMPILER INCLUDE_DIR FILE | run.sh --self-test COMPILER
# FILE holds one mistake under #ifdef MISTAKE and its right twin under #else. The twin must compile;
# the mistake must not, and the compiler must say what stands behind "// expect: " in the first line.
set -euo pipefail

compile() { LC_ALL=C "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$includes" "$@" 2>&1; }

check() {
  local expected said
  expected=$(sed -n '1s|^// expect: ||p' "$1")
  [[ -n $expected ]] || { echo "$1: the first line is no '// expect: message'" && return 1; }
  said=$(compile "$1") || { echo "$1: the right twin does not compile: $said" && return 1; }
  if said=$(compile -DMISTAKE "$1"); then
    echo "$1: the mistake compiles" && return 1
  fi
  grep -qF -- "$expected" <<<"$said" || { echo "$1: expected the message '$expected', got: $said" && return 1; }
}

# Each of these breaks one of the rules above.
self_test() {
  local dir rejects=0
  dir=$(mktemp -d)
  trap "rm -rf '$dir'" EXIT
  includes=$dir
  must_say() { # MESSAGE SOURCE
    printf '%b' "$2" >"$dir/case.cpp"
    if check "$dir/case.cpp" >"$dir/said" || ! grep -qF "$1" "$dir/said"; then
      echo "not rejected with '$1': $2" && exit 1
    fi
    rejects=$((rejects + 1))
  }
  must_say "first line" '#ifdef MISTAKE\nint x = "";\n#endif\n'
  must_say "twin does not compile" '// expect: invalid\nint x = "";\n'
  must_say "mistake compiles" '// expect: invalid\nint x = 0;\n'
  must_say "expected the message" '// expect: no such words\n#ifdef MISTAKE\nint x = "";\n#endif\n'
  printf '// expect: x\n#ifdef MISTAKE\nint x = "";\n#endif\n' >"$dir/case.cpp"
  check "$dir/case.cpp"
  echo "$rejects broken cases rejected, a good one accepted"
}

if [[ $1 == --self-test ]]; then
  compiler=$2
  self_test
else
  compiler=$1 includes=$2
  check "$3"
fi
