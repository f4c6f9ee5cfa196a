#!/bin/sh
# Checks that object files compiled for one instruction set define no symbol that other code could
# be linked to by accident: no weak or unique one (an inline function or template compiled for AVX-512
# may be the copy the linker keeps for everybody) and no global but their table of kernels; and that
# they run nothing at start-up. What sanitizers and coverage add of their own is data and left out.
# Usage: check_isa_symbols.sh OBJECT...
set -eu
[ $# -gt 0 ] || { echo "usage: $0 OBJECT..." >&2; exit 2; }
status=0
for object in "$@"; do
  symbols=$(nm -C --defined-only "$object")
  bad=$(echo "$symbols" | grep -E '^[0-9a-fA-F]+ [A-Zuvw] ' |
    grep -vE ' ([DR] minim::kernels_(base|v3|v4|v4_bf16)|. __odr_asan\..*|V DW\.ref\..*)$' || true)
  startup=$(echo "$symbols" | grep -E '_GLOBAL__sub_I|__static_initialization' || true)
  echo "$symbols" | grep -qE ' minim::kernels_(base|v3|v4|v4_bf16)$' || bad="$bad (no table of kernels)"
  [ -z "$bad$startup" ] && continue
  echo "$object defines more than its table of kernels:" >&2
  echo "$bad$startup" >&2
  status=1
done
exit $status
