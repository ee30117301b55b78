#!/usr/bin/env bash
# Runs every layer of tests in order, prints the output of `go test`, and ends with the result and the duration of each layer,
# and the failed tests. The layers after a failed one are not run.
set -uo pipefail
cd "$(dirname "$0")/.."

# The race detector needs a C compiler. A machine without one runs the same tests without it.
race=()
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC | cut -d' ' -f1)" >/dev/null; then
	race=(-race)
else
	echo "There is no C compiler: the tests run without the race detector."
fi

checksums() { find api config charts -type f -print0 | sort -z | xargs -0 sha256sum; }

# Generated files are committed: writing them again must change nothing.
generated() {
	local before
	before=$(checksums)
	hack/generate.sh || return
	if [ "$before" != "$(checksums)" ]; then
		diff <(echo "$before") <(checksums) | sed -n 's/^> [0-9a-f]* */  /p'
		echo "The files above were outdated: commit them as make generate has just written them."
		return 1
	fi
}

# Simulation runs execute one goroutine at a time: the race detector would find nothing, and make them ten times slower.
serin() {
	(cd test/plugins && go vet ./...) || return # a separate module: its programs are built with the interfaces of Argo Rollouts
	go list ./... | grep -v /test/sim | xargs go test "${race[@]}" -timeout 20m
}
simulated() { go test -timeout 20m ./test/sim/...; } # includes the regression corpus

# The seed of new simulation runs is derived from the tested tree, so that all contributors who test it execute the same runs. They
# run at idle priority: the tests of the playground mostly wait, and leave enough processor time. They alternate between both APIs;
# SIMULATION_RUNS is the number of runs of both together.
fresh() {
	local tree idle=(nice -n 19)
	tree=$(git rev-parse --short=12 "HEAD^{tree}" 2>/dev/null) || tree=$(date +%Y%m%d)
	! chrt -i 0 true 2>/dev/null || idle=(chrt -i 0)
	"${idle[@]}" make --no-print-directory sim APIS="${APIS:-canary,rollout}" RUNS="${SIMULATION_RUNS:-1000}" SEED="${SEED:-$((16#$tree))}"
}

# One package at a time: those that start a cluster need the whole machine. Only Debian has the packages of nginx and
# Chromium; go test does not report the skipped tests.
playground() {
	hack/browser.sh || return
	(cd playground && go run ./cmd/playground path nginx >/dev/null) || echo "The tests on ingress-nginx are skipped."
	(cd playground && go test -p 1 -timeout 40m ./...)
}

failed=
summary=()
log=$(mktemp) # the output of the last layer
trap 'rm -f "$log"' EXIT
layer() { # name, command...
	local name=$1 began=$SECONDS
	shift
	if [ -n "$failed" ]; then
		summary+=("$(printf '  %-12s not run' "$name")")
		return
	fi
	echo
	echo "=== $name"
	local result=ok tee
	exec 3> >(tee "$log") # not a pipe: awaited must run in this shell
	tee=$!
	"$@" >&3 2>&1 || { result=FAILED failed=$name; }
	exec 3>&-
	wait "$tee"
	summary+=("$(printf '  %-12s %-7s %4d s' "$name" "$result" $((SECONDS - began)))")
}

# concurrently starts a layer that runs concurrently to the following ones; awaited waits for its end.
concurrently() { # command...
	[ -z "$failed" ] || return
	output=$(mktemp)
	set -m # a process group of its own, which ends as a whole
	"$@" >"$output" 2>&1 &
	process=$!
	set +m
	trap 'kill -- -$process 2>/dev/null; rm -f "$output" "$log"' EXIT
}
awaited() {
	local result=0
	wait "$process" || result=$?
	cat "$output"
	return "$result"
}

layer generated generated
layer serin serin
layer simulated simulated
concurrently fresh
layer playground playground
layer recorded hack/conformance.sh --sample
layer fresh awaited

echo
echo "=== summary"
printf '%s\n' "${summary[@]}"
printf '  %-12s %12d s\n' total "$SECONDS"
if [ -n "$failed" ]; then
	echo "FAIL: $failed"
	grep -A4 -E '^ *--- FAIL|^panic:|^FAIL.*/|VIOLATION' "$log" | cut -c1-300 | head -n 60
	exit 1
fi
echo "PASS"
