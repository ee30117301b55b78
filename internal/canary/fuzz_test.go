package canary_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// FuzzJSON decides about Canaries with any spec, status and command that a user could write.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"spec":{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"cart"},"analysis":{"interval":"1m","threshold":2,
		"stepWeight":20,"maxWeight":60,"metrics":[{"name":"request-success-rate","thresholdRange":{"min":99}}],
		"webhooks":[{"name":"load","url":"http://load"},{"type":"rollback","name":"back","url":"http://back"}]}},
		"status":{"phase":"Progressing","canaryWeight":20,"iterations":0,"failedChecks":1,"lastAppliedSpec":"hash-v2","serin":{
		"revision":"v2","promoted":"v1","run":"run","window":{"start":"2026-01-01T00:00:00.000000Z"}}}}`), "abort@run", uint64(0x1234))
	f.Add([]byte(`{"spec":{"analysis":{"iterations":1e300,"interval":"2562047h","match":[{}],"stepWeights":[-1,1e19]}},"status":{"phase":"WaitingPromotion",
		"canaryWeight":-9223372036854775808,"iterations":9223372036854775807,"failedChecks":-5,"lastTransitionTime":"9999-12-31T23:59:59Z","serin":{
		"window":{"start":"9999-12-31T23:59:59.999999Z"},"since":"0001-01-01T00:00:00Z","drainUntil":"9999-12-31T23:59:59.999999Z"}}}`), "@", ^uint64(0))
	f.Add([]byte(`{"spec":{"provider":"kubernetes","analysis":{"stepWeight":1}},"status":{"phase":"Unheard-of","serin":{"intent":"rollback","shape":"///"}}}`), "retry@@", uint64(1))
	f.Fuzz(func(t *testing.T, object []byte, command string, seed uint64) {
		var c flaggerv1.Canary
		if json.Unmarshal(object, &c) != nil {
			return // the API server rejects invalid JSON
		}
		command = strings.ToValidUTF8(command, "?") // annotations are valid UTF-8
		runUntilIdle(t, &c, command, &source{data: binary.BigEndian.AppendUint64(nil, seed)})
	})
}

// FuzzFields decides about Canaries whose fields are drawn one by one, in any combination.
func FuzzFields(f *testing.F) {
	f.Add([]byte("0"))
	for i := range 20 {
		seed := make([]byte, 400)
		for j := range seed {
			seed[j] = byte(i*j*7 + j>>3)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		source := &source{data: data}
		var c flaggerv1.Canary
		source.fill(reflect.ValueOf(&c.Status).Elem())
		source.fill(reflect.ValueOf(&c.Spec).Elem())
		if c.Spec.Analysis == nil {
			c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: "1m", StepWeight: 30}
		}
		command := oddText(source)
		if source.rarely() {
			command = canary.NewCommand([]string{"abort", "promote", "retry", "promote-full"}[source.byte()%4], "uid", c.Status)
		}
		runUntilIdle(t, &c, command, source)
	})
}

// runUntilIdle runs a Canary in a world that the source draws: it is reconciled until nothing changes, and again at each wake-up.
func runUntilIdle(t *testing.T, c *flaggerv1.Canary, command string, source *source) {
	w := newWorld()
	w.spec, w.command = c.Spec, command
	w.settings.NoCrossNamespace, w.settings.MinInterval = source.rarely(), time.Duration(source.byte()%2)*10*time.Second
	w.instantPods = source.byte()%2 == 0
	w.target.available, w.target.deadlineExceeded = int32(source.byte()%2), source.rarely()
	w.target.template = templates[source.byte()%3]
	if !source.rarely() {
		w.primary = workload{content: content{template: templates[source.byte()%3]}, found: true, replicas: 1, total: 1, available: int32(source.byte() % 2)}
	}
	w.history = []content{{template: "v1"}}
	w.deleting, w.finalizer = source.rarely(), source.rarely()
	w.status = storedStatus(c.Status)
	plan := w.plan()
	if !source.rarely() {
		w.matched[plan.Provider] = (plan.Strategy == canary.ABTesting) != source.rarely()
		w.routes[plan.Provider] = &canary.Route{
			Found: true, Canary: int(source.byte()) % 101, Mirrored: source.rarely(), Confirmation: canary.CannotTell,
		}
	}
	w.standingAnswers["all"] = []string{"good", "bad", "unreachable:away", "no-data:none", "broken:query", "NaN", "+Inf", "-1e308"}[source.byte()%8]
	checkPlan(t, plan)
	for range 12 {
		wake := time.Time{}
		idle := w.settle(100, func(p reconciliation) {
			checkReconciliation(t, w, p)
			wake = p.Wake
			if p.statusWritten {
				wake = time.Time{}
			}
		})
		if !idle {
			t.Fatalf("does not become idle: %+v", w.status)
		}
		if plan := w.plan(); !plan.Suspended {
			checkStatus(t, w)
		}
		if w.deleted || wake.IsZero() {
			return
		}
		if !wake.After(w.now) {
			t.Fatalf("nothing changes, but it wakes at %s, which is not after %s", wake, w.now)
		}
		w.now = wake
	}
}

func checkPlan(t *testing.T, p canary.Plan) {
	t.Helper()
	if p.Interval <= 0 || p.Threshold < 1 || p.Iterations < 0 || p.PromotionStep < 0 || p.PromotionStep > release.Total {
		t.Fatalf("invalid plan: interval %s, threshold %d, iterations %d, step back %d", p.Interval, p.Threshold, p.Iterations, p.PromotionStep)
	}
	if p.Strategy == canary.Weighted && !p.SkipAnalysis && len(p.ValidationErrors) == 0 && (p.MaxWeight < 1 || p.MaxWeight > release.Total ||
		p.StepWeight < 1 && (len(p.StepWeights) == 0 || slices.Min(p.StepWeights) < 1 || slices.Max(p.StepWeights) > release.Total)) {
		t.Fatalf("weights that never reach the maximum: step %d, steps %v, max %d", p.StepWeight, p.StepWeights, p.MaxWeight)
	}
}

func checkReconciliation(t *testing.T, w *world, p reconciliation) {
	t.Helper()
	s := w.snapshot()
	if first, second := canary.Next(s), canary.Next(s); !reflect.DeepEqual(first, second) {
		t.Fatalf("two decisions about one snapshot differ:\n%s", cmp.Diff(first, second))
	}
	for _, effect := range p.Effects {
		if weight, ok := weightOf(effect); ok && (weight < 0 || weight > release.Total) {
			t.Fatalf("%s: weight %d is out of range", effect, weight)
		}
	}
	if !w.plan().Suspended && (p.Status.CanaryWeight < 0 || p.Status.CanaryWeight > release.Total) {
		t.Fatalf("the status has weight %d", p.Status.CanaryWeight)
	}
	if back := storedStatus(p.Status); !equality.Semantic.DeepEqual(p.Status, back) {
		t.Fatalf("the status differs after a round trip: %s", cmp.Diff(p.Status, back))
	}
	for _, gate := range p.Gates {
		if !utf8.ValidString(gate.Message) || gate.Verdict != release.Pass && gate.Opener == "" {
			t.Fatalf("gate %+v", gate)
		}
	}
	for _, query := range p.Queries {
		if len(query.ID) > 2<<10 {
			t.Fatalf("a query with an ID of %d bytes", len(query.ID))
		}
	}
	for _, event := range p.Events {
		if event.Message == "" || !utf8.ValidString(event.Message) {
			t.Fatalf("event %+v", event)
		}
	}
	if at := p.Wake; !at.IsZero() && at.Before(s.Now.Add(-time.Second)) {
		t.Fatalf("wakes in the past, at %s", at)
	}
}

// checkStatus checks the invariants of every status in which a release is idle, whatever the initial status was.
func checkStatus(t *testing.T, w *world) {
	t.Helper()
	status := w.status
	if status.FailedChecks < 0 || status.Iterations < -1 || len(status.Conditions) > 22 {
		t.Fatalf("failed %d, iterations %d, %d conditions", status.FailedChecks, status.Iterations, len(status.Conditions))
	}
	if status.LastTransitionTime.After(w.now) {
		t.Fatalf("last transition at %s, now %s", status.LastTransitionTime, w.now)
	}
	if strings.ContainsAny(status.SessionAffinityCookie, "\r\n;") {
		t.Fatalf("cookie %q", status.SessionAffinityCookie)
	}
	serin := status.Serin
	if serin == nil {
		return
	}
	for name, at := range map[string]*metav1.MicroTime{"since": serin.Since, "asked": serin.Asked, "unreachable": serin.Unreachable, "lastTraffic": serin.LastTraffic} {
		if at != nil && at.After(w.now) {
			t.Fatalf("%s is %s, now %s", name, at, w.now)
		}
	}
	for name, of := range map[string]*flaggerv1.UnreadyWorkload{"canaryUnready": serin.CanaryUnready, "primaryUnready": serin.PrimaryUnready} {
		if of != nil && of.Since.After(w.now) {
			t.Fatalf("%s is since %s, now %s", name, of.Since, w.now)
		}
	}
	if serin.DrainUntil != nil && serin.DrainUntil.After(w.now.Add(w.plan().Drain)) {
		t.Fatalf("drains until %s", serin.DrainUntil)
	}
	if serin.Window != nil && serin.Window.Start.After(w.now) {
		t.Fatalf("the window starts at %s", serin.Window.Start)
	}
}

// source draws values from bytes, and zeros after the last byte.
type source struct {
	data []byte
	at   int
}

func (s *source) byte() byte {
	if s.at >= len(s.data) {
		return 0
	}
	s.at++
	return s.data[s.at-1]
}

func (s *source) rarely() bool { return s.byte()%8 == 7 }

// fill draws a value of any type of the API.
func (s *source) fill(v reflect.Value) {
	switch target := v.Addr().Interface().(type) {
	case *metav1.Time:
		target.Time = oddMoment(s)
		return
	case *metav1.MicroTime:
		target.Time = oddMoment(s)
		return
	case *flaggerv1.CanaryPhase:
		*target = phases[int(s.byte())%len(phases)]
		return
	case *flaggerv1.HookType:
		*target = hookTypes[int(s.byte())%len(hookTypes)]
		return
	case *corev1.ConditionStatus:
		*target = corev1.ConditionTrue
		return
	case *flaggerv1.TargetReference:
		*target = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
		if s.rarely() {
			*target = flaggerv1.TargetReference{APIVersion: oddText(s), Kind: oddText(s), Name: oddText(s)}
		}
		return
	case *flaggerv1.CanaryService, *json.RawMessage:
		return // no decision depends on them
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			s.fill(field)
		}
	case reflect.Pointer:
		if s.byte()%3 > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			s.fill(v.Elem())
		}
	case reflect.Slice:
		n := int(s.byte()) % 4
		if s.rarely() {
			n *= 20
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			s.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range int(s.byte()) % 3 {
			value := reflect.New(v.Type().Elem()).Elem()
			s.fill(value)
			v.SetMapIndex(reflect.ValueOf(fmt.Sprint("key", i)), value)
		}
	case reflect.String:
		v.SetString(oddText(s))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(oddInt(s) >> (64 - v.Type().Bits()))
		if small := int64(s.byte()); small < 200 {
			v.SetInt(small - 10)
		}
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, 99.5, -1, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64}[s.byte()%7])
	case reflect.Bool:
		v.SetBool(s.rarely())
	default: // the API has no others
	}
}

func oddInt(s *source) int64 {
	return []int64{0, -1, math.MaxInt64, math.MinInt64, 1 << 31, 1 << 30, -1 << 31, 1 << 62, 101}[s.byte()%9]
}

func oddMoment(s *source) time.Time {
	moments := []time.Time{
		{},
		midnight, midnight.Add(-time.Hour), midnight.Add(time.Hour), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC), midnight.Add(-30 * time.Second), time.Unix(0, 0).UTC(),
	}
	return moments[s.byte()%8]
}

func oddText(s *source) string {
	texts := []string{
		"", "cart", "1m", "-1m", "2562047h47m16.854775807s", "10", "v1", "v2", "hash-v1", "none", "peer-", "peer-x", "run", "rollback", "cancel", "skip",
		"completed", "skipped", "failed", "canary/istio/Deployment/cart", "///", "Promoted", "Blocked", "istio", "kubernetes", "unheard-of", "gatewayapi:v1",
		"request-success-rate", "request-duration", "é\u202e", "a=b\r\nX: y", "%s%n", "/", "@", "confirm-rollout/cart", strings.Repeat("long", 1000),
	}
	return texts[int(s.byte())%len(texts)]
}
