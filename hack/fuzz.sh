#!/usr/bin/env bash
# Runs every fuzz target for the duration in the argument, by default one minute. Inputs that fail are stored in testdata/fuzz
# of the package, as regression tests.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0
while IFS=: read -r file _ target; do
	target=${target#func }
	target=${target%%(*}
	echo "=== fuzz $target in $(dirname "$file")"
	go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "${1:-1m}" -fuzzminimizetime 10x || failed=1
done < <(grep -rn --include='*_test.go' '^func Fuzz' api internal)
exit $failed
