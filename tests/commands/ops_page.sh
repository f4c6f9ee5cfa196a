#!/usr/bin/env bash
# docs/ops.md is what the table says.
page=$(realpath "$(dirname "$0")/../../docs/ops.md")
. "$(dirname "$0")/common.sh"
refuses none "leave --policy lean out" ops --diff-torch --policy lean
succeeds ops --diff-torch
grep -q '^scatter_add  *promote  *promote (scatter_add) ' stdout || failed "no line for scatter_add"
succeeds ops --op softmax
grep -q '^  attributes *Index dim = -1$' stdout || failed "no attribute of softmax"
succeeds ops --markdown
diff -u "$page" stdout && exit 0
echo "FAILED: docs/ops.md is not what ops/ops.def makes; update it with: minim ops --markdown > docs/ops.md"
exit 1
