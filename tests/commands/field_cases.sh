#!/usr/bin/env bash
# usage: field_cases.sh MINIM_TESTS [--write]
# Each case of tests/field_cases.def has a test named "ID: ..." and no test has an ID that is not
# there; docs/field-cases.md is what the table makes (--write makes it). The tests that docs/parity.md
# and docs/nothing-silent.md name exist.
set -euo pipefail
tests=$1 write=${2-}
root=$(cd "$(dirname "$0")/../.." && pwd)
table=$root/tests/field_cases.def page=$root/docs/field-cases.md
known=$(sed -n 's/^\([A-Z][0-9]*\) |.*/\1/p' "$table")
all=$("$tests" --list-test-cases)
tested=$(sed -n 's/^\([A-Z][0-9]*\): .*/\1/p' <<<"$all")
failures=0

complain() { echo "$*" && failures=1; }
[[ -z $(sort <<<"$known" | uniq -d) ]] || complain "twice in $table: $(sort <<<"$known" | uniq -d)"
lacking=$(comm -23 <(sort -u <<<"$known") <(sort -u <<<"$tested"))
[[ -z $lacking ]] || complain "no test case is named by:" $lacking
foreign=$(comm -13 <(sort -u <<<"$known") <(sort -u <<<"$tested"))
[[ -z $foreign ]] || complain "not in $table:" $foreign

made=$(
  echo "# What goes wrong in mixed precision, and what minim does"
  echo
  echo "*Made from \`tests/field_cases.def\` by \`tests/commands/field_cases.sh build/release/minim_tests --write\`."
  echo "Each case is a test, or several: \`build/release/minim_tests --test-case=\"S1: *\"\`.*"
  awk -F ' [|] ' '
    /^#[^#]/ { next }
    /^## / { print "\n" $0 "\n\n| case | elsewhere | minim |\n|---|---|---|"; next }
    NF == 3 { print "| " $1 " | " $2 " | " $3 " |"; next }
    { print "tests/field_cases.def: no row: " $0 > "/dev/stderr"; exit 1 }' "$table"
)
[[ $write != --write ]] || echo "$made" >"$page"
diff <(echo "$made") "$page" || complain "docs/field-cases.md is not current: run $0 $tests --write"
for file in parity nothing-silent; do
  named=$(awk -F ' *[|] *' '/^[|]/ && NF == 6 && $5 != "" && $5 != "test" && !/^[|]--/ { print $5 }' "$root/docs/$file.md")
  gone=$(comm -23 <(sort -u <<<"$named") <(sort -u <<<"$all"))
  [[ -z $gone ]] || complain "docs/$file.md names tests that are not there:"$'\n'"$gone"
done
echo "$(wc -l <<<"$known") cases, $(wc -l <<<"$tested") tests of them"
exit $failures
