#!/usr/bin/env bash
# usage: install.sh BUILD_FOLDER
# Installs the build into a scratch folder and follows the README of each example project against
# it: its indented lines, in a copy of its folder. Then an app as in the main README, the command and
# each header, from there.
set -euo pipefail
[[ $# -eq 1 && -d $1 ]] || { echo "usage: $0 BUILD_FOLDER" >&2 && exit 2; }
set -- "$(realpath "$1")"
examples=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../examples")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PREFIX=$scratch/prefix
cmake --install "$1" --prefix "$PREFIX" >/dev/null

for readme in "$examples"/*/README.md; do
  cp -r "$(dirname "$readme")" "$scratch"
  cd "$scratch/$(basename "$(dirname "$readme")")"
  rm -rf build
  bash -euxc "$(sed -n 's/^    //p' README.md)"
done

# What the README says of an app: its CMake project and, for a static library, its line for g++.
mkdir "$scratch/app" && cd "$scratch/app"
cp "$examples/../docs/examples/program.cpp" app.cpp
sed -n '/^```cmake/,/^```$/{/^```/!p}' "$examples/../README.md" >CMakeLists.txt
cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$PREFIX" -Werror=dev
cmake --build build
build/app
if [[ -e $PREFIX/lib/libminim.a ]]; then
  line=$(sed -n 's/^    \(g++ .*libminim\.a.*\)/\1/p' "$examples/../README.md")
  ! grep -q 'SENTENCEPIECE_LIBRARY.*NOTFOUND' "$1/CMakeCache.txt" || line=${line/-lsentencepiece/}
  bash -euxc "${line//\~\/.local/$PREFIX}"
  ./app
fi

"$PREFIX/bin/minim" info
cd "$PREFIX/include"
# Each alone, as a program may include it; with clang++, all together.
find minim -name '*.h' | xargs -P "$(nproc)" -I{} sh -c 'echo "#include \"{}\"" |
  "${CXX:-g++}" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I. -x c++ - || { echo "{} does not compile alone" >&2; exit 1; }'
if command -v clang++ >/dev/null; then
  find minim -name '*.h' -printf '#include "%p"\n' | sort | clang++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I. -x c++ -
fi
