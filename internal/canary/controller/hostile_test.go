package controller

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/reconciler"
)

// canaryWithQueries is a Canary with short windows, one rollout hook and one inline query.
func canaryWithQueries(name, hookURL, metricsURL string) *flaggerv1.Canary {
	c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	c.Spec = flaggerv1.CanarySpec{
		TargetRef:     flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
		MetricsServer: metricsURL,
		Analysis: &flaggerv1.CanaryAnalysis{
			Interval: "5ms", Iterations: 2, Threshold: 1,
			Webhooks: []flaggerv1.CanaryWebhook{{Name: "load", URL: hookURL, Timeout: "1h"}},
			Metrics:  []flaggerv1.CanaryMetric{{Name: "errors", Query: "errors", ThresholdRange: &flaggerv1.CanaryThresholdRange{Max: new(1.0)}}},
		},
	}
	return c
}

// misbehavingServers are misbehaving servers, by their behaviour.
func misbehavingServers(t *testing.T, released <-chan struct{}, hanging *atomic.Int32) map[string]string {
	t.Helper()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	hang := func(r *http.Request) {
		hanging.Add(1)
		defer hanging.Add(-1)
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}
	servers := map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			hang(r)
		},
		"drips-headers": func(w http.ResponseWriter, r *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer connection.Close()
			_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nX-A: ")
			hang(r)
		},
		"drips-body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			hang(r)
		},
		"never-ends": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		},
		"endless-headers": func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer connection.Close()
			for i := 0; err == nil; i++ {
				_, err = fmt.Fprintf(connection, "X-%d: %s\r\n", i, strings.Repeat("x", 1<<10))
			}
		},
		"ten-megabytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20)) },
		"bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		},
		"deep": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(`[{"a":`, 100_000))
		},
		"circles":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
		"hangs-up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "\x00\xff\u202e{{ }}%s%n") },
	}
	out := map[string]string{}
	for name, handler := range servers {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		out[name] = server.URL
	}
	return out
}

// TestAMisbehavingServerAffectsOnlyItsOwnRelease releases fifty workloads at once. Some of their servers misbehave; some of
// these hang until all other releases have ended.
func TestAMisbehavingServerAffectsOnlyItsOwnRelease(t *testing.T) {
	released := make(chan struct{})
	var hanging, out, maximum atomic.Int32
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := out.Add(1)
		defer out.Add(-1)
		for seen := maximum.Load(); now > seen && !maximum.CompareAndSwap(seen, now); seen = maximum.Load() {
		}
		_, _ = io.WriteString(w, vector)
	}))
	t.Cleanup(good.Close)

	const residents = 50
	var objects []client.Object
	var well []types.NamespacedName
	bad := misbehavingServers(t, released, &hanging)
	hooks, metrics := map[string]types.NamespacedName{}, map[string]types.NamespacedName{}
	add := func(name, hookURL, metricsURL string) types.NamespacedName {
		c := canaryWithQueries(name, hookURL, metricsURL)
		objects = append(objects, c)
		return client.ObjectKeyFromObject(c)
	}
	for name, address := range bad {
		hooks[name] = add("hook-"+name, address, good.URL)
		metrics[name] = add("metrics-"+name, good.URL, address)
	}
	for i := len(objects); i < residents; i++ {
		well = append(well, add(fmt.Sprint("good-", i), good.URL, good.URL))
	}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, objects...)
	deploy := func(keys ...types.NamespacedName) {
		for _, key := range keys {
			w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
			w.workloads.deploy(w.canary(t, key))
		}
	}
	// The misbehaving ones first, until all that should hang do.
	for name := range bad {
		deploy(hooks[name])
	}
	w.waitFor(t, "three servers hang", func() (bool, string) { return hanging.Load() >= 3, fmt.Sprint(hanging.Load()) })
	for name := range bad {
		deploy(metrics[name])
	}
	deploy(well...)
	for _, key := range well {
		w.waitForPhase(t, key, flaggerv1.CanaryPhaseSucceeded)
	}
	if got := hanging.Load(); got < 3 {
		t.Errorf("%d servers hang, too few to show that no release waits for them", got)
	}
	if got := maximum.Load(); got > 2*maxQueriesPerPool {
		t.Errorf("%d webhooks and queries were pending at once, the maximum is %d of each", got, maxQueriesPerPool)
	}
	for _, name := range []string{"hangs", "drips-headers", "drips-body"} {
		if phase := w.canary(t, hooks[name]).Status.Phase; phase != flaggerv1.CanaryPhaseProgressing {
			t.Errorf("hook that %s: phase %s, want it to wait for its own answer", name, phase)
		}
	}
	close(released)
	for name, key := range hooks {
		want := flaggerv1.CanaryPhaseFailed
		switch name { // any 2xx approves, whatever its body is
		case "never-ends", "ten-megabytes", "bomb", "deep", "garbage", "hangs", "drips-body":
			want = flaggerv1.CanaryPhaseSucceeded
		}
		w.waitForPhase(t, key, want)
	}
	for name, key := range metrics {
		switch name {
		case "hangs", "drips-headers", "drips-body", "hangs-up", "endless-headers":
			continue // unreachable: does not count for a minute
		}
		w.waitForPhase(t, key, flaggerv1.CanaryPhaseFailed)
		if gates := w.canary(t, key).Status.Serin.Gates; len(gates) > reconciler.MaxGates {
			t.Errorf("%s: %d gates in the status", name, len(gates))
		}
	}
}

