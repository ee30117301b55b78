#!/usr/bin/env bash
# Replays the recorded cases of Flagger in test/conformance against bin/serin. --sample plays a few cases of each router.
# --swap FLAGGER alternates that program and Serin during each release, and shows the differences. All other arguments are
# passed to the player: --only REGEX selects cases by name.
set -euo pipefail
cd "$(dirname "$0")/.."

cases=(test/conformance/flagger)
few=(
	appmesh-v1beta2-ab kuma-weighted linkerd-weighted
	contour-rollback gatewayapi-ab-headers-query gatewayapi-rollback gatewayapi-session-affinity gatewayapi-v1-weighted gloo-ab hook-confirm-promotion
	istio-step-weights istio-blue-green-mirror istio-mirror-weighted istio-weighted kubernetes-blue-green
	kubernetes-blue-green-rollback metric-fail-rollback nginx-weighted skipper-weighted traefik-rollback
)
flagger=
case ${1:-} in
--sample)
	cases=("${few[@]/#/test/conformance/flagger/}")
	shift
	;;
--swap)
	flagger=$(realpath "${2:?the path of the program of Flagger is required}")
	shift 2
	;;
esac
for folder in "${cases[@]}"; do
	if ! compgen -G "$folder/case.yaml" >/dev/null && ! compgen -G "$folder/*/case.yaml" >/dev/null; then
		echo "$folder contains no recorded case to replay."
		exit 1
	fi
done

go build -o bin/serin ./cmd/serin
# The player replaces {prometheus} and {flags}, and sets KUBECONFIG. Its webhooks listen on the loopback device.
controller="$PWD/bin/serin controller -kubeconfig \$KUBECONFIG -metrics-server {prometheus} -allow-loopback-hooks {flags}"
play() {
	test/conformance/player/play.sh --crds config/crd --labs 1 --controller "$controller" "$@" "${cases[@]}"
}
if [ -z "$flagger" ]; then
	play --differences test/conformance/differences.yaml --known test/conformance/known.txt "$@"
	exit
fi

differences=$(mktemp)
trap 'rm -f "$differences"' EXIT
cat test/conformance/differences.yaml test/conformance/swapped.yaml >"$differences"
controller="$PWD/hack/swap.sh $flagger {prometheus} {flags}"
status=0
play --differences "$differences" "$@" || status=$?
[ "$status" -le 1 ] || exit "$status"
echo "Differences at a change of the controller vary between runs, so they are not counted as failures: review them."
