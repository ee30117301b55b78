package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/traffic"
)

var (
	cart = types.NamespacedName{Namespace: "shop", Name: "cart"}
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// A clock that is set back by a day does not delay the list of the pods by a day.
func TestUnreadyPodsAreListedAlthoughTheClockIsSetBack(t *testing.T) {
	m := newMemory()
	m.nextPodList(cart, false, true, noon, podListDelay)
	yesterday := noon.Add(-24 * time.Hour)
	if at, _ := m.nextPodList(cart, false, true, yesterday, podListDelay); !at.Equal(yesterday.Add(podListDelay)) {
		t.Errorf("got a list at %v, want it after %v", at, yesterday.Add(podListDelay))
	}
}

func TestPodsAreListedBeforeAShortDeadline(t *testing.T) {
	m := newMemory()
	if at, _ := m.nextPodList(cart, false, true, noon, 3*time.Second); !at.Equal(noon.Add(3 * time.Second)) {
		t.Errorf("got a list at %v, want it 3 s after %v", at, noon)
	}
}

// A change of the clock must not delay the next list of the pods by an hour.
func TestTheNextListOfPodsIsNotDelayedByTheClock(t *testing.T) {
	m := newMemory()
	m.nextPodList(cart, false, true, noon, podListDelay)
	later := noon.Add(time.Hour)
	m.recordPodList(cart, false, "", later)
	if at, _ := m.nextPodList(cart, false, true, later, podListDelay); at.After(later.Add(2 * podListDelay)) {
		t.Errorf("got %v", at)
	}
}

func TestPodsAreListedUntilAProblemIsFoundAndAgainAfterTheyWereReady(t *testing.T) {
	m := newMemory()
	look := func(what string, now time.Time, unready bool, at time.Time, problem string) {
		t.Helper()
		if gotAt, got := m.nextPodList(cart, false, unready, now, podListDelay); !gotAt.Equal(at) || got != problem {
			t.Fatalf("%s: got a list at %v and %q, want %v and %q", what, gotAt, got, at, problem)
		}
	}
	first := noon.Add(podListDelay)
	look("unready", noon, true, first, "")
	m.recordPodList(cart, false, "", first)
	look("nothing seen", first, true, noon.Add(2*podListDelay), "")
	m.recordPodList(cart, false, "", noon.Add(2*podListDelay))
	look("nothing seen twice", noon.Add(2*podListDelay), true, noon.Add(4*podListDelay), "")
	m.recordPodList(cart, false, "ImagePullBackOff", noon.Add(4*podListDelay))
	look("seen", noon.Add(time.Hour), true, time.Time{}, "ImagePullBackOff")
	look("ready", noon, false, time.Time{}, "")
	for range maxPodLists {
		look("unready without a reason", noon, true, first, "")
		m.recordPodList(cart, false, "", first)
		first = first.Add(first.Sub(noon))
	}
	look("often enough", noon.Add(time.Hour), true, time.Time{}, "")
	look("ready again", noon, false, time.Time{}, "")
	first = noon.Add(podListDelay)
	look("unready again", noon, true, first, "")
}

func TestAParentWithoutReportIsReadOncePerMinute(t *testing.T) {
	m := newMemory()
	gateway := &traffic.UnreportedParent{Parent: traffic.Ref{GVK: schema.GroupVersionKind{Kind: "Gateway"}, Namespace: "edge", Name: "gatway"}}
	track := func(what string, u *traffic.UnreportedParent, now, since time.Time, isDue bool) unreportedParent {
		t.Helper()
		record, due := m.trackUnreported(cart, u, now)
		if due != isDue || !record.since.Equal(since) {
			t.Fatalf("%s: got %+v, due %t, want since %v, due %t", what, record, due, since, isDue)
		}
		return record
	}
	track("reported", nil, noon, time.Time{}, false)
	track("unreported", gateway, noon, noon, false)
	overdue := noon.Add(canary.UnreportedAfter)
	track("overdue", gateway, overdue, noon, true)
	m.recordUnreported(cart, "it does not exist", overdue)
	if record := track("read", gateway, overdue.Add(unreportedReadInterval-1), noon, false); record.message != "it does not exist" {
		t.Errorf("the message is %q", record.message)
	}
	track("a minute later", gateway, overdue.Add(unreportedReadInterval), noon, true)
	other := *gateway
	other.Parent.Name = "gateway"
	if record := track("another parent", &other, overdue, overdue, false); record.message != other.Message() {
		t.Errorf("the message is %q", record.message)
	}
	track("the clock was set back", &other, noon, noon, false)
	track("reported at last", nil, noon, time.Time{}, false)
	track("unreported again", gateway, overdue, overdue, false)
}
