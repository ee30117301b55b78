//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/waittest"
	"github.com/serin-dev/serin/playground/apiproxy"
)

const (
	numberOfShards = 6
	shardLeaseTime = 6 * time.Second
	// shardInstance separates the Rollouts of this test from those of others, because its replicas serve all namespaces.
	shardInstance = "sharded"
)

// writeLog records which replica writes in which namespace, in the order in which the requests arrive.
type writeLog struct {
	mu         sync.Mutex
	writers    map[string][]string // by namespace; one entry for consecutive writes of one replica
	identities map[string]string   // by replica; a write of one in it is checked against the Lease of the shard
	trespasses []string            // the writes of replicas that did not hold the shard
}

// record is a fault of a proxy that injects none.
func (l *writeLog) record(replica string) func(http.ResponseWriter, *http.Request, apiproxy.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request, kind apiproxy.Request) bool {
		_, rest, namespaced := strings.Cut(r.URL.Path, "/namespaces/")
		if !namespaced || slices.Contains([]string{"get", "list", "watch"}, kind.Verb) || slices.Contains([]string{"events", "leases"}, kind.Resource) || strings.HasSuffix(kind.Resource, "reviews") {
			return false
		}
		namespace, _, _ := strings.Cut(rest, "/")
		trespass := l.checkHolder(r.Context(), replica, namespace)
		l.mu.Lock()
		defer l.mu.Unlock()
		if trespass != "" {
			l.trespasses = append(l.trespasses, fmt.Sprintf("%s %s: %s", kind.Verb, r.URL.Path, trespass))
		}
		if writers := l.writers[namespace]; len(writers) == 0 || writers[len(writers)-1] != replica {
			l.writers[namespace] = append(writers, replica)
		}
		return false
	}
}

// checkHolder returns what is wrong with a write of a replica in a namespace; empty: it holds the shard. A replica that gives up a
// request does not write.
func (l *writeLog) checkHolder(ctx context.Context, replica, namespace string) string {
	l.mu.Lock()
	identity := l.identities[replica]
	l.mu.Unlock()
	if identity == "" {
		return ""
	}
	switch holder, err := shardHolder(ctx, sharding.ShardOf(namespace, numberOfShards)); {
	case ctx.Err() != nil || holder == identity:
		return ""
	case err != nil:
		return err.Error()
	default:
		return fmt.Sprintf("%s (%s) wrote, but %s holds the shard", replica, identity, holder)
	}
}

// setIdentities begins the checks of writes.
func (l *writeLog) setIdentities(byReplica map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.identities = byReplica
}

func (l *writeLog) allTrespasses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.trespasses)
}

func (l *writeLog) in(namespace string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.writers[namespace])
}

// startShardReplica starts one replica behind a proxy that records its writes.
func startShardReplica(t *testing.T, name string, log *writeLog) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", controllerKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	proxy, err := apiproxy.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	proxy.SetFault(log.record(name))
	argv := slices.Concat([]string{serin}, shortIntervalFlags(), []string{
		"-master", proxy.URL, "-apis", "rollout", "-instance-id", shardInstance, "-shards", fmt.Sprint(numberOfShards), "-leader-election-namespace", "default",
		"-adopt-while-peer-runs", // the Lease of an Argo Rollouts with this instance ID may not be read
		"-leader-election-lease-duration", shardLeaseTime.String(), "-leader-election-renew-deadline", "4s", "-leader-election-retry-period", "1s",
	})
	if _, err := shared.StartProcess(name, argv, []string{"POD_NAMESPACE=default"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, shared.Tail(name, 30))
		}
		if err := errors.Join(shared.Kill(name), proxy.Close()); err != nil {
			t.Error(err)
		}
	})
}

// shardHolder returns the identity of the holder of a shard; empty: there is none.
func shardHolder(ctx context.Context, shard int) (string, error) {
	name := sharding.LeaseNames("serin-"+shardInstance, numberOfShards)[shard]
	lease, err := shared.Client.CoordinationV1().Leases("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// shardHolders returns the number of shards of each holder.
func shardHolders(t *testing.T) map[string]int {
	t.Helper()
	holders := map[string]int{}
	for shard := range numberOfShards {
		if holder, err := shardHolder(t.Context(), shard); err == nil && holder != "" {
			holders[holder]++
		}
	}
	return holders
}

// waitForShards waits until each of the holders has as many shards.
func waitForShards(t *testing.T, holders, each int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d replicas hold %d shards each", holders, each), func() error {
		current := shardHolders(t)
		for _, n := range current {
			if n != each {
				return fmt.Errorf("got %v", current)
			}
		}
		if len(current) != holders {
			return fmt.Errorf("got %v", current)
		}
		return nil
	})
}

