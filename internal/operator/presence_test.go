package operator

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// presenceTest is a set of processes without leader election that write Leases to one API server.
type presenceTest struct {
	t      *testing.T
	server *fake.Clientset
	mu     sync.Mutex
	logged []string
}

// start starts a process. It runs until stop is called.
func (p *presenceTest) start(identity string) (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	flags := Flags{LeaderElectionNamespace: "kube-system", Announced: []string{"--mesh-provider=" + identity}}
	logger := funcr.New(func(_, message string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.logged = append(p.logged, identity+": "+message)
	}, funcr.Options{})
	done := make(chan error)
	go func() { done <- flags.newPresence(member{p.server.CoordinationV1(), identity}, logger).Start(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	}
}

func (p *presenceTest) lease() (holder string, args []string) {
	lease, err := p.server.CoordinationV1().Leases("kube-system").Get(p.t.Context(), "serin", metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity, ArgumentsOf(lease)
}

// expectLogged requires one message with that text since the last call; empty: none.
func (p *presenceTest) expectLogged(when, want string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if want == "" && len(p.logged) > 0 || want != "" && (len(p.logged) != 1 || !strings.Contains(p.logged[0], want)) {
		p.t.Errorf("%s: logged %q, want one message with %q", when, p.logged, want)
	}
	p.logged = nil
}

// TestAProcessWithoutElectionHoldsTheLease so that commands find it, and reports a second process next to it.
func TestAProcessWithoutElectionHoldsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &presenceTest{t: t, server: fake.NewClientset()}
		expectHolder := func(when, want string) {
			t.Helper()
			holder, args := p.lease()
			if holder != want || want != "" && cmp.Diff([]string{"--mesh-provider=" + want}, args) != "" {
				t.Errorf("%s: the Lease is held by %q with the flags %q, want %q", when, holder, args, want)
			}
		}
		stopFirst := p.start("first")
		time.Sleep(time.Minute)
		expectHolder("one process", "first")
		p.expectLogged("one process", "")
		stopSecond := p.start("second")
		time.Sleep(3 * time.Minute)
		expectHolder("a second process", "first")
		p.expectLogged("a second process", "second: ")
		stopFirst()
		time.Sleep(time.Minute)
		expectHolder("the first process has ended", "second")
		stopSecond()
		expectHolder("both have ended", "")
		p.expectLogged("both have ended", "")
	})
}

// TestAKilledPredecessorIsNotReported: its Lease seems to be held until it expires.
func TestAKilledPredecessorIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.NowMicro()
		p := &presenceTest{t: t, server: fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "serin"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("killed"), LeaseDurationSeconds: new(int32(60)), RenewTime: &now},
		})}
		stop := p.start("restarted")
		time.Sleep(2 * time.Minute)
		if holder, _ := p.lease(); holder != "restarted" {
			t.Errorf("the expired Lease is held by %q", holder)
		}
		p.expectLogged("restarted", "")
		stop()
	})
}

// TestAnUnwritableLeaseIsReportedOnce because the process works without it.
func TestAnUnwritableLeaseIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &presenceTest{t: t, server: fake.NewClientset()}
		var permitted atomic.Bool
		p.server.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !permitted.Load(), nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "serin", nil)
		})
		stop := p.start("first")
		time.Sleep(10 * time.Minute)
		p.expectLogged("without permission", "commands may not find the process")
		permitted.Store(true)
		time.Sleep(time.Minute)
		if holder, _ := p.lease(); holder != "first" {
			t.Errorf("with the permission, the Lease is held by %q", holder)
		}
		stop()
		p.expectLogged("with the permission", "")
	})
}

// TestAnnouncedArgumentsContainNoSecret: everybody who may read Leases reads them.
func TestAnnouncedArgumentsContainNoSecret(t *testing.T) {
	var flags, read Flags
	set, other := pflag.NewFlagSet("controller", pflag.ContinueOnError), pflag.NewFlagSet("reader", pflag.ContinueOnError)
	flags.Register(set)
	read.Register(other)
	given := []string{"--slack-token=hunter2", "--slack-url=https://hunter2", "--metrics-server=https://user:hunter2@prometheus", "--apis=rollout", "--drain-delay=3s", "--other-controller-namespaces=a,b"}
	if err := set.Parse(given); err != nil {
		t.Fatal(err)
	}
	args := AnnouncedArguments(set)
	if text := strings.Join(args, " "); strings.Contains(text, "hunter2") {
		t.Errorf("announced: %s", text)
	}
	if err := other.Parse(args); err != nil {
		t.Fatal(err)
	}
	flags.SlackToken, flags.SlackURL, flags.MetricsServer = "", "", read.MetricsServer
	if diff := cmp.Diff(flags, read); diff != "" {
		t.Errorf("flags (-controller +reader):\n%s", diff)
	}
}
