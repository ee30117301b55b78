package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin/plugintest"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/waittest"
)

// TestMain lets the process of the tests become that of a plugin, from another thread than its first one, which the scheduler may also
// choose for Serin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == LaunchArgument {
		runtime.LockOSThread()
		failed := make(chan error)
		go func() { failed <- Launch(os.Args[2:]) }()
		fmt.Fprintln(os.Stderr, <-failed)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newTestHost returns a Host with the test plugin as acme/test of each kind.
func newTestHost(t *testing.T, change func(*Options)) *Host {
	t.Helper()
	base, err := os.MkdirTemp("", "sockets") //nolint:usetesting // the path of a socket has at most 108 characters, and another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	o := Options{
		SocketDir: filepath.Join(base, "new"), Dir: t.TempDir(), Launcher: os.Args[0], CallTimeout: time.Minute, StartTimeout: time.Minute, MemoryLimit: 512 << 20, Clock: clock.RealClock{}, Logger: logr.Discard(),
		Metrics: telemetry.New(prometheus.NewRegistry()),
	}
	if change != nil {
		change(&o)
	}
	h := NewHost(t.Context(), o)
	t.Cleanup(h.Close)
	path := plugintest.Build(t)
	data := map[string]string{}
	for kind, argument := range map[Kind]string{Step: "step", Metric: "metricprovider", Router: "trafficrouter"} {
		data[string(kind)] = fmt.Sprintf("- {name: acme/test, location: 'file://%s', args: [%s]}\n- {name: acme/other, location: 'file://%s', args: [%s]}\n- {name: acme/mute, location: 'file://%s', args: [%s, mute]}\n- {name: acme/babble, location: 'file://%s', args: [%s, babble]}",
			path, argument, path, argument, path, argument, path, argument)
	}
	h.Configure(ParseConfig(data))
	return h
}

// callStep calls Run of acme/test.
func callStep(t *testing.T, h *Host, namespace, config string) (StepResult, error) {
	t.Helper()
	return h.CallStep(t.Context(), &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cart"}}, StepCall{
		Plugin: "acme/test", Operation: argov1.StepPluginRun, Config: json.RawMessage(config),
	})
}

// mustSucceed calls a plugin until it is successful: its process may have to be started again.
func mustSucceed(t *testing.T, h *Host) {
	t.Helper()
	waittest.Until(t, "the plugin is successful", func() error {
		result, err := callStep(t, h, "shop", `{}`)
		if err == nil && result.Phase != "Successful" {
			t.Fatalf("got %+v", result)
		}
		return err
	})
}