// shardRole is the permission for the Leases of members and of shards, next to leaseRole.
const shardRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: serin-shards}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: serin-shards}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: serin-shards}
subjects: [{kind: ServiceAccount, name: serin, namespace: default}]
`

// TestTheNumberOfShardsChangesDuringARelease replaces two replicas during the release of a Canary by one with another number of shards.
// The new one writes nothing until the last old one has ended, and then completes the release.
func TestTheNumberOfShardsChangesDuringARelease(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "reshard")
	s.apply(shardRole)
	flags := []string{"-leader-election-lease-duration", shardLeaseTime.String(), "-leader-election-renew-deadline", "4s", "-leader-election-retry-period", "1s"}
	before := []string{s.processName() + "-a", s.processName() + "-b"}
	for _, name := range before {
		s.startProcess(serin, name, append(slices.Clip(flags), "-shards", "4")...)
	}
	s.apply(deployment(t, "left", 1))
	s.apply(replaceTexts(t, flaggerCanary, "HOST", "reshard.test", "interval: 2s", "interval: 8s", "[20, 50]", "[10, 20, 30, 40, 50]"))
	r := s.follow("left")
	r.waitForPhase("Initialized")
	s.deployVersion("left", "v2")
	r.waitForPhase("Progressing")

	after := s.processName() + "-c"
	proxy, kubeconfig, err := shared.StartCountingProxy(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s.startProcess(serin, after, append(slices.Clip(flags), "-shards", "6", "-kubeconfig", kubeconfig)...)
	if err := shared.Terminate(t.Context(), before[0]); err != nil {
		t.Fatal(err)
	}
	s.waitForShardGroup(4, len(r.states()))
	for request, n := range proxy.Counts() {
		if !slices.Contains([]string{"get", "list", "watch"}, request.Verb) && request.Resource != "leases" && !strings.HasSuffix(request.Resource, "reviews") {
			t.Errorf("the new replica sent %d requests to %s %s while an old one served the release", n, request.Verb, request.Resource)
		}
	}
	if c := convert[canary](t, s.get(canaries, "left")); c.Status.Phase != "Progressing" {
		t.Fatalf("the release is already %s", c.Status.Phase)
	}
	if err := shared.Terminate(t.Context(), before[1]); err != nil {
		t.Fatal(err)
	}
	s.waitForShardGroup(6, 0)
	r.waitForEnd("Succeeded")
}

// waitForShardGroup waits until the replicas with a number of shards hold the leader Lease, and the Canary has had more states than
// that.
func (s *environment) waitForShardGroup(shards, states int) {
	s.t.Helper()
	waittest.Until(s.t, fmt.Sprintf("the replicas with %d shards act", shards), func() error {
		lease, err := shared.Client.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), "serin", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder := *lease.Spec.HolderIdentity; holder != fmt.Sprintf("serin-shards-%d", shards) {
			return fmt.Errorf("the Lease is held by %s", holder)
		}
		if recorded, _ := s.canaries.statesFrom(0); len(recorded) <= states {
			return fmt.Errorf("the Canary has %d states", len(recorded))
		}
		return nil
	})
}

// TestReplicasShareTheReleases kills one of three replicas in the middle of releases, with a namespace in each shard, and then
// suspends another one until the last has completed its releases. The other replicas continue the releases, a replica writes only
// while it holds the shard, also after it slept, and no namespace is written alternately.
func TestReplicasShareTheReleases(t *testing.T) {
	t.Parallel()
	log := &writeLog{writers: map[string][]string{}}
	replicas := []string{"serin-shards-a", "serin-shards-b", "serin-shards-c"}
	for _, name := range replicas {
		startShardReplica(t, name, log)
	}
	waitForShards(t, 3, 2)

	teams := make([]*environment, numberOfShards)
	for i, shard := 0, 0; shard < numberOfShards; i++ {
		if name := fmt.Sprintf("shards-%d", i); sharding.ShardOf(name, numberOfShards) == shard {
			teams[shard] = newEnvironment(t, name)
			shard++
		}
	}
	strategy := `{canary: {steps: [{setWeight: 50}, {pause: {duration: 20s}}, {setWeight: 75}, {pause: {duration: 1s}}]}}`
	for _, team := range teams {
		team.apply(rolloutManifest(t, "cart", 2, strategy))
		team.patch(rollouts, "cart", `{"metadata":{"labels":{"`+argov1.InstanceIDLabel+`":"`+shardInstance+`"}}}`)
	}
	for _, team := range teams {
		team.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
		team.releaseVersion("cart", "v2")
	}
	for _, team := range teams {
		team.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "")
	}
	namespaces, identities := map[string][]string{}, map[string]string{} // by replica
	for shard, team := range teams {
		writers := log.in(team.namespace)
		if len(writers) != 1 {
			t.Fatalf("namespace %s was written by %v, want one replica", team.namespace, writers)
		}
		namespaces[writers[0]] = append(namespaces[writers[0]], team.namespace)
		holder, err := shardHolder(t.Context(), shard)
		if err != nil {
			t.Fatal(err)
		}
		identities[writers[0]] = holder
	}
	log.setIdentities(identities)
	for _, name := range replicas {
		if len(namespaces[name]) != 2 {
			t.Errorf("the replicas wrote %v, want two namespaces each", namespaces)
		}
	}

	killed := time.Now()
	if err := shared.Kill(replicas[0]); err != nil {
		t.Fatal(err)
	}
	waitForShards(t, 2, 3)
	// Package sharding tests that a takeover ends within a lease duration and a few attempts, with a simulated clock.
	t.Logf("the takeover took %s, with Leases of %s", time.Since(killed), shardLeaseTime)
	for _, team := range teams {
		team.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
		team.waitForPods("cart", "v2=2")
		writers := log.in(team.namespace)
		if slices.Contains(namespaces[replicas[0]], team.namespace) && len(writers) < 2 {
			t.Errorf("namespace %s of the killed replica was only written by %v", team.namespace, writers)
		}
		if slices.Sort(writers); len(slices.Compact(slices.Clone(writers))) != len(writers) {
			t.Errorf("namespace %s was written alternately: %v", team.namespace, log.in(team.namespace))
		}
	}

	for _, team := range teams {
		team.releaseVersion("cart", "v3")
	}
	for _, team := range teams {
		team.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "")
	}
	if err := shared.Signal(replicas[1], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitForShards(t, 1, numberOfShards)
	for _, team := range teams {
		team.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
		team.waitForPods("cart", "v3=2")
	}
	if err := shared.Signal(replicas[1], unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitForShards(t, 2, numberOfShards/2)
	for _, trespass := range log.allTrespasses() {
		t.Error(trespass)
	}
}
