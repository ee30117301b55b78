#!/usr/bin/env bash
# Measures what the first `make demo` on a machine takes: with empty caches, in a folder that is removed afterwards. It
# prints each part's wall time and processor time (user and system). On a machine that does something else too, half the
# processor time is the better estimate for two idle cores.
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

# What the demo does, in its order; each part finds what the parts before have left in the caches.
part "build the playground" hack/playground.sh
part "build the cluster's programs" bin/playground build
part "build Serin, play the demo" bin/playground demo --json

echo
echo "=== summary, on $(nproc) processors"
printf '%s\n' "${results[@]}"
printf '  %-28s %4d s wall\n' total "$SECONDS"
