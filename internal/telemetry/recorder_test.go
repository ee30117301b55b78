package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/internal/release"
)

// apiServer is a fake API server that stores events and records its requests.
type apiServer struct {
	mu       sync.Mutex
	events   map[string]*corev1.Event
	requests []string
	fail     []error // the results of the next requests
	lose     bool    // the next creation succeeds, but its response is lost
}

var _ EventWriter = client.Client(nil)

var eventResource = schema.GroupResource{Resource: "events"}

func (s *apiServer) answer(request string) error {
	s.requests = append(s.requests, request)
	if len(s.fail) == 0 {
		return nil
	}
	err := s.fail[0]
	s.fail = s.fail[1:]
	return err
}

func (s *apiServer) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer("create"); err != nil {
		return err
	}
	event, ok := obj.(*corev1.Event)
	switch {
	case !ok:
		return fmt.Errorf("not an event: %T", obj)
	case event.ResourceVersion != "":
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case s.events[event.Name] != nil:
		return apierrors.NewAlreadyExists(eventResource, event.Name)
	}
	s.events[event.Name] = event.DeepCopy()
	event.ResourceVersion = "1"
	if s.lose {
		s.lose = false
		return errors.New("connection reset by peer")
	}
	return nil
}

func (s *apiServer) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer("patch"); err != nil {
		return err
	}
	event := s.events[obj.GetName()]
	if event == nil {
		return apierrors.NewNotFound(eventResource, obj.GetName())
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if patch.Type() != types.MergePatchType {
		return apierrors.NewBadRequest("not a merge patch")
	}
	return json.Unmarshal(data, event)
}

// eventCounts returns the counts of the events by "type message".
func (s *apiServer) eventCounts() map[string]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int32{}
	for _, event := range s.events {
		out[event.Type+" "+event.Message] += event.Count
	}
	return out
}

func newTestRecorder(t *testing.T) (*Recorder, *apiServer, *safeBuffer) {
	t.Helper()
	o, _, logged := startOutbox(t)
	server := &apiServer{events: map[string]*corev1.Event{}}
	return NewRecorder(server, o, clock.RealClock{}, ""), server, logged
}

func objectRef(name string) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: "flagger.app/v1beta1", Kind: "Canary", Namespace: "shop", Name: name,
		UID: types.UID("uid-of-" + name), ResourceVersion: "42",
	}
}

func normal(message string) release.Event {
	return release.Event{Type: release.Normal, Message: message}
}

func TestAnEventHasTheFormThatUsersKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		began := time.Now()
		r.Event(t.Context(), objectRef("cart"), normal("Advance cart.shop canary weight 20"))
		synctest.Wait()

		name := fmt.Sprintf("cart.%x", began.UnixNano())
		want := map[string]*corev1.Event{name: {
			ObjectMeta:          metav1.ObjectMeta{Namespace: "shop", Name: name},
			InvolvedObject:      objectRef("cart"),
			Reason:              "Synced",
			Message:             "Advance cart.shop canary weight 20",
			Source:              corev1.EventSource{Component: "flagger"},
			FirstTimestamp:      metav1.NewTime(began),
			LastTimestamp:       metav1.NewTime(began),
			Count:               1,
			Type:                "Normal",
			ReportingController: "flagger",
		}}
		expect(t, "events", server.events, want)
	})
}

// W42: one reason for all events makes the usual recorder merge the tenth text and drop the twenty-sixth.
func TestEveryTextOfALongRunIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		want := map[string]int32{}
		for i := range 300 {
			text := fmt.Sprintf("Advance cart.shop canary weight %d", i)
			want["Normal "+text] = 1
			r.Event(t.Context(), objectRef("cart"), normal(text))
		}
		synctest.Wait()
		expect(t, "events", server.eventCounts(), want)
		expect(t, "requests", len(server.requests), 300)
		if got := len(r.texts[shopRelease("cart")].records); got != maxTexts {
			t.Errorf("texts remembered: %d, want %d", got, maxTexts)
		}
	})
}

func TestARepeatedTextRaisesTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		began := time.Now()
		r.Event(t.Context(), objectRef("cart"), normal("again"))
		advanceTime(time.Minute)
		r.Event(t.Context(), objectRef("cart"), normal("again"))
		warning := normal("again")
		warning.Type = release.Warning
		r.Event(t.Context(), objectRef("cart"), warning)
		synctest.Wait() // messages of two releases have no order
		r.Event(t.Context(), objectRef("till"), normal("again"))
		synctest.Wait()

		expect(t, "requests", strings.Join(server.requests, " "), "create patch create create")
		first := server.events[fmt.Sprintf("cart.%x", began.UnixNano())]
		expect(t, "count", first.Count, int32(2))
		if got, want := first.LastTimestamp.Sub(first.FirstTimestamp.Time).Round(time.Second), time.Minute; got != want {
			t.Errorf("between first and last time: %s, want %s", got, want)
		}
	})
}

func step(n int) release.Event {
	return release.Event{Type: release.Normal, Reason: "RolloutStepCompleted", Message: fmt.Sprintf("step %d", n), InStatus: true, Individual: 2}
}

