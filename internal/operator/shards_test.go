package operator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/fence"
	"github.com/serin-dev/serin/internal/telemetry"
)

func TestTheNumberOfShardsIsValidated(t *testing.T) {
	for number, valid := range map[int]bool{-1: false, 0: true, 1: false, 2: true, maxShards: true, maxShards + 1: false} {
		f := Flags{APIs: []string{apiCanary}, Shards: number}
		if err := f.Validate(); (err == nil) != valid || err != nil && !strings.Contains(err.Error(), "-shards") {
			t.Errorf("%d shards: %v", number, err)
		}
	}
}

// TestShardsRequireTheLeaderLease: a process with shards writes nothing before it has joined the group, even without the flag of
// leader election.
func TestShardsRequireTheLeaderLease(t *testing.T) {
	if f := (&Flags{}); f.electsLeader() || f.fences() != nil {
		t.Error("a process without leader election has a fence")
	}
	f := &Flags{Shards: 6, Argo: ArgoFlags{LeaseDuration: time.Hour}}
	if !f.electsLeader() || f.fences().Check(t.Context()) == nil {
		t.Error("a process with shards may write without the leader Lease")
	}
}

func TestEachProcessHasItsOwnIdentity(t *testing.T) {
	for _, hostname := range []string{"serin-7d9f5c-x2b4q", "Laptop.local", "under_score", ""} {
		first, second := memberIdentity(hostname), memberIdentity(hostname)
		if first == second {
			t.Errorf("two processes on host %q have the identity %s", hostname, first)
		}
		if problems := validation.IsDNS1123Subdomain("serin-member-" + first); len(problems) > 0 {
			t.Errorf("host %q: identity %q: %v", hostname, first, problems)
		}
	}
}

// contextRecorder records the context of a patch.
type contextRecorder struct {
	client.Client
	ctx context.Context
}

func (r *contextRecorder) Patch(ctx context.Context, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
	r.ctx = ctx
	return nil
}

func TestWritesOutsideOfReconciliationsRequireTheShard(t *testing.T) {
	f := &Flags{Shards: 2, Argo: ArgoFlags{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryEvery: 2 * time.Second}}
	divided := f.newShards(member{leases: fake.NewClientset().CoordinationV1()}, telemetry.New(prometheus.NewRegistry()), logr.Discard())
	object := &corev1.ConfigMap{}
	object.Namespace, object.Name = "shop", "a"
	recorder := &contextRecorder{}
	if err := divided.client(recorder).Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
		t.Fatal(err)
	}
	if got, want := fence.LeaseOf(recorder.ctx), fence.LeaseOf(divided.held().Context(t.Context(), "shop")); got != want || got == "" {
		t.Errorf("the patch requires Lease %q, want %q", got, want)
	}
	if (*shards)(nil).client(recorder) != client.Client(recorder) {
		t.Error("without shards, the client is wrapped")
	}
}