// TestHangingServersUseOnlyTheSlotsOfTheirNamespace: a namespace with hanging servers uses none of the slots of other
// namespaces, however many servers hang, and its webhooks do not delay its own metric queries.
func TestHangingServersUseOnlyTheSlotsOfTheirNamespace(t *testing.T) {
	released := make(chan struct{})
	defer close(released)
	var hanging atomic.Int32
	bad, good := misbehavingServers(t, released, &hanging)["hangs"], newExternalServer(t, http.StatusOK, vector)
	var objects []client.Object
	add := func(namespace, name, hookURL, metricsURL string) *flaggerv1.Canary {
		c := canaryWithQueries(name, hookURL, metricsURL)
		c.Namespace = namespace
		objects = append(objects, c)
		return c
	}
	var hostile, well []*flaggerv1.Canary
	for i := range 2 * maxQueriesPerPool {
		hook, metric := add("evil", fmt.Sprint("hook-", i), bad, good.URL), add("evil", fmt.Sprint("metric-", i), good.URL, bad)
		hook.Spec.Analysis.Webhooks[0].Timeout, hook.Spec.Analysis.Webhooks[0].Retries = "8760h", 1000
		metric.Spec.Analysis.Webhooks = nil
		metric.Spec.Analysis.Metrics[0].Query = fmt.Sprint("errors_", i) // equal queries would be sent once
		hostile = append(hostile, hook, metric)
	}
	for i := range 5 {
		well = append(well, add("shop", fmt.Sprint("good-", i), good.URL, good.URL))
	}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, objects...)
	deploy := func(all []*flaggerv1.Canary) {
		for _, c := range all {
			w.waitForPhase(t, client.ObjectKeyFromObject(c), flaggerv1.CanaryPhaseInitialized)
			w.workloads.deploy(c)
		}
	}
	deploy(hostile)
	const share = maxQueriesPerPool * 3 / 4 // byCanary one namespace, in each of the two pools
	w.waitFor(t, "the share of the hostile namespace hangs", func() (bool, string) { return hanging.Load() >= 2*share, fmt.Sprint(hanging.Load()) })
	deploy(well)
	for _, c := range well {
		w.waitForPhase(t, client.ObjectKeyFromObject(c), flaggerv1.CanaryPhaseSucceeded)
	}
	if got := hanging.Load(); got > 2*share {
		t.Errorf("%d servers hang, more than the share of one namespace, %d", got, 2*share)
	}
	// Queries that time out free their slots: on a busy machine some slots may be free for a moment.
	w.waitFor(t, "the hostile namespace still has its share", func() (bool, string) { return hanging.Load() == 2*share, fmt.Sprint(hanging.Load()) })
	w.waitFor(t, "reduced settings are reported", func() (bool, string) {
		seen := w.allOutput(t)
		return strings.Contains(seen, "webhook load: timeout 8760h is reduced to the maximum of 1h; retries 1000 are reduced to the maximum of 10"), "not in the events"
	})
}

