#!/usr/bin/env bash
# tests/gpu/random_graphs.sh LUTRA-TESTS [FIRST [LAST [PROCESSES]]]: distributes the random graphs FIRST to LAST (1 to
# 1000) over PROCESSES (one per core). Each graph runs on the GPU. Compiled code must equal eager code bit for bit, and
# each eager op must agree with the CPU (tests/cuda/random_graphs_test.cc).
# A bundle does not hold the executable lutra-tests: copy it, stripped, and name the bundle's libraries in
# LD_LIBRARY_PATH.
set -uo pipefail
tests=${1:?the executable lutra-tests}
first=${2:-1} last=${3:-1000} processes=${4:-$(nproc)}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
share=$(((last - first + processes) / processes))
for ((i = 0, a = first; a <= last; i++, a += share)); do
  b=$((a + share - 1 < last ? a + share - 1 : last))
  (LUTRA_TEST_SEED=$a-$b "$tests" "random graphs on a GPU*" >"$out/$i" 2>&1 || echo "failed: seeds $a-$b" >>"$out/$i") &
done
wait
cat "$out"/* | awk '
  /^seeds/ { graphs += $3; raised += substr($5, 2); results += $7; equal += $11 }
  / of its tolerance / { if ($2 > worst[$1]) worst[$1] = $2 }
  /seed :=/ { wrong[$3] = 1 }
  /^skipped|skipped: / { print; bad++ }
  /^failed: / { print; bad++ }
  END {
    printf "random graphs: %d run (%d raised, as on the CPU), ", graphs, raised
    printf "%d results of ops, %d equal to the CPU'"'"'s bit for bit\n", results, equal
    for (op in worst) printf "  %s at most %s of its tolerance\n", op, worst[op]
    for (s in wrong) printf "  FAILED seed %s\n", s
    exit bad > 0
  }'
