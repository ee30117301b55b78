package cluster

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// countingSelector counts the objects that it is compared with.
type countingSelector struct {
	labels.Selector
	compared *int
}

func (s countingSelector) Matches(set labels.Labels) bool {
	*s.compared++
	return s.Selector.Matches(set)
}

// TestTheWorkForEachReleaseDoesNotGrowWithTheirNumber reads the ReplicaSet of each release, by label and by an index, in one namespace
// and in several.
func TestTheWorkForEachReleaseDoesNotGrowWithTheirNumber(t *testing.T) {
	const n = 4 * maxSingleReads
	for _, namespaces := range []int{1, 3} {
		t.Run(fmt.Sprint(namespaces), func(t *testing.T) {
			scheme, err := Scheme()
			if err != nil {
				t.Fatal(err)
			}
			builder, objects := fake.NewClientBuilder().WithScheme(scheme), make([]client.Object, n)
			for i := range objects {
				rs := &appsv1.ReplicaSet{}
				rs.Namespace, rs.Name = fmt.Sprint("shop-", i%namespaces), fmt.Sprintf("rs-%d", i)
				rs.Labels = map[string]string{"app": fmt.Sprint(i), "team": "all"}
				objects[i] = rs
			}
			reader, err := newReaderOf(t.Context(), builder.WithObjects(objects...).Build(), objects)
			if err != nil {
				t.Fatal(err)
			}
			compared, extracted := 0, 0
			byApp := func(o client.Object) []string {
				extracted++
				return []string{o.GetLabels()["app"], o.GetLabels()["app"]}
			}
			if err := reader.IndexField(t.Context(), &appsv1.ReplicaSet{}, "app", byApp); err != nil {
				t.Fatal(err)
			}
			for i, o := range objects {
				if i == maxSingleReads {
					compared = 0 // the reads before are requests, each of which the fake client compares with all objects
				}
				selector := countingSelector{labels.SelectorFromSet(labels.Set{"app": o.GetLabels()["app"], "team": "all"}), &compared}
				for _, option := range []client.ListOption{client.MatchingLabelsSelector{Selector: selector}, client.MatchingFields{"app": o.GetLabels()["app"]}} {
					var found appsv1.ReplicaSetList
					if err := reader.List(t.Context(), &found, client.InNamespace(o.GetNamespace()), option); err != nil {
						t.Fatal(err)
					}
					if len(found.Items) != 1 || found.Items[0].Name != o.GetName() {
						t.Fatalf("of %s, found %d", o.GetName(), len(found.Items))
					}
				}
				var found appsv1.ReplicaSetList
				if err := reader.List(t.Context(), &found, client.InNamespace("other"), client.MatchingFields{"app": o.GetLabels()["app"]}); err != nil || len(found.Items) > 0 {
					t.Fatalf("in another namespace, found %d, %v", len(found.Items), err)
				}
			}
			if compared > n {
				t.Errorf("%d objects were compared with the selectors of %d releases", compared, n)
			}
			if extracted > 3*n {
				t.Errorf("the index of %d objects was extracted from %d", n, extracted)
			}
		})
	}
}