// TestAWindowMayHaveAnyNumberOfQueries has more queries than the default limit of stored answers.
func TestAWindowMayHaveAnyNumberOfQueries(t *testing.T) {
	const each, windows = 40, 2
	o := newExternalServer(t, http.StatusOK, vector)
	c := canaryWithQueries("cart", o.URL, o.URL)
	c.Spec.Analysis.Iterations = windows
	hook, metric := c.Spec.Analysis.Webhooks[0], c.Spec.Analysis.Metrics[0]
	for i := range each - 1 {
		hook.Name, metric.Name = fmt.Sprint("load-", i), fmt.Sprint("errors-", i)
		c.Spec.Analysis.Webhooks, c.Spec.Analysis.Metrics = append(c.Spec.Analysis.Webhooks, hook), append(c.Spec.Analysis.Metrics, metric)
	}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, c)
	key := client.ObjectKeyFromObject(c)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
	w.workloads.deploy(c)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseSucceeded)
	o.mu.Lock()
	defer o.mu.Unlock()
	if got, maximum := len(o.requests), (windows+1)*2*each; got > maximum {
		t.Errorf("%d queries were sent, want at most %d for %d windows", got, maximum, windows)
	}
}

func TestWebhookTimeoutAndRetriesAreLimited(t *testing.T) {
	for name, test := range map[string]struct {
		timeout string
		retries int
		want    time.Duration
		tries   int
		cut     string
		fails   bool
	}{
		"nothing":         {"", 0, 10 * time.Second, 0, "", false},
		"one letter":      {"5", 0, 10 * time.Second, 0, "", false},
		"what Flagger's":  {"20m", 3, 20 * time.Minute, 3, "", false},
		"the most":        {"1h", 10, time.Hour, 10, "", false},
		"a year":          {"8760h", 0, time.Hour, 0, "timeout 8760h is reduced to the maximum of 1h", false},
		"many retries":    {"10s", 11, 10 * time.Second, 10, "retries 11 are reduced to the maximum of 10", false},
		"not a duration":  {"ten seconds", 2, 10 * time.Second, 2, "", true},
		"more than fits":  {"9999999999h", 0, 10 * time.Second, 0, "", true},
		"a negative time": {"-5s", 0, -5 * time.Second, 0, "", false}, // fails at once, as Flagger's does
	} {
		timeout, retries, cut, err := hookLimits(flaggerv1.CanaryWebhook{Timeout: test.timeout, Retries: test.retries})
		if timeout != test.want || retries != test.tries || cut != test.cut || (err != nil) != test.fails {
			t.Errorf("%s: %s, %d retries, %q, %v", name, timeout, retries, cut, err)
		}
	}
}

