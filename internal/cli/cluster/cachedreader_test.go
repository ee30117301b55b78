package cluster_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// copies returns a manifest n times, with other names. Objects without the name are shared.
func copies(manifest, name string, n int) string {
	var out []string
	for i := range n {
		replacer := strings.NewReplacer(name, fmt.Sprintf("%s%d", name, i), "-uid", fmt.Sprintf("-uid%d", i))
		for document := range strings.SplitSeq(manifest, "\n---\n") {
			if i == 0 || strings.Contains(document, "name: "+name) {
				out = append(out, replacer.Replace(document))
			}
		}
	}
	return strings.Join(out, "\n---\n")
}

// unexported lets cmp compare all fields of a description.
var unexported = cmp.Exporter(func(reflect.Type) bool { return true })

func TestTheNumberOfRequestsDoesNotGrowWithTheNumberOfReleases(t *testing.T) {
	const n = 105 // just above the number of single reads
	for _, test := range []struct {
		name, manifest string
		perRelease     int64 // the Secret of each Canary, whose content is not listed
	}{
		{"cart", clitest.Cart + clitest.CartPods, 1},
		{"web", clitest.WebRollout + clitest.WebPods, 0},
	} {
		for _, namespace := range []string{"shop", ""} {
			t.Run(test.name+" in namespace "+namespace, func(t *testing.T) {
				few, many := countRequests(t, test.manifest, test.name, namespace, n), countRequests(t, test.manifest, test.name, namespace, 2*n)
				if grown := many - few; grown > n*test.perRelease {
					t.Errorf("%d releases need %d requests, and %d need %d", n, few, 2*n, many)
				}
			})
		}
	}
}

// countRequests returns the number of requests of one observation, and checks that it describes releases as if they were alone.
func countRequests(t *testing.T, manifest, name, namespace string, n int) (count int64) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, copies(manifest, name, n))
		time.Sleep(10 * time.Second) // of the bubble
		var requests atomic.Int64
		w.CountRequests(func() { requests.Add(1) })
		observed, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: namespace})
		if err != nil || len(observed.Releases) != n {
			t.Fatalf("observed %d releases, %v", len(observed.Releases), err)
		}
		count = requests.Load()
		for _, one := range []explain.Observation{observed.Releases[0], observed.Releases[n-1]} {
			alone, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop", Names: []cluster.Name{{Name: one.Key().Name}}})
			if err != nil {
				t.Fatal(err)
			}
			now := w.Session.Clock.Now()
			if diff := cmp.Diff(alone.Releases[0].Describe(now), one.Describe(now), unexported); diff != "" {
				t.Errorf("%s alone and with the others (-alone +with):\n%s", one.Key().Name, diff)
			}
		}
	})
	return count
}

func TestReleasesAreReadOneByOneWithoutThePermissionToListTheirObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 120
		w := clitest.NewFakeCluster(t, copies(clitest.Cart, "cart", n))
		w.Forbid("DeploymentList")
		observed, err := w.Session.Observe(t.Context(), cluster.Selection{Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		last := observed.Releases[n-1].Describe(w.Session.Clock.Now())
		if last.Weight != 20 || len(last.Unread) > 0 {
			t.Errorf("the last release has weight %d, and could not read %v", last.Weight, last.Unread)
		}
	})
}
