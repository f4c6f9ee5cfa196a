#!/usr/bin/env bash
# A token file of 3 GB, checked and trained on in either order, never lies in memory.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

truncate -s 3G big.bin  # a hole: it takes no disk, and reads as tokens 0
head -c 2000 /dev/zero >val.bin

# stays_small SHUFFLE VOCAB
stays_small() {
  succeeds train --data big.bin --val-data val.bin --vocab "$2" --shuffle "$1" --layers 1 --heads 2 \
    --embd 8 --block 16 --batch 4 --accum 4 --steps 20 --out "$1"
  grep -q "1610612736 training and 1000 validation tokens" stdout || failed "other tokens"
  peak=$(sed -n 's/^ *"peak_resident_bytes": \([0-9]*\).*/\1/p' "$1/summary.json")
  [[ $peak -gt 0 && $peak -lt 200000000 ]] || failed "$peak bytes resident with --shuffle $1"
  echo "$1: at most $((peak / 1000000)) MB resident"
}

stays_small epoch 50
stays_small random 65536  # every uint16 is in this vocabulary: there is nothing to check
