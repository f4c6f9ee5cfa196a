#!/usr/bin/env bash
# usage: discovered.sh MINIM_TESTS BUILD_FOLDER
# CMake turns each doctest case into a ctest of its own; a name that it cuts in pieces (at ';') makes
# entries that run nothing. As many entries as cases, none of them skipped, or this fails.
set -euo pipefail
cases=$("$1" --count | grep -o '[0-9]*$')
entries=$(cat "$2"/minim_tests_tests-*.cmake | grep -c '^add_test(')
all=$("$1" --no-skip --count | grep -o '[0-9]*$')
echo "$cases test cases, $entries ctest entries"
[[ $cases == "$entries" ]] || { echo "is there a ';' in a name?" >&2 && exit 1; }
[[ $cases == "$all" ]] || { echo "$((all - cases)) cases are skipped" >&2 && exit 1; }
