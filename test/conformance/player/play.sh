#!/usr/bin/env bash
# Plays recorded cases against a controller of Flagger's API. All cases with equal flags share a lab: etcd, API server,
# controller manager, scheduler, one fake node, and the scripted server of metrics and webhooks, in separate network and
# process namespaces.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../../.." && pwd)

usage() {
	cat <<U
usage: play.sh --controller 'COMMAND LINE' --crds PATH [options] CASES...

  CASES              folders of cases, or folders that contain such folders

  --controller CMD   starts the controller. KUBECONFIG is set and may be used in CMD.
                     {prometheus} is replaced by the URL of the scripted metrics server, {flags} by
                     the flags that a case needs (appended if CMD does not contain {flags})
  --crds PATH        file or folder with the definitions of flagger.app; repeatable
  --only REGEX       only cases whose name matches
  --differences FILE deliberate differences, see README.md
  --known FILE       differences that no narrow entry of --differences can describe, see README.md
  --update           write what was recorded to <case>/expected, instead of comparing
  --labs N           labs side by side            (default: 3)
  --parallel N       cases side by side in a lab  (default: 70)
  --wait SECONDS     for one condition            (default: 90)
  --wait-limit S     also bounds conditions that set a longer time (default: none)
  --k8s FILE         control plane with the subcommands etcd, apiserver, kcm, scheduler and kubectl
                     (default: the playground's)
  --work DIR         recordings and logs, kept    (default: a new folder for temporary files)

The exit status is 1 when a case differs in a way that neither file explains, and 2 when nothing was played.
U
	exit 2
}

controller= crds=() update=no only=. labs=3 parallel=70 wait=90 limit=0 differences= known= controlplane= work=

lab() { # number flags
	D=$work/lab$1
	mkdir -p "$D"/pki "$D"/log "$D"/run
	unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy ALL_PROXY all_proxy
	"$player" key "$D/pki/sa.key" || return
	echo 'admintoken,admin,admin,"system:masters"' >"$D/tokens.csv"
	cat >"$D/kubeconfig" <<K
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: https://127.0.0.1:6443, insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admintoken}}]
contexts: [{name: lab, context: {cluster: lab, user: admin, namespace: default}}]
current-context: lab
K
	export KUBECONFIG=$D/kubeconfig HOME=$D/run
	"$controlplane" etcd "$D/etcd" >"$D/log/etcd.log" 2>&1 &
	"$controlplane" apiserver --etcd-servers=http://127.0.0.1:2379 --service-account-issuer=https://kubernetes.default.svc \
		--service-account-key-file="$D/pki/sa.key" --service-account-signing-key-file="$D/pki/sa.key" \
		--service-cluster-ip-range=10.96.0.0/16 --cert-dir="$D/pki" --secure-port=6443 --bind-address=127.0.0.1 \
		--advertise-address=127.0.0.1 --token-auth-file="$D/tokens.csv" --authorization-mode=RBAC \
		--disable-admission-plugins=ServiceAccount --endpoint-reconciler-type=none >"$D/log/apiserver.log" 2>&1 &
	kubectl() { "$controlplane" kubectl "$@"; }
	for _ in $(seq 240); do
		kubectl get --raw /readyz >/dev/null 2>&1 && break
		sleep 0.5
	done
	kubectl get --raw /readyz >/dev/null 2>&1 || {
		echo "The API server did not become ready, see $D/log."
		return 1
	}
	# No autoscaling: there are no pod metrics, and it would change replicas at random moments.
	"$controlplane" kcm --kubeconfig="$KUBECONFIG" --leader-elect=false --service-account-private-key-file="$D/pki/sa.key" \
		--use-service-account-credentials=false \
		--controllers='*,-bootstrap-signer-controller,-token-cleaner-controller,-horizontal-pod-autoscaler-controller' \
		--kube-api-qps=500 --kube-api-burst=1000 >"$D/log/kcm.log" 2>&1 &
	"$controlplane" scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --kube-api-qps=500 --kube-api-burst=1000 >"$D/log/sched.log" 2>&1 &
	"$fakenode" -kubeconfig "$KUBECONFIG" >"$D/log/fakenode.log" 2>&1 &
	for p in "$providers" "${crds[@]}"; do
		kubectl apply --server-side --force-conflicts -f "$p"
	done >"$D/log/crds.log" 2>&1
	kubectl wait --for=condition=Established crd --all --timeout=60s >>"$D/log/crds.log" 2>&1
	mapfile -t dirs < <(awk -F'\t' -v f="$2" '$1==f{print $2}' "$work/plan")
	"$player" run -controller "$controller" -out "$work/out" -controller-log "$D/log/controller.log" \
		-parallel "$parallel" -wait "$wait" -wait-limit "$limit" "${dirs[@]}"
}

if [ "${1:-}" = --in-lab ]; then
	. "$2/settings"
	lab "$3" "$4"
	exit
fi

cases=()
while [ $# -gt 0 ]; do
	case $1 in
	--update)
		update=yes
		shift
		continue
		;;
	--*) [ $# -ge 2 ] || usage ;;
	*)
		cases+=("$(realpath "$1")")
		shift
		continue
		;;
	esac
	case $1 in
	--controller) controller=$2 ;;
	--crds) crds+=("$(realpath "$2")") ;;
	--only) only=$2 ;;
	--labs) labs=$2 ;;
	--parallel) parallel=$2 ;;
	--wait) wait=$2 ;;
	--wait-limit) limit=$2 ;;
	--differences) differences=$(realpath "$2") ;;
	--known) known=$(realpath "$2") ;;
	--k8s) controlplane=$(realpath "$2") ;;
	--work) work=$2 ;;
	*) usage ;;
	esac
	shift 2