func TestAPanicAffectsOnlyItsOwnRelease(t *testing.T) {
	good := newExternalServer(t, http.StatusOK, vector)
	var objects []client.Object
	for _, name := range []string{"broken", "good"} {
		objects = append(objects, canaryWithQueries(name, good.URL, good.URL))
	}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, objects...)
	broken, other := client.ObjectKeyFromObject(objects[0]), client.ObjectKeyFromObject(objects[1])
	w.waitForPhase(t, broken, flaggerv1.CanaryPhaseInitialized)
	w.waitForPhase(t, other, flaggerv1.CanaryPhaseInitialized)

	w.workloads.setPanicking(broken, true)
	for _, key := range []types.NamespacedName{broken, other} {
		w.workloads.deploy(w.canary(t, key))
	}
	blocked := func() string {
		for _, c := range w.canary(t, broken).Status.Conditions {
			if c.Type == flaggerv1.ConditionBlocked {
				return c.Reason + ": " + c.Message
			}
		}
		return ""
	}
	w.waitFor(t, "the panic is reported", func() (bool, string) { return blocked() != "", "no condition" })
	if got := blocked(); !strings.HasPrefix(got, "Fault: Serin could not reconcile this release because of a defect in Serin (panic: runtime error: index out of range") {
		t.Errorf("condition %q", got)
	}
	w.waitForPhase(t, other, flaggerv1.CanaryPhaseSucceeded)
	w.waitFor(t, "event, metric and log", func() (bool, string) {
		seen := w.allOutput(t)
		return !strings.Contains(seen, `serin_panics_total{kind="Canary"} 0`) && strings.Contains(seen, "event broken.") &&
			strings.Contains(seen, "Reconciliation panicked"), seen
	})
	if strings.Contains(w.allOutput(t), "Reconciler error") {
		t.Error("a panic was returned as an error, too")
	}

	w.workloads.setPanicking(broken, false)
	w.enqueue(broken)
	w.waitForPhase(t, broken, flaggerv1.CanaryPhaseSucceeded)
	if got := blocked(); got != "" {
		t.Errorf("fixed, but the condition is still %q", got)
	}
}

func TestEachKindOfErrorHasItsOwnBackoff(t *testing.T) {
	m, now := newMemory(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now = m.RetryAt(cart, reconciler.NotInstalled, now)
	if got := m.RetryAt(cart, reconciler.NotInstalled, now).Sub(now); got != 2*reconciler.InitialBackoff {
		t.Errorf("the second time: %s", got)
	}
	if got := m.RetryAt(cart, reconciler.Refused, now).Sub(now); got != reconciler.InitialBackoff {
		t.Errorf("another kind of error waits %s", got)
	}
	m.ResetBackoff(cart, reconciler.NotInstalled)
	if got := m.RetryAt(cart, reconciler.NotInstalled, now).Sub(now); got != reconciler.InitialBackoff {
		t.Errorf("after a success: %s", got)
	}
}

// TestEveryCallOfAWebhookHasAKey: calls for events have one too, and a call that is repeated has the same key.
func TestEveryCallOfAWebhookHasAKey(t *testing.T) {
	var mu sync.Mutex
	keys := map[string][]string{} // by body
	audit := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		sent := string(body)
		if keys[sent] = append(keys[sent], r.Header.Get("Serin-Key")); len(keys[sent]) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(audit.Close)
	metrics := newExternalServer(t, http.StatusOK, vector)
	c := canaryWithQueries("cart", audit.URL, metrics.URL)
	c.Spec.Analysis.Iterations = 1
	c.Spec.Analysis.Webhooks[0].Retries = 1
	c.Spec.Analysis.Webhooks = append(c.Spec.Analysis.Webhooks, flaggerv1.CanaryWebhook{Name: "audit", Type: flaggerv1.EventHook, URL: audit.URL, Retries: 1})
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, c)
	key := client.ObjectKeyFromObject(c)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
	w.workloads.deploy(c)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseSucceeded)
	w.waitFor(t, "the last event is sent twice", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		for sent, got := range keys {
			if strings.Contains(sent, "Promotion completed!") && len(got) == 2 {
				return true, ""
			}
		}
		return false, fmt.Sprint(keys)
	})
	mu.Lock()
	defer mu.Unlock()
	all := map[string]string{}
	for sent, got := range keys { // the body of the rollout hook is the same in every window
		if len(got) < 2 || len(got[0]) != 64 || got[0] != got[1] {
			t.Errorf("%s was sent with keys %v, want one SHA-256 twice", sent, got)
		}
		all[got[0]] = sent
	}
	if len(all) != len(keys) {
		t.Errorf("%d messages have %d keys", len(keys), len(all))
	}
}
