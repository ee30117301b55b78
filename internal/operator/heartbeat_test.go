package operator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/serin-dev/serin/internal/waittest"
)

// lines returns a logger, and the lines that it has written.
func lines() (logr.Logger, <-chan string) {
	written := make(chan string, 100)
	return funcr.New(func(_, args string) { written <- args }, funcr.Options{}), written
}

func TestAProcessWithoutElectionHoldsItsLeaseWhileItRuns(t *testing.T) {
	leases := fake.NewClientset().CoordinationV1()
	flags := Flags{LeaderElectionNamespace: defaultLeaseNamespace, Argo: ArgoFlags{PodNamespace: "serin-system"}, Announced: []string{"-mesh-provider=istio"}}
	holder := func() string {
		lease, err := leases.Leases("serin-system").Get(t.Context(), "serin", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		if got := ArgumentsOf(lease); len(got) != 1 || got[0] != "-mesh-provider=istio" {
			t.Errorf("the Lease announces %v", got)
		}
		return *lease.Spec.HolderIdentity
	}
	start := func(identity string) (stop func(), log <-chan string) {
		logger, log := lines()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- flags.newHeartbeat(member{leases, identity}, logger).run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the heartbeat of %s: %v", identity, err)
			}
		}, log
	}
	stop, log := start("first")
	waittest.Until(t, "the Lease is held", func() error {
		if got := holder(); got != "first" {
			return errors.New("the Lease is held by " + got)
		}
		return nil
	})
	stopSecond, logOfSecond := start("second")
	if line := waittest.Receive(t, "a report of the second process", logOfSecond); !strings.Contains(line, "both act on every release") || !strings.Contains(line, `"holder"="first"`) {
		t.Errorf("the second process reports %s", line)
	}
	stopSecond()
	if got := holder(); got != "first" {
		t.Errorf("after the second process ended, the Lease is held by %q", got)
	}
	stop()
	if got := holder(); got != "" {
		t.Errorf("the Lease of a process that has ended is held by %q", got)
	}
	if len(log) > 0 {
		t.Errorf("the first process reports %s", <-log)
	}
}

func TestAProcessWithoutThePermissionForItsLeaseContinues(t *testing.T) {
	clientset := fake.NewClientset()
	clientset.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "serin", errors.New("no role"))
	})
	logger, log := lines()
	if err := (&Flags{}).newHeartbeat(member{clientset.CoordinationV1(), "serin-0"}, logger).run(t.Context()); err != nil {
		t.Error(err)
	}
	if line := <-log; !strings.Contains(line, "no permission for its Lease") {
		t.Errorf("reports %s", line)
	}
}

func TestTheNamespaceOfAHeartbeat(t *testing.T) {
	for _, test := range []struct {
		flags Flags
		want  string
	}{
		{Flags{LeaderElectionNamespace: defaultLeaseNamespace}, defaultLeaseNamespace},
		{Flags{LeaderElectionNamespace: defaultLeaseNamespace, Argo: ArgoFlags{PodNamespace: "serin-system"}}, "serin-system"},
		{Flags{LeaderElectionNamespace: "leases", Argo: ArgoFlags{PodNamespace: "serin-system"}}, "leases"},
		{Flags{LeaderElectionNamespace: defaultLeaseNamespace, Namespace: "shop", Argo: ArgoFlags{PodNamespace: "serin-system"}}, "shop"},
	} {
		if got := test.flags.heartbeatNamespace(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.flags, got, test.want)
		}
	}
}
