package sharding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/fence"
)

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// TestMain discards the logs of the elections.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// replica is one process: its Coordinator, the election for the leader Lease, and its fence.
type replica struct {
	t           *testing.T
	coordinator *Coordinator
	leases      *fence.Leases
	// disconnected is true while the API server is unreachable, shardsUnreachable while its requests for Leases of shards fail.
	disconnected, shardsUnreachable atomic.Bool
	// requeued counts the calls of Requeue by shard.
	mu       sync.Mutex
	requeued map[int]int

	stop    context.CancelFunc
	running sync.WaitGroup
}

var errDisconnected = errors.New("disconnected")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// startReplica starts a replica with a number of shards, as the manager does.
func startReplica(t *testing.T, server *leaseServer, name string, shards int) *replica {
	t.Helper()
	r := &replica{t: t, requeued: map[int]int{}}
	r.leases = fence.NewLeases(clock.RealClock{}, leaseDuration, "serin", LeaseNames("serin", shards)...)
	config := &rest.Config{Host: "https://cluster", Timeout: renewDeadline / 2, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	config.Transport = r.leases.Transport(roundTripper(func(request *http.Request) (*http.Response, error) {
		if r.disconnected.Load() || r.shardsUnreachable.Load() && strings.Contains(request.URL.Path, "serin-shard-") {
			return nil, errDisconnected
		}
		return server.RoundTrip(request)
	}))
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r.coordinator = New(Options{
		Client: client, Clock: clock.RealClock{}, Logger: logr.Discard(), Shards: shards, Identity: name, Leader: "serin", Namespace: "serin-system",
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReportHeld: func(int) {},
	})
	r.coordinator.OnChange(func(_ context.Context, inShard func(string) bool) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for shard := range shards {
			if inShard(namespaceOf(shard, shards)) {
				r.requeued[shard]++
			}
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	lock := NewGroupLock(&resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "serin-system", Name: "serin"}, Client: client}, shards)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { _ = r.coordinator.Start(leading) },
			OnStoppedLeading: stop, // the process ends
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.running.Go(func() { elector.Run(ctx) })
	return r
}

// newTestLock returns the lock of a Lease.
func newTestLock(t *testing.T, server *leaseServer, identity, name string) *resourcelock.LeaseLock {
	t.Helper()
	client, err := coordinationclient.NewForConfig(&rest.Config{Host: "https://cluster", ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "serin-system", Name: name}, Client: client, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

// testTime is any time.
var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// namespaceOf returns a namespace of a shard.
func namespaceOf(shard, shards int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("team-%d", i); ShardOf(name, shards) == shard {
			return name
		}
	}
}

// mayWrite reports whether a reconciliation of a shard could write now, including one that began at any time before.
func (r *replica) mayWrite(shard int) bool {
	ctx := r.coordinator.Held.Context(r.t.Context(), namespaceOf(shard, r.coordinator.Shards))
	return r.leases.Check(ctx) == nil
}

// holds returns the shards that a replica reconciles.
func (r *replica) holds() []int {
	var held []int
	for shard := range r.coordinator.Shards {
		if r.coordinator.Held.Holds(namespaceOf(shard, r.coordinator.Shards)) {
			held = append(held, shard)
		}
	}
	return held
}

// waitUntil advances the time until the condition is true. It checks all along that each shard has at most one writer, and that
// no two replicas with different numbers of shards may write.
func waitUntil(t *testing.T, what string, limit time.Duration, replicas []*replica, condition func() bool) {
	t.Helper()
	const tick = 20 * time.Millisecond
	for began := time.Now(); ; time.Sleep(tick) {
		synctest.Wait()
		checkExclusive(t, replicas)
		if condition() {
			return
		}
		if time.Since(began) > limit {
			var held []string
			for _, r := range replicas {
				held = append(held, fmt.Sprintf("%s holds %v", r.coordinator.Identity, r.holds()))
			}
			t.Fatalf("not after %s: %s; %v", limit, what, held)
		}
	}
}

func checkExclusive(t *testing.T, replicas []*replica) {
	t.Helper()
	writers := map[int][]string{}
	numbers := map[int]bool{}
	for _, r := range replicas {
		for shard := range r.coordinator.Shards {
			if r.mayWrite(shard) {
				writers[shard] = append(writers[shard], r.coordinator.Identity)
				numbers[r.coordinator.Shards] = true
			}
		}
	}
	for shard, names := range writers {
		if len(names) > 1 {
			t.Fatalf("shard %d has the writers %v", shard, names)
		}
	}
	if len(numbers) > 1 {
		t.Fatalf("replicas with different numbers of shards write: %v", numbers)
	}
}

// allHeld reports whether the replicas hold all shards, each as many as its share permits.
func allHeld(replicas ...*replica) func() bool {
	return func() bool {
		shards := replicas[0].coordinator.Shards
		var held []int
		for _, r := range replicas {
			own := r.holds()
			if len(own) > (shards+len(replicas)-1)/len(replicas) {
				return false
			}
			held = append(held, own...)
		}
		slices.Sort(held)
		return len(slices.Compact(held)) == shards
	}
}

// stopAll ends all replicas, as a test must do in a bubble.
func stopAll(replicas ...*replica) {
	for _, r := range replicas {
		r.stop()
	}
	for _, r := range replicas {
		r.running.Wait()
		r.coordinator.running.Wait()
	}
}

func startThree(t *testing.T, server *leaseServer) []*replica {
	t.Helper()
	replicas := []*replica{startReplica(t, server, "a", 6), startReplica(t, server, "b", 6), startReplica(t, server, "c", 6)}
	waitUntil(t, "all shards are held", 30*time.Second, replicas, allHeld(replicas...))
	return replicas
}

func TestReplicasDivideTheShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startThree(t, newLeaseServer(t))
		defer stopAll(replicas...)
		for _, r := range replicas {
			r.mu.Lock()
			for _, shard := range r.holds() {
				if r.requeued[shard] == 0 {
					t.Errorf("%s did not requeue the objects of shard %d", r.coordinator.Identity, shard)
				}
			}
			r.mu.Unlock()
		}
	})
}

