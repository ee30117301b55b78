#!/usr/bin/env bash
# Replays recorded cases of Flagger against bin/serin, where the recordings are at hand: next to this repository, or in
# the folder that SERIN_RECORDINGS names. --sample plays a few cases of each router. --swap FLAGGER lets that program and Serin
# take turns over each release, and shows what differs then. All other arguments go to the player.
set -euo pipefail
cd "$(dirname "$0")/.."

recordings=${SERIN_RECORDINGS:-../shared/conformance}
player=$recordings/player/play.sh
if [ ! -x "$player" ]; then
	echo "There are no recorded cases in $recordings, so none is replayed: set SERIN_RECORDINGS to the folder that has them."
	exit 0
fi

sample=no flagger=
case ${1:-} in
--sample)
	sample=yes
	shift
	;;
--swap)
	flagger=$(realpath "${2:?which program is Flagger?}")
	shift 2
	;;
esac

for tool in unshare ip openssl; do
	if ! command -v "$tool" >/dev/null; then
		echo "The player of recorded cases needs $tool, which this machine does not have: install it to replay them."
		[ $sample = yes ] && exit 0 # the tests must pass on a machine that has only Go
		exit 1
	fi
done

# The routers that Serin has.
routers='kubernetes|istio|gatewayapi:v1|gatewayapi:v1beta1|nginx|nginx \(by flag\)|skipper|contour|traefik|gloo|apisix|linkerd|smi:v1alpha2|smi:v1alpha3|smi:v1alpha1:istio \(by flag\)|knative|kuma|appmesh|appmesh:v1beta2'
few=(
	appmesh-v1beta2-ab kuma-weighted linkerd-weighted
	contour-rollback gatewayapi-ab-headers-query gatewayapi-rollback gatewayapi-session-affinity gatewayapi-v1-weighted gloo-ab hook-confirm-promotion
	istio-step-weights istio-blue-green-mirror istio-mirror-weighted istio-weighted kubernetes-blue-green
	kubernetes-blue-green-rollback metric-fail-rollback nginx-weighted skipper-weighted traefik-rollback
)

cases=()
for file in "$recordings"/flagger/*/case.yaml; do
	folder=$(dirname "$file") name=$(basename "$(dirname "$file")")
	grep -qxE "provider: \"?($routers)\"?" "$file" || continue
	[ $sample = no ] || [[ " ${few[*]} " == *" $name "* ]] || continue
	cases+=("$folder")
done

go build -o bin/serin ./cmd/serin
controlplane=$(cd playground && go run ./cmd/playground path controlplane)

# The player's node ends when the control plane changes the Node object while it registers; then it registers again.
go build -C "$recordings/player/fakenode" -o "$PWD/bin/fakenode" .
cat >bin/node <<NODE
#!/usr/bin/env bash
until "$PWD/bin/fakenode" "\$@"; do :; done
NODE
chmod +x bin/node

# The player makes namespaces of its own; an ordinary user needs one more around them.
around=()
if [ "$(id -u)" != 0 ]; then
	around=(unshare --user --map-root-user)
fi
told=$(mktemp) differences=$(mktemp)
trap 'rm -f "$told" "$differences"' EXIT
cp test/conformance/differences.yaml "$differences"
# The player fills in {prometheus} and {flags}, and sets KUBECONFIG; its hooks answer on loopback.
controller="$PWD/bin/serin controller -kubeconfig \$KUBECONFIG -metrics-server {prometheus} -allow-loopback-hooks {flags}"
if [ -n "$flagger" ]; then
	cat test/conformance/swapped.yaml >>"$differences"
	controller="$PWD/hack/swap.sh $flagger {prometheus} {flags}"
fi
play() { # what the player takes beside the usual...
	local each
	each=$(mktemp)
	"${around[@]}" "$player" --crds config/crd --labs 1 --k8s "$controlplane" --fakenode bin/node \
		--controller "$controller" --differences "$differences" "$@" | tee "$each" || true
	grep -q '^[0-9]* passed, [0-9]* failed$' "$each" || { rm "$each" && exit 1; } # the player itself failed, and has said why
	cat "$each" >>"$told" && rm "$each"
}
if [ $# = 0 ] && [ $sample = no ]; then
	# A Canary that may wait five seconds for its pods gets a machine on which no hundred others start theirs.
	alone=$recordings/flagger/canary-breaks-while-promoting
	for i in "${!cases[@]}"; do
		[ "${cases[i]}" != "$alone" ] || unset "cases[i]"
	done
	play "$alone"
fi
play "$@" "${cases[@]}"
if [ -n "$flagger" ]; then
	echo "Where the controllers changed differs from run to run: whoever started this judges what differs."
	exit 0
fi

# What the player tells of a case is a line "same NAME" or "DIFF NAME", and lines below it that are set in.
awk '
	!/^(same |DIFF |    )/ { name = ""; next }
	!/^ / { name = $2; if (NR > FNR) played[name] }
	NR == FNR { known[name] = known[name] $0 "\n"; next }
	{ found[name] = found[name] $0 "\n" }
	END {
		for (name in played) {
			expected = name in known ? known[name] : "same " name "\n"
			if (found[name] == expected) agreed += name in known
			else { failed = 1; print "not as expected: " name }
		}
		print agreed + 0 " differ exactly as test/conformance/known.txt says"
		exit failed
	}
' test/conformance/known.txt "$told"