func pause(n int) release.Event {
	return release.Event{Type: release.Normal, Reason: "RolloutPaused", Message: fmt.Sprintf("pause %d", n), InStatus: true, Individual: 1}
}

func TestEventsThatTheStatusShowsAreCombinedAfterTheFirstOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		for n := range 20 {
			r.Event(t.Context(), objectRef("cart"), step(n+1))
			r.Event(t.Context(), objectRef("cart"), pause(n+1))
		}
		warning := pause(1)
		warning.Type = release.Warning
		r.Event(t.Context(), objectRef("cart"), warning)
		r.Event(t.Context(), objectRef("cart"), normal("not in the status"))
		synctest.Wait()
		want := map[string]int32{"Normal step 1": 1, "Normal step 2": 1, "Normal pause 1": 1, "Warning pause 1": 1, "Normal not in the status": 1}
		expect(t, "events at first", server.eventCounts(), want)

		advanceTime(combinationInterval)
		want["Normal (combined from similar events): step 20; pause 20"] = 37
		expect(t, "events after an interval", server.eventCounts(), want)
		expect(t, "requests", strings.Join(server.requests, " "), "create create create create create create")

		server.fail = []error{apierrors.NewServiceUnavailable("busy")}
		r.Event(t.Context(), objectRef("cart"), step(21))
		r.Event(t.Context(), objectRef("cart"), step(22))
		advanceTime(combinationInterval)
		r.Event(t.Context(), objectRef("cart"), step(23)) // before the retry
		advanceTime(2 * combinationInterval)
		delete(want, "Normal (combined from similar events): step 20; pause 20")
		want["Normal (combined from similar events): pause 20; step 23"] = 40
		expect(t, "events after a failure", server.eventCounts(), want)
		for _, event := range server.events {
			if strings.HasPrefix(event.Message, combinedPrefix) {
				expect(t, "reason of the combined event", event.Reason, "RolloutStepCompleted")
			}
		}

		advanceTime(seriesPeriod + time.Second)
		r.Event(t.Context(), objectRef("cart"), step(24))
		synctest.Wait()
		want["Normal step 24"] = 1
		expect(t, "events much later", server.eventCounts(), want)
	})
}

// TestEachSeriesHasACombinedEvent: a retried release has a series of its own, and that of the aborted one is still written.
func TestEachSeriesHasACombinedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		for n := range 4 {
			r.Event(t.Context(), objectRef("cart"), step(n+1))
		}
		aborted := release.Event{Type: release.Warning, Reason: "RolloutAborted", Message: "aborted", StartsSeries: true}
		r.Event(t.Context(), objectRef("cart"), aborted)
		for n := range 5 {
			r.Event(t.Context(), objectRef("cart"), step(n+1))
		}
		synctest.Wait()
		want := map[string]int32{"Normal step 1": 2, "Normal step 2": 2, "Warning aborted": 1}
		expect(t, "events at first", server.eventCounts(), want)
		advanceTime(combinationInterval)
		want["Normal (combined from similar events): step 4"], want["Normal (combined from similar events): step 5"] = 2, 3
		expect(t, "events after an interval", server.eventCounts(), want)
	})
}

func TestACombinedEventIsWrittenBeforeTheProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, stop, _ := startOutbox(t)
		server := &apiServer{events: map[string]*corev1.Event{}}
		r := NewRecorder(server, o, clock.RealClock{}, "")
		for n := range 5 {
			r.Event(t.Context(), objectRef("cart"), step(n+1))
		}
		synctest.Wait()
		stop()
		expect(t, "count", server.eventCounts()["Normal (combined from similar events): step 5"], int32(3))
	})
}

func TestARecreatedObjectHasItsOwnEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		recreated := objectRef("cart")
		recreated.UID = "another"
		r.Event(t.Context(), objectRef("cart"), normal("again"))
		r.Event(t.Context(), recreated, normal("again"))
		r.Forget(shopRelease("cart"))
		r.Event(t.Context(), recreated, normal("again"))
		synctest.Wait()
		expect(t, "requests", strings.Join(server.requests, " "), "create create create")
		expect(t, "different events", len(server.events), 3)
	})
}

// A late event must not make the recorder remember an object after Forget, which is not called again.
func TestALateEventIsWrittenAndNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		r.Event(t.Context(), objectRef("cart"), normal("begins"))
		r.LateEvent(t.Context(), objectRef("cart"), normal("not sent"))
		r.LateEvent(t.Context(), objectRef("cart"), normal("not sent"))
		r.Forget(shopRelease("cart"))
		r.LateEvent(t.Context(), objectRef("cart"), normal("not sent, too"))
		synctest.Wait()
		expect(t, "events", server.eventCounts(), map[string]int32{"Normal begins": 1, "Normal not sent": 2, "Normal not sent, too": 1})
		expect(t, "objects that are remembered", len(r.texts), 0)
	})
}