// readExample returns an object with as many fields as the API has.
func readExample[T any](t *testing.T, name string) *T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "api", "argoproj", "v1alpha1", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	object := new(T)
	if err := yaml.Unmarshal(text, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestRolloutReachesThePluginUnchanged: the plugin decodes a Rollout with the types of Argo Rollouts and returns it.
func TestRolloutReachesThePluginUnchanged(t *testing.T) {
	h := newTestHost(t, nil)
	sent := readExample[argov1.Rollout](t, "rollout-canary.yaml")
	sent.Namespace = "shop"
	sent.Status.Canary.StepPluginStatuses = []argov1.StepPluginStatus{{Index: 1, Name: "a", Operation: argov1.StepPluginRun, Phase: argov1.StepPluginRunning, StartedAt: new(metav1.Now().Rfc3339Copy()), Status: json.RawMessage(`{"a":1}`)}}
	result, err := h.CallStep(t.Context(), sent, StepCall{
		Plugin: "acme/test", Operation: argov1.StepPluginRun, Config: json.RawMessage(`{"echo":true,"phase":"Running","requeue":"1m","message":"m"}`), State: json.RawMessage(`{"calls":4}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Calls   int
		Rollout *argov1.Rollout
	}
	if err := json.Unmarshal(result.State, &state); err != nil {
		t.Fatal(err)
	}
	want := sent.DeepCopy()
	want.Status.Serin, want.Unreadable, want.ManagedFields = nil, nil, nil
	want.Status.Duration = nil // from a later version of Argo Rollouts than that of the plugin
	for _, r := range []*argov1.Rollout{want, state.Rollout} {
		for i := range r.Spec.Template.Spec.Containers {
			r.Spec.Template.Spec.Containers[i].Resources = corev1.ResourceRequirements{} // the encoding loses quantities, as with Argo Rollouts
		}
	}
	if diff := cmp.Diff(asTree(t, want), asTree(t, state.Rollout)); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
	if state.Calls != 5 || result.Phase != "Running" || result.Message != "m" || result.RequeueAfter != time.Minute {
		t.Errorf("got %+v", result)
	}
}

// asTree returns an object as JSON.
func asTree(t *testing.T, object any) any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestEachStepOperation: the plugin receives the operation and the state of the last call.
func TestEachStepOperation(t *testing.T) {
	h := newTestHost(t, nil)
	journal := filepath.Join(t.TempDir(), "journal")
	for _, operation := range []argov1.StepPluginOperation{argov1.StepPluginRun, argov1.StepPluginTerminate, argov1.StepPluginAbort} {
		_, err := h.CallStep(t.Context(), &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: "cart"}}, StepCall{
			Plugin: "acme/test", Operation: operation, Config: json.RawMessage(fmt.Sprintf(`{"journal":%q}`, journal)), State: json.RawMessage(`{"calls":1}`),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Run cart {\"calls\":1}\nTerminate cart {\"calls\":1}\nAbort cart {\"calls\":1}\n"; string(text) != want {
		t.Errorf("the plugin was called with\n%swant\n%s", text, want)
	}
}

// TestAnalysisRunReachesThePluginUnchanged is the same for metrics, in both directions.
func TestAnalysisRunReachesThePluginUnchanged(t *testing.T) {
	h := newTestHost(t, nil)
	run := &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1"}}
	run.Spec.Metrics = []argov1.Metric{{
		Name: "errors", Interval: "1m", SuccessCondition: "result < 1",
		Provider: argov1.MetricProvider{Plugin: map[string]json.RawMessage{"acme/test": json.RawMessage(`{"echo":true,"phase":"Successful","requeue":"1m"}`)}},
	}}
	run.Spec.Metrics = append(run.Spec.Metrics, // with the names of Argo Rollouts that differ from the conventions of Go
		argov1.Metric{Name: "cloud", Provider: argov1.MetricProvider{CloudWatch: &argov1.CloudWatchMetric{MetricDataQueries: []argov1.CloudWatchMetricDataQuery{{Id: "a", Expression: new("b")}}}}},
		argov1.Metric{Name: "dog", Provider: argov1.MetricProvider{Datadog: &argov1.DatadogMetric{ApiVersion: "v2", Query: "c"}}},
	)
	started := metav1.Now().Rfc3339Copy()
	run.Status.StartedAt = &started
	call := MetricCall{Plugin: "acme/test", Run: run, Metric: run.Spec.Metrics[0]}
	first, err := h.CallMetric(t.Context(), call)
	if err != nil || first.Phase != argov1.AnalysisPhaseRunning || first.ResumeAt == nil || first.Metadata["operation"] != "Run" {
		t.Fatalf("got %+v, %v", first, err)
	}
	call.InProgress = &first
	second, err := h.CallMetric(t.Context(), call)
	if err != nil || second.Phase != argov1.AnalysisPhaseSuccessful || second.Metadata["before"] != "Run" || !second.StartedAt.Equal(first.StartedAt) {
		t.Fatalf("got %+v, %v", second, err)
	}
	received := &argov1.AnalysisRun{}
	if err := json.Unmarshal([]byte(second.Value), received); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asTree(t, run), asTree(t, received)); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
	call.Terminate = true
	if third, err := h.CallMetric(t.Context(), call); err != nil || third.Metadata["operation"] != "Terminate" {
		t.Errorf("got %+v, %v", third, err)
	}
	if metadata, err := h.MetricMetadata(t.Context(), "shop", "acme/test", run.Spec.Metrics[0]); err != nil || metadata["metric"] != "errors" {
		t.Errorf("got %v, %v", metadata, err)
	}
	if err := h.CollectGarbage(t.Context(), "acme/test", run, run.Spec.Metrics[0], 10); err != nil {
		t.Error(err)
	}
}

// TestHangingCallDelaysNoOther: a call without an answer ends after its timeout, and the process continues to serve others.
func TestHangingCallDelaysNoOther(t *testing.T) {
	h := newTestHost(t, func(o *Options) { o.CallTimeout = 5 * time.Second })
	hanging := make(chan error, 1)
	go func() {
		_, err := callStep(t, h, "hostile", `{"behavior":"hang"}`)
		hanging <- err
	}()
	mustSucceed(t, h)
	select {
	case err := <-hanging:
		t.Fatalf("the hanging call ended before the other one: %v", err)
	default:
	}
	if err := waittest.Receive(t, "the hanging call has ended", hanging); err == nil || err.Error() != "Run rpc call error: no answer within 5s" {
		t.Errorf("got %v", err)
	}
	mustSucceed(t, h)
	if got := h.Processes(); len(got) != 1 {
		t.Errorf("running: %v", got)
	}
}

// TestManyHangingCallsRestartTheProcess: its memory is released.
func TestManyHangingCallsRestartTheProcess(t *testing.T) {
	h := newTestHost(t, func(o *Options) { o.CallTimeout = 2 * time.Second })
	mustSucceed(t, h)
	before := h.plugins[pluginKey{Step, "acme/test"}].process
	for range maxAbandonedCalls {
		go func() { _, _ = callStep(t, h, "hostile", `{"behavior":"hang"}`) }()
	}
	waittest.Receive(t, "the process ends", before.ended.Done())
	mustSucceed(t, h)
}

// LateAnswers is a plugin that answers when the channel is closed.
type LateAnswers chan struct{}

// Run answers a call.
func (l LateAnswers) Run(int, *int) error {
	<-l
	return nil
}

// TestLateAnswersAreNoHangingCalls: a call that timed out occupies memory of the plugin until its answer.
func TestLateAnswersAreNoHangingCalls(t *testing.T) {
	answer := make(LateAnswers)
	server := rpc.NewServer()
	if err := server.RegisterName("Plugin", answer); err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go server.ServeConn(far)
	p := &process{client: rpc.NewClient(near), ended: t.Context()}
	t.Cleanup(func() { _ = p.client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if err := p.call(ctx, "Run", 1, new(int)); !errors.Is(err, errAbandoned) {
			t.Fatalf("got %v", err)
		}
	}
	if got := p.abandoned.Load(); got != 3 {
		t.Errorf("%d calls are unanswered, want 3", got)
	}
	close(answer)
	waittest.Until(t, "all calls are answered", func() error {
		if got := p.abandoned.Load(); got != 0 {
			return fmt.Errorf("%d are not", got)
		}
		return nil
	})
}

// TestDefectiveProcesses: each defect is an error of its call, and the plugin is called again afterwards.
func TestDefectiveProcesses(t *testing.T) {
	for _, test := range []struct{ behavior, want string }{
		{"freeze", "Run rpc call error: no answer within 3s"},
		{"crash", "Run rpc call error: "},
		{"allocate", "Run rpc call error: "},
		{"nonsense", "Run rpc call error: the returned status is not a JSON object"},
		{"error", "Run rpc call error: the test requires an error"},
	} {
		t.Run(test.behavior, func(t *testing.T) {
			h := newTestHost(t, func(o *Options) { o.CallTimeout = 3 * time.Second })
			mustSucceed(t, h)
			_, err := callStep(t, h, "shop", fmt.Sprintf(`{"behavior":%q}`, test.behavior))
			var failed *CallError
			if !errors.As(err, &failed) || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			mustSucceed(t, h)
		})
	}
}

// TestFloods: neither endless output nor an endless answer occupies memory, and other plugins are served meanwhile.
func TestFloods(t *testing.T) {
	for _, behavior := range []string{"huge", "print"} {
		t.Run(behavior, func(t *testing.T) {
			lines := make(chan struct{}, 1<<20)
			h := newTestHost(t, func(o *Options) {
				o.CallTimeout, o.MemoryLimit = 5*time.Second, 4<<30
				o.Logger = funcr.New(func(string, string) { lines <- struct{}{} }, funcr.Options{})
			})
			flooded := make(chan error, 1)
			go func() {
				_, err := callStep(t, h, "hostile", fmt.Sprintf(`{"behavior":%q}`, behavior))
				flooded <- err
			}()
			for range 20 {
				if _, err := h.CallStep(t.Context(), &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, StepCall{Plugin: "acme/other", Operation: argov1.StepPluginRun}); err != nil {
					t.Fatal(err)
				}
			}
			if err := waittest.Receive(t, "the call has ended", flooded); err == nil {
				t.Error("the call succeeded")
			}
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			if memory.HeapAlloc > 128<<20 {
				t.Errorf("%d MiB are allocated", memory.HeapAlloc>>20)
			}
			if len(lines) > 2*lineBurst {
				t.Errorf("%d lines were logged", len(lines))
			}
		})
	}
}

// TestProcessesThatCannotStart: the error explains why, and the process is started again after a delay that doubles.
func TestProcessesThatCannotStart(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	h := newTestHost(t, func(o *Options) { o.Clock, o.StartTimeout = now, 2*time.Second })
	call := func(name string) string {
		_, err := h.CallStep(t.Context(), &argov1.Rollout{}, StepCall{Plugin: name, Operation: argov1.StepPluginRun})
		if _, refused := errors.AsType[*RefusedError](err); !refused {
			t.Fatalf("%s: got %v, want a RefusedError", name, err)
		}
		return err.Error()
	}
	for name, want := range map[string]string{
		"acme/mute":    "acme/mute: it cannot be started: timeout while waiting for plugin to start",
		"acme/babble":  "acme/babble: it cannot be started: Unrecognized remote plugin message: hello, I am not a plugin the program is not a plugin for Argo Rollouts, is built for another platform, or exceeded its limit of memory",
		"acme/unknown": "acme/unknown: not configured: add it to stepPlugins of the ConfigMap argo-rollouts-config",
	} {
		if got := call(name); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got, want := call("acme/babble"), "acme/babble: it is started again at 12:00:01: "; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	now.SetTime(now.Now().Add(time.Second))
	call("acme/babble")
	if got, want := call("acme/babble"), "acme/babble: it is started again at 12:00:03: "; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestTheDelayBeginsWithTheEndOfTheProcess: the delay begins when a process ends, and not with the next call, which may be much later.
// A process that crashed early is not stable because nothing called it for a long time.
func TestTheDelayBeginsWithTheEndOfTheProcess(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	h := newTestHost(t, func(o *Options) { o.Clock = now })
	for range 3 {
		mustSucceed(t, h)
		if _, err := callStep(t, h, "shop", `{"behavior":"crash"}`); err == nil {
			t.Fatal("the process has not ended")
		}
		now.SetTime(now.Now().Add(time.Hour))
		if result, err := callStep(t, h, "shop", `{}`); err != nil || result.Phase != "Successful" {
			t.Fatalf("an hour later: got %+v, %v", result, err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state := h.plugins[pluginKey{Step, "acme/test"}]
	if state.failures != 3 {
		t.Errorf("%d failures in succession, want 3", state.failures)
	}
}

// TestEnvironmentHasNoSecrets: a plugin receives no variable of Serin except those that locate things.
func TestEnvironmentHasNoSecrets(t *testing.T) {
	t.Setenv("SLACK_TOKEN", "secret")
	h := newTestHost(t, nil)
	result, err := callStep(t, h, "shop", `{"behavior":"environment"}`)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(result.Message) {
		name, _, _ := strings.Cut(line, "=")
		known := false
		for _, allowed := range append([]string{magicCookieKey}, keptVariables...) {
			known = known || name == allowed
		}
		if !known && !strings.HasPrefix(name, "PLUGIN_") {
			t.Errorf("the plugin receives %s", name)
		}
	}
}

// TestAnotherUser: with a user, the process does not have the permissions of Serin.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		h := newTestHost(t, func(o *Options) { o.UID = os.Getuid() + 1 })
		if _, err := callStep(t, h, "shop", `{}`); err == nil || !strings.Contains(err.Error(), "run Serin as root") {
			t.Errorf("got %v", err)
		}
		return
	}
	h := newTestHost(t, func(o *Options) { o.UID = 65534 })
	folder, err := os.MkdirTemp("/tmp", "plugin-user") //nolint:usetesting // another user cannot read the folders of a test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "plugin")
	for from, to := range map[string]string{plugintest.Build(t): file, os.Args[0]: filepath.Join(folder, "launcher")} {
		if out, err := exec.CommandContext(t.Context(), "install", "-m", "0755", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	h.options.Launcher = filepath.Join(folder, "launcher")
	h.Configure(ParseConfig(map[string]string{"stepPlugins": fmt.Sprintf("- {name: acme/test, location: 'file://%s', args: [step]}", file)}))
	result, err := callStep(t, h, "shop", `{"behavior":"user"}`)
	if err != nil || result.Message != "65534:65534" {
		t.Errorf("got %+v, %v", result, err)
	}
}

// TestReconfigure: a process ends with the configuration that started it.
func TestReconfigure(t *testing.T) {
	h := newTestHost(t, nil)
	mustSucceed(t, h)
	p := h.plugins[pluginKey{Step, "acme/test"}].process
	h.Configure(ParseConfig(map[string]string{"stepPlugins": fmt.Sprintf("- {name: acme/test, location: 'file://%s', args: [step, changed]}", plugintest.Build(t))}))
	waittest.Receive(t, "the process has ended", p.ended.Done())
	mustSucceed(t, h)
	h.Configure(ParseConfig(nil))
	if _, err := callStep(t, h, "shop", `{}`); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("got %v", err)
	}
	if got := h.Processes(); len(got) != 0 {
		t.Errorf("still running: %v", got)
	}
}

// TestReconfigureDuringStart: a process that was started with a former configuration ends, and the next call has no backoff.
func TestReconfigureDuringStart(t *testing.T) {
	const other = "- {name: acme/test, location: 'file://%s', args: [step, changed]}"
	path := plugintest.Build(t)
	for name, tt := range map[string]struct {
		config []string
		want   error
	}{
		"changed":           {[]string{fmt.Sprintf(other, path)}, nil},
		"removed":           {[]string{""}, ErrNotConfigured},
		"removed and added": {[]string{"", fmt.Sprintf(other, path)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t, nil)
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := unix.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			h.Configure(ParseConfig(map[string]string{"stepPlugins": fmt.Sprintf("- {name: acme/test, location: 'file://%s', args: [step, wait, %s]}", path, pipe)}))
			called, started := make(chan error, 1), make(chan *os.File, 1)
			go func() {
				_, err := callStep(t, h, "shop", `{}`)
				called <- err
			}()
			go func() {
				writer, _ := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the plugin
				started <- writer
			}()
			writer := waittest.Receive(t, "the process is being started", started)
			for _, config := range tt.config {
				h.Configure(ParseConfig(map[string]string{"stepPlugins": config}))
			}
			writer.Close()
			err := waittest.Receive(t, "the call has ended", called)
			if _, refused := errors.AsType[*RefusedError](err); !refused || !errors.Is(err, errReconfigured) {
				t.Fatalf("got %v, want %v", err, errReconfigured)
			}
			ended := make(chan struct{})
			go func() {
				h.owners.Wait()
				close(ended)
			}()
			waittest.Receive(t, "the process has ended", ended)
			if _, err := callStep(t, h, "shop", `{}`); !errors.Is(err, tt.want) {
				t.Errorf("the next call: got %v, want %v", err, tt.want)
			}
		})
	}
}

const orphanVariable = "SERIN_TEST_ORPHAN"

// TestProcessesEndWithSerin: also if Serin is killed.
func TestProcessesEndWithSerin(t *testing.T) {
	if os.Getenv(orphanVariable) != "" { // the process that is killed
		h := newTestHost(t, nil)
		mustSucceed(t, h)
		fmt.Fprintf(os.Stderr, "started\n")
		<-t.Context().Done()
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesEndWithSerin$")
	cmd.Env = append(os.Environ(), orphanVariable+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stderr.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	children := childrenOf(t, cmd.Process.Pid)
	if len(children) == 0 {
		t.Fatal("no plugin runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range children {
		waittest.Until(t, "the plugin ends", func() error {
			if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
				return fmt.Errorf("process %d still runs", pid)
			}
			return nil
		})
	}
}

// childrenOf returns the children of a process, of all its threads.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err != nil {
				t.Fatal(err)
			}
			out = append(out, child)
		}
	}
	return out
}

func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

// TestClose: the end of a Host ends its processes, and calls in progress.
func TestClose(t *testing.T) {
	h := newTestHost(t, nil)
	mustSucceed(t, h)
	hanging := make(chan error, 1)
	go func() {
		_, err := callStep(t, h, "shop", `{"behavior":"hang"}`)
		hanging <- err
	}()
	h.Close()
	if err := waittest.Receive(t, "the hanging call has ended", hanging); err == nil {
		t.Error("the call succeeded")
	}
	if _, err := callStep(t, h, "shop", `{}`); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestPluginsHaveALowPriority: a plugin that uses all processor time leaves most of it to the controller.
func TestPluginsHaveALowPriority(t *testing.T) {
	h := newTestHost(t, nil)
	mustSucceed(t, h)
	children := childrenOf(t, os.Getpid())
	if len(children) == 0 {
		t.Fatal("no plugin runs")
	}
	for _, pid := range children {
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
		if nice := 20 - priority; err != nil || nice < niceness { // the system call returns 20 - nice
			t.Errorf("process %d has the nice value %d, %v", pid, nice, err)
		}
	}
}

// TestTheEndOfAProcessIsOneLogLine: the multiplexer of the connection prints nothing to the standard error.
func TestTheEndOfAProcessIsOneLogLine(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = writer
	t.Cleanup(func() { os.Stderr = stderr })
	var mu sync.Mutex
	var lines []string
	logger := funcr.New(func(_, args string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, args) }, funcr.Options{})
	registry := prometheus.NewRegistry()
	h := newTestHost(t, func(o *Options) { o.Logger, o.Metrics = logger, telemetry.New(registry) })
	mustSucceed(t, h)
	if got := samples(t, registry); got["serin_plugin_processes acme/test"] != 1 || got["serin_plugin_starts_total acme/test success"] != 1 {
		t.Errorf("metrics of a running process: %v", got)
	}
	for range 8 { // calls that are written while the process ends
		go func() { _, _ = callStep(t, h, "shop", `{"behavior":"hang"}`) }()
	}
	p := h.plugins[pluginKey{Step, "acme/test"}].process
	for _, pid := range childrenOf(t, os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	waittest.Receive(t, "the process ends", p.ended.Done())
	_ = p.client.Call("Plugin.Run", new(any), new(any)) // into the lost connection
	h.Close()
	os.Stderr = stderr
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if printed, err := io.ReadAll(reader); err != nil || len(printed) > 0 {
		t.Errorf("printed %q, %v", printed, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if ends := strings.Count(strings.Join(lines, "\n"), "The process of a plugin has ended"); ends != 1 {
		t.Errorf("%d log lines report the end: %q", ends, lines)
	}
	if got := samples(t, registry); got["serin_plugin_processes acme/test"] != 0 {
		t.Errorf("metrics after the end of the process: %v", got)
	}
}

// TestCallsAreMeasured by their outcome, also those of a plugin that cannot be started.
func TestCallsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := newTestHost(t, func(o *Options) { o.Metrics = telemetry.New(registry) })
	mustSucceed(t, h)
	if _, err := callStep(t, h, "shop", `{"behavior":"crash"}`); err == nil {
		t.Error("a crash is no error")
	}
	c := h.config
	item := c.items[Step]["acme/other"]
	item.Location = "file:///none"
	c.items[Step]["acme/other"] = item
	if _, err := h.CallStep(t.Context(), &argov1.Rollout{}, StepCall{Plugin: "acme/other", Operation: argov1.StepPluginRun}); err == nil {
		t.Error("a plugin without a file was called")
	}
	got := samples(t, registry)
	delete(got, "serin_plugin_processes acme/test") // it is ending
	want := map[string]float64{
		"serin_plugin_call_duration_seconds acme/test success": 1, "serin_plugin_call_duration_seconds acme/test error": 1, "serin_plugin_call_duration_seconds acme/other refused": 1,
		"serin_plugin_starts_total acme/test success": 1, "serin_plugin_starts_total acme/other error": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// TestErrorsInAnswersAreMeasured: the outcome of a call is error if its answer is an error or is not usable, and success if a plugin
// returns a negative result.
func TestErrorsInAnswersAreMeasured(t *testing.T) {
	const bad = `{"behavior":"error"}`
	step := func(config string) func(*Host) error {
		return func(h *Host) error { _, err := callStep(t, h, "shop", config); return err }
	}
	router := func(method, config string) func(*Host) error {
		return func(h *Host) error {
			_, err := h.CallRouter(t.Context(), routedBy(config), RouterCall{Plugin: "acme/test", Method: method})
			return err
		}
	}
	metric := func(config string) argov1.Metric {
		return argov1.Metric{Provider: argov1.MetricProvider{Plugin: map[string]json.RawMessage{"acme/test": json.RawMessage(config)}}}
	}
	measurement := func(config string, want argov1.AnalysisPhase) func(*Host) error {
		return func(h *Host) error {
			m, err := h.CallMetric(t.Context(), MetricCall{Plugin: "acme/test", Run: &argov1.AnalysisRun{}, Metric: metric(config)})
			if err != nil || m.Phase != want {
				t.Errorf("the phase of the measurement is %s, want %s; %v", m.Phase, want, err)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		call          func(*Host) error
		outcome       string
		returnsResult bool
	}{
		"step that returns an error":         {step(bad), "error", false},
		"step with a state that is no JSON":  {step(`{"behavior":"nonsense"}`), "error", false},
		"step that has failed":               {step(`{"phase":"Failed"}`), "success", true},
		"router that returns an error":       {router("SetWeight", bad), "error", false},
		"verification that returns an error": {router("VerifyWeight", bad), "error", false},
		"weight that is not verified":        {router("VerifyWeight", `{"value":"not"}`), "success", true},
		"measurement that is an error":       {measurement(bad, argov1.AnalysisPhaseError), "error", true},
		"measurement that has failed":        {measurement(`{"phase":"Failed"}`, argov1.AnalysisPhaseFailed), "success", true},
		"deletion that returns an error": {func(h *Host) error {
			return h.CollectGarbage(t.Context(), "acme/test", &argov1.AnalysisRun{}, metric(bad), 1)
		}, "error", false},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			h := newTestHost(t, func(o *Options) { o.Metrics = telemetry.New(registry) })
			err := c.call(h)
			if _, isCallError := errors.AsType[*CallError](err); c.returnsResult != (err == nil) || isCallError != (err != nil) {
				t.Errorf("the call returned %v", err)
			}
			want := map[string]float64{"serin_plugin_call_duration_seconds acme/test " + c.outcome: 1, "serin_plugin_starts_total acme/test success": 1, "serin_plugin_processes acme/test": 1}
			if diff := cmp.Diff(want, samples(t, registry)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

// samples returns the metrics of plugins, by name, plugin and outcome: the number of observations of a histogram, otherwise the value.
func samples(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "serin_plugin_") {
			continue
		}
		for _, m := range family.GetMetric() {
			key := []string{family.GetName()}
			for _, label := range m.GetLabel() {
				if label.GetName() == "plugin" {
					key = slices.Insert(key, 1, label.GetValue())
				} else if label.GetName() == "outcome" {
					key = append(key, label.GetValue())
				}
			}
			got[strings.Join(key, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}
