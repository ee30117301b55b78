package cluster_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	daemonSets = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	revisions  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"}
)

// daemonStatus returns the counts of a DaemonSet: desired, updated, available, misscheduled.
func (s *stage) daemonStatus() [4]int64 {
	var counts [4]int64
	v := s.Server.Peek(daemonSets.GroupKind(), named("cart"))
	for i, field := range []string{"desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberMisscheduled"} {
		counts[i], _, _ = unstructured.NestedInt64(v.Content(), "status", field)
	}
	return counts
}

// change writes another template.
func (s *stage) change(version string, nodes map[string]any) {
	of := template("cart", version)
	if nodes != nil {
		of["spec"].(map[string]any)["nodeSelector"] = nodes
	}
	s.edit(daemonSets, map[string]any{"template": of})
}

func TestDaemonSetReplacesPodsOneAtATimeAndHasNoneWithoutMatchingNodes(t *testing.T) {
	t.Parallel()
	s, least := &stage{}, 3
	s.begin = func(s *stage) {
		s.serve("cart", "cart")
		s.create(daemonSets, "cart", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "cart"}}, "template": template("cart", "v1")})
		s.After(time.Minute, func() {
			if got := s.daemonStatus(); got != [4]int64{3, 3, 3, 0} {
				t.Errorf("want three pods of the first template, got %v", got)
			}
			s.change("v2", nil)
			for second := range 180 {
				s.After(time.Duration(second)*time.Second, func() {
					ready := s.cluster.ReadyEndpoints("shop", "cart")
					least = min(least, ready["v1"]+ready["v2"])
				})
			}
		})
		s.After(5*time.Minute, func() {
			if got := s.daemonStatus(); got != [4]int64{3, 3, 3, 0} || s.cluster.ReadyEndpoints("shop", "cart")["v2"] != 3 {
				t.Errorf("want three pods of the second template, got %v", got)
			}
			if least != 2 {
				t.Errorf("want at least two ready pods at all times, got %d", least)
			}
			s.change("v2", map[string]any{"nowhere": "true"})
		})
		s.After(7*time.Minute, func() {
			if got := s.daemonStatus(); got != [4]int64{} {
				t.Errorf("want no pods, got %v", got)
			}
			s.change("v1", nil)
		})
	}
	s.end = func(s *stage) {
		if got := s.daemonStatus(); got != [4]int64{3, 3, 3, 0} || s.cluster.ReadyEndpoints("shop", "cart")["v1"] != 3 {
			t.Errorf("want three pods of the first template again, got %v", got)
		}
		var newest int64
		all := s.Server.All(revisions.GroupKind())
		for _, one := range all {
			number, _, _ := unstructured.NestedInt64(one.Content(), "revision")
			newest = max(newest, number)
		}
		if len(all) != 3 || newest != 4 {
			t.Errorf("want three templates, the first of them as the fourth revision, got %d and %d", len(all), newest)
		}
	}
	s.playFaultFree(t)
}