func TestAnEventThatExpiredIsCreatedWithItsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		r.Event(t.Context(), objectRef("cart"), normal("again"))
		synctest.Wait()
		clear(server.events)
		r.Event(t.Context(), objectRef("cart"), normal("again"))
		synctest.Wait()
		expect(t, "events", server.eventCounts(), map[string]int32{"Normal again": 2})
	})
}

func TestAnEventIsRetriedWhileTheAPIServerIsUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		fail []error
		lose bool
		want string
		lost bool
	}{
		"unavailable":   {fail: []error{errors.New("connection refused"), errors.New("connection refused")}, want: "create create create"},
		"busy":          {fail: []error{apierrors.NewTooManyRequests("later", 1)}, want: "create create"},
		"broken":        {fail: []error{apierrors.NewInternalError(errors.New("etcd"))}, want: "create create"},
		"response lost": {lose: true, want: "create create"},
		"not permitted": {fail: []error{apierrors.NewForbidden(eventResource, "x", errors.New("no"))}, want: "create", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, server, logged := newTestRecorder(t)
				server.fail, server.lose = test.fail, test.lose
				r.Event(t.Context(), objectRef("cart"), normal("text"))
				advanceTime(time.Minute)
				expect(t, "requests", strings.Join(server.requests, " "), test.want)
				if lost := len(server.events) == 0; lost != test.lost {
					t.Errorf("lost: %v, want %v", lost, test.lost)
				}
				if reported := strings.Contains(logged.String(), `Kubernetes event \"text\"`); reported != test.lost {
					t.Errorf("the log reports the lost event: %v, want %v: %s", reported, test.lost, logged)
				}
			})
		})
	}
}

// The API server does not delay messages to webhooks, and a webhook does not delay Kubernetes events.
func TestEventsKeepTheirOrderAndWaitForNoHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		server.fail = []error{errors.New("connection refused")}
		began := time.Now()
		hooks := &textLog{}
		hook := func(err error) func(context.Context) error {
			return func(context.Context) error {
				hooks.add(time.Since(began).String())
				return err
			}
		}
		r.Event(t.Context(), objectRef("cart"), normal("first"))
		r.outbox.Post(shopRelease("cart"), "event hook", hook(Transient(errors.New("busy"))))
		r.Event(t.Context(), objectRef("cart"), normal("second"))
		synctest.Wait()
		expect(t, "hooks while the API server is unavailable", hooks.list(), []string{"0s"})
		expect(t, "events while it is unavailable", len(server.eventCounts()), 0)
		advanceTime(2 * time.Second)
		expect(t, "events while the hook is tried again", len(server.eventCounts()), 2)
		expect(t, "requests", strings.Join(server.requests, " "), "create create create")
		advanceTime(time.Minute)
	})
}

func TestAnAlertOnlyEventIsNeitherLoggedNorWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, _ := newTestRecorder(t)
		logger, logged := testLogger(t)
		silent := normal("only an alert")
		silent.AlertOnly = true
		r.Event(log.IntoContext(t.Context(), logger), objectRef("cart"), silent)
		synctest.Wait()
		expect(t, "requests", len(server.requests), 0)
		expect(t, "logged", logged.String(), "")
	})
}

// W58: warnings were logged as information, and alarms on the log missed them.
func TestTheLogLevelFollowsTheTypeOfTheEvent(t *testing.T) {
	for level, event := range map[string]release.Event{
		"info":  normal("text"),
		"warn":  {Type: release.Warning, Message: "text"},
		"error": {Type: release.Warning, Message: "text", Internal: true},
	} {
		t.Run(level, func(t *testing.T) {
			logger, logged := testLogger(t)
			r := NewRecorder(&apiServer{}, NewOutbox(clock.RealClock{}, logger), clock.RealClock{}, "")
			r.Event(log.IntoContext(t.Context(), logger.WithValues("run", "r1")), objectRef("cart"), event)
			var line map[string]string
			if err := json.Unmarshal([]byte(logged.String()), &line); err != nil {
				t.Fatalf("%v: %s", err, logged)
			}
			delete(line, "ts")
			if !strings.HasPrefix(line["caller"], "telemetry/recorder_test.go:") {
				t.Errorf("caller %q, want the place that recorded the event", line["caller"])
			}
			delete(line, "caller")
			expect(t, "line", line, map[string]string{"level": level, "msg": "text", "canary": "cart.shop", "run": "r1"})
		})
	}
}

func TestEventNamesAndTextsAreBounded(t *testing.T) {
	long := strings.Repeat("a", 235) + ".b" + strings.Repeat("c", 16) // 253: as long as a name can be
	name := eventName(long, 0x18f0000000000000)
	expect(t, "name", name, strings.Repeat("a", 235)+".18f0000000000000")

	text := release.Truncate(strings.Repeat("ä", textLimit), textLimit)
	if len(text) > textLimit || !utf8.ValidString(text) || !strings.HasSuffix(text, "ä…") {
		t.Errorf("text of %d bytes, valid %v: …%s", len(text), utf8.ValidString(text), text[len(text)-10:])
	}
	expect(t, "text at the limit", release.Truncate(text, textLimit), text)
}
