package operator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestTheLeaseAnnouncesFlags of its holder, also after another process has acquired it.
func TestTheLeaseAnnouncesFlags(t *testing.T) {
	ctx, leases := t.Context(), fake.NewClientset().CoordinationV1()
	for i, holder := range []string{"first", "second"} {
		flags := Flags{LeaderElectionNamespace: "kube-system", Announced: []string{"--mesh-provider=" + holder}}
		lock, record := flags.newLeaderLock(member{leases, holder}), resourcelock.LeaderElectionRecord{HolderIdentity: holder}
		if _, _, err := lock.Get(ctx); (err != nil) != (i == 0) {
			t.Fatal(err)
		}
		write := lock.Create
		if i > 0 {
			write = lock.Update
		}
		if err := write(ctx, record); err != nil {
			t.Fatal(err)
		}
		lease, err := leases.Leases("kube-system").Get(ctx, "serin", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(flags.Announced, ArgumentsOf(lease)); diff != "" {
			t.Errorf("flags on the Lease of %s (-want +got):\n%s", holder, diff)
		}
	}
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