done
[ -n "$controller" ] && [ ${#crds[@]} -gt 0 ] && [ ${#cases[@]} -gt 0 ] || usage

bin=$repository/bin player=$repository/bin/player fakenode=$repository/bin/fakenode
(cd "$repository" && go build -o "$player" ./test/conformance/player && go build -o "$fakenode" ./test/conformance/fakenode) || exit 2
[ -n "$work" ] || work=$(mktemp -d -t player.XXXXXX)
mkdir -p "$work/out"
work=$(realpath "$work")
"$player" plan -only "$only" "${cases[@]}" >"$work/plan" || exit 2

[ -n "$controlplane" ] || controlplane=$(cd "$repository/playground" && go run ./cmd/playground path controlplane) || exit 2
providers=$bin/crds-$(sha256sum <"$here/crds.sh" | cut -c1-12)
if [ ! -d "$providers" ]; then
	if ! { "$here/crds.sh" "$providers.new" >"$work/crds.log" 2>&1 && mv "$providers.new" "$providers"; }; then
		cat "$work/crds.log"
		exit 2
	fi
fi

declare -p controller crds providers parallel wait limit fakenode controlplane work player >"$work/settings"
echo "$(wc -l <"$work/plan") cases, logs in $work"
began=$(date +%s)
pids=() n=0
trap 'kill -KILL "${pids[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT TERM
while IFS= read -r flags <&4; do
	n=$((n + 1))
	while [ "$(jobs -rp | wc -l)" -ge "$labs" ]; do wait -n; done
	"$player" isolate "$0" --in-lab "$work" "$n" "$flags" >"$work/lab$n.log" 2>&1 </dev/null &
	pids+=($!)
done 4< <(cut -f1 "$work/plan" | sort | uniq -c | sort -rn | sed 's/^ *[0-9]* //')
wait
cat "$work"/lab*.log | grep -vE '^recorded ' || true
for i in $(seq $n); do rm -rf "$work/lab$i/etcd"; done
mapfile -t dirs < <(cut -f2 "$work/plan")
if [ $update = yes ]; then
	for d in "${dirs[@]}"; do
		o=$work/out/$(basename "$d")
		if [ -f "$o/INCOMPLETE" ] || [ ! -d "$o" ]; then
			echo "not updated: $(basename "$d")"
			continue
		fi
		rm -rf "$d/expected"
		cp -r "$o" "$d/expected"
	done
	echo "took $(($(date +%s) - began)) s"
	exit
fi
"$player" compare -actual "$work/out" ${differences:+-differences "$differences"} ${known:+-known "$known"} "${dirs[@]}"
rc=$?
echo "took $(($(date +%s) - began)) s"
exit $rc
