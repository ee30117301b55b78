#!/usr/bin/env bash
# Measures the duration of the first `make demo` on a machine: with empty caches, in a folder that is removed afterwards. It
# prints the wall time and processor time (user and system) of each part. On a busy machine, half the processor time is the
# better estimate for two idle cores.
set -euo pipefail
cd "$(dirname "$0")/.."

caches=$(mktemp -d)
trap 'chmod -R u+w "$caches"; rm -rf "$caches"' EXIT
export GOCACHE=$caches/build GOMODCACHE=$caches/modules SERIN_CACHE=$caches/programs
rm -f bin/playground
TIMEFORMAT='%R %U %S'

results=()
part() { # name, command...
	local name=$1 times
	shift
	echo "=== $name"
	{ times=$({ time "$@" >&3 2>&4; } 2>&1); } 3>&1 4>&2
	results+=("$(awk -v name="$name" '{ printf "  %-28s %4d s wall, %5d s processor", name, $1, $2 + $3 }' <<<"$times")")
}

# The parts of the demo in their order; each uses the caches that the previous ones have filled.
part "build the playground" hack/playground.sh
part "build the cluster's programs" bin/playground build
part "build Serin, play the demo" bin/playground demo --json

echo
echo "=== summary, on $(nproc) processors"
printf '%s\n' "${results[@]}"
printf '  %-28s %4d s wall\n' total "$SECONDS"
