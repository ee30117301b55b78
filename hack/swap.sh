#!/usr/bin/env bash
# Replaces the controller for make conformance ARGS='--swap FLAGGER': runs Flagger and Serin alternately, each for a while,
# during the same releases. $1 is the program of Flagger, $2 the address of the metrics server, the rest are flags of the
# case.
set -uo pipefail
flagger=$1 metrics=$2
shift 2
interval=${SERIN_SWAP_SECONDS:-25}
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
	sleep "$interval" &
	wait $!
	kill "$child"
	wait "$child"
done
