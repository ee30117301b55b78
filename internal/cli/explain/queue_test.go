package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

func TestQueueHasTheOrderOfTheController(t *testing.T) {
	at := func(second int) metav1.MicroTime { return metav1.NewMicroTime(time.Unix(int64(second), 0)) }
	canaryIn := func(namespace, name string, phase flaggerv1.CanaryPhase, queue *flaggerv1.QueuePlace, annotations map[string]string) *Canary {
		return &Canary{Object: &flaggerv1.Canary{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
			Status:     flaggerv1.CanaryStatus{Phase: phase, Serin: &flaggerv1.SerinStatus{Queue: queue}},
		}}
	}
	later := canaryIn("web", "later", flaggerv1.CanaryPhaseSucceeded, &flaggerv1.QueuePlace{Since: at(9)}, nil)
	later.Snapshot.Queue = &release.QueueState{Limit: 1}
	observed := []Observation{
		canaryIn("shop", "cart", flaggerv1.CanaryPhaseProgressing, nil, nil),
		canaryIn("shop", "idle", flaggerv1.CanaryPhaseSucceeded, nil, nil),
		later,
		canaryIn("shop", "urgent", flaggerv1.CanaryPhaseSucceeded, &flaggerv1.QueuePlace{Since: at(10)}, map[string]string{release.PriorityAnnotation: "5"}),
		canaryIn("shop", "aside", flaggerv1.CanaryPhaseSucceeded, &flaggerv1.QueuePlace{Since: at(1), Aside: true}, nil),
	}
	want := Queue{
		Limit:      1,
		InProgress: []QueueMember{{Kind: KindCanary, Namespace: "shop", Name: "cart"}},
		Waiting: []QueueMember{
			{Kind: KindCanary, Namespace: "shop", Name: "urgent", Position: 1, Priority: 5, Since: at(10).UTC()},
			{Kind: KindCanary, Namespace: "web", Name: "later", Position: 2, Since: at(9).UTC()},
		},
	}
	if diff := cmp.Diff(want, NewQueue(observed)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