// TestTheShardsOfADeadReplicaAreTakenOver within a lease duration, and a few attempts.
func TestTheShardsOfADeadReplicaAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startThree(t, newLeaseServer(t))
		defer stopAll(replicas...)
		lost := replicas[0].holds()
		replicas[0].disconnected.Store(true)
		waitUntil(t, "the others hold all shards", leaseDuration+5*retryPeriod, replicas, allHeld(replicas[1:]...))
		for _, shard := range lost {
			if replicas[0].mayWrite(shard) {
				t.Errorf("the disconnected replica may write shard %d", shard)
			}
		}
	})
}

// TestAReplicaThatEndsHandsOverAtOnce, without waiting for the end of any Lease.
func TestAReplicaThatEndsHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startThree(t, newLeaseServer(t))
		defer stopAll(replicas...)
		replicas[1].stop()
		waitUntil(t, "the others hold all shards", 4*retryPeriod, replicas, allHeld(replicas[0], replicas[2]))
	})
}

// TestANewReplicaReceivesShards, and a running reconciliation ends before its shard is handed over.
func TestANewReplicaReceivesShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		first := startReplica(t, server, "a", 6)
		replicas := []*replica{first}
		waitUntil(t, "the first holds all shards", 30*time.Second, replicas, allHeld(first))
		var ends []func()
		for shard := range 6 {
			_, end, held := first.coordinator.Held.Begin(t.Context(), namespaceOf(shard, 6))
			if !held {
				t.Fatalf("shard %d is not held", shard)
			}
			ends = append(ends, end)
		}
		second := startReplica(t, server, "b", 6)
		replicas = append(replicas, second)
		defer stopAll(replicas...)
		waitUntil(t, "the first stops to reconcile shards", 4*retryPeriod, replicas, func() bool { return len(first.holds()) == 3 })
		began := time.Now()
		waitUntil(t, "the running reconciliations delay the release", drainTimeout, replicas, func() bool { return time.Since(began) > drainTimeout/2 })
		if held := second.holds(); len(held) > 0 {
			t.Errorf("shards %v were handed over while their reconciliations were running", held)
		}
		for _, end := range ends {
			end()
		}
		waitUntil(t, "the second holds its shards", 3*retryPeriod, replicas, allHeld(replicas...))
	})
}

// TestADrainIsBounded: a reconciliation that does not end delays the release of its shard, and may not write after it.
func TestADrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		first := startReplica(t, server, "a", 2)
		waitUntil(t, "the first holds all shards", 30*time.Second, []*replica{first}, allHeld(first))
		for shard := range 2 {
			_, end, _ := first.coordinator.Held.Begin(t.Context(), namespaceOf(shard, 2))
			defer end()
		}
		replicas := []*replica{first, startReplica(t, server, "b", 2)}
		waitUntil(t, "both hold a shard", drainTimeout+5*retryPeriod, replicas, allHeld(replicas...))
		stopAll(replicas...)
	})
}

