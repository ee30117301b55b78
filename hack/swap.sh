#!/usr/bin/env bash
# Stands where one controller should be, for make conformance ARGS='--swap FLAGGER': runs Flagger, then Serin, then
# Flagger again, each for a while, over the same releases. $1 is the program of Flagger, $2 the address of the metrics
# server, the rest are flags of the case.
set -uo pipefail
flagger=$1 metrics=$2
shift 2
turn=${SERIN_SWAP_SECONDS:-25}
serin=$(cd "$(dirname "$0")/.." && pwd)/bin/serin

child=
trap 'kill "$child" 2>/dev/null; wait "$child"; exit 0' TERM INT
for ((n = 0; ; n++)); do
	if ((n % 2 == 0)); then
		"$flagger" -kubeconfig "$KUBECONFIG" -kubeconfig-qps 500 -kubeconfig-burst 1000 -control-loop-interval 1s -metrics-server "$metrics" "$@" &
	else
		"$serin" controller -kubeconfig "$KUBECONFIG" -metrics-server "$metrics" -allow-loopback-hooks "$@" &
	fi
	child=$!
	sleep "$turn" &
	wait $!
	kill "$child"
	wait "$child"
done