// TestALostShardIsAcquiredAgainWithoutOldReconciliations: a reconciliation that began before the loss might be older than the
// writes of another holder.
func TestALostShardIsAcquiredAgainWithoutOldReconciliations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReplica(t, newLeaseServer(t), "a", 2)
		defer stopAll(r)
		replicas := []*replica{r}
		waitUntil(t, "it holds all shards", 30*time.Second, replicas, allHeld(r))
		_, end, _ := r.coordinator.Held.Begin(t.Context(), namespaceOf(0, 2))
		r.shardsUnreachable.Store(true)
		waitUntil(t, "the shards are lost", leaseDuration, replicas, func() bool { return len(r.holds()) == 0 })
		r.shardsUnreachable.Store(false)
		waitUntil(t, "the idle shard is acquired again", leaseDuration+5*retryPeriod, replicas, func() bool { return slices.Equal(r.holds(), []int{1}) })
		ends := time.Now().Add(2 * leaseDuration)
		waitUntil(t, "a while has passed", time.Minute, replicas, func() bool { return time.Now().After(ends) })
		if held := r.holds(); !slices.Equal(held, []int{1}) {
			t.Errorf("holds %v while a reconciliation from before the loss is running", held)
		}
		end()
		waitUntil(t, "the other shard is acquired again", leaseDuration+5*retryPeriod, replicas, allHeld(r))
		if n := r.coordinator.Held.Acquisition(namespaceOf(0, 2)); n != 2 {
			t.Errorf("got acquisition %d, want 2", n)
		}
	})
}

// TestReplicasWithAnotherNumberOfShardsWait until all replicas with the first number have ended.
func TestReplicasWithAnotherNumberOfShardsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		replicas := startThree(t, server)
		next := startReplica(t, server, "d", 4)
		all := append(slices.Clone(replicas), next)
		defer stopAll(all...)
		for _, r := range replicas {
			r.stop()
			waitUntil(t, "the replica has ended", drainTimeout, all, func() bool { return len(r.holds()) == 0 })
			if held := next.holds(); len(held) > 0 {
				t.Fatalf("a replica with 4 shards holds %v next to replicas with 6", held)
			}
		}
		waitUntil(t, "the replica with 4 shards holds all", leaseDuration+5*retryPeriod, all, allHeld(next))
	})
}

// TestShardsWaitForASingleLeader, as during an upgrade that enables them.
func TestShardsWaitForASingleLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newLeaseServer(t)
		leading, stopLeading := context.WithCancel(t.Context())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: newTestLock(t, server, "single", "serin"), LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { elector.Run(leading) })
		waitUntil(t, "the single leader leads", leaseDuration, nil, elector.IsLeader)
		r := startReplica(t, server, "a", 6)
		defer stopAll(r)
		ends := time.Now().Add(2 * leaseDuration)
		waitUntil(t, "a while has passed", time.Minute, []*replica{r}, func() bool { return time.Now().After(ends) })
		if held := r.holds(); len(held) > 0 {
			t.Errorf("holds %v next to a single leader", held)
		}
		stopLeading()
		running.Wait()
		waitUntil(t, "the replica holds all shards", 5*retryPeriod, []*replica{r}, allHeld(r))
	})
}

// TestAtMostOneWriter injects disconnections, ends and starts of replicas in a random order.
func TestAtMostOneWriter(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				server := newLeaseServer(t)
				replicas := []*replica{startReplica(t, server, "r0", 4)}
				defer func() { stopAll(replicas...) }()
				for range 8 {
					switch some := replicas[random.IntN(len(replicas))]; random.IntN(4) {
					case 0:
						replicas = append(replicas, startReplica(t, server, fmt.Sprintf("r%d", len(replicas)), 4))
					case 1:
						some.stop()
					default:
						some.disconnected.Store(!some.disconnected.Load())
					}
					ends := time.Now().Add(time.Duration(random.IntN(25_000)) * time.Millisecond)
					waitUntil(t, "the pause ends", time.Minute, replicas, func() bool { return time.Now().After(ends) })
				}
				last := startReplica(t, server, "last", 4)
				for _, r := range replicas {
					r.disconnected.Store(true)
					r.stop()
				}
				replicas = append(replicas, last)
				waitUntil(t, "the last replica holds all shards", leaseDuration+drainTimeout, replicas, allHeld(last))
			})
		})
	}
}
