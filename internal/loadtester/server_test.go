package loadtester

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/waittest"
)

// syncBuffer is a log that tests can read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *syncBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// runningTester is a running load tester.
type runningTester struct {
	t    *testing.T
	url  string
	log  *syncBuffer
	stop func()
}

// startTester starts a load tester, which runs until the end of the test or until stop is called.
func startTester(t *testing.T, change func(*Flags)) *runningTester {
	t.Helper()
	f := Flags{LogLevel: "debug", LogEncoding: "json", Timeout: time.Minute, TaskTypes: Types(), AllowLoopback: true}
	if change != nil {
		change(&f)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	lt := &runningTester{t: t, url: "http://" + listener.Addr().String(), log: &syncBuffer{}}
	go func() { ended <- serve(ctx, f, listener, lt.log) }()
	var once sync.Once
	lt.stop = func() {
		once.Do(func() {
			cancel()
			if err := waittest.Receive(t, "the load tester has stopped", ended); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(lt.stop)
	return lt
}

// post sends a payload and returns the status and body of the response as one string.
func (lt *runningTester) post(path string, p hook.Payload, header ...string) string {
	lt.t.Helper()
	body, err := p.JSON()
	if err != nil {
		lt.t.Fatal(err)
	}
	return lt.send(path, string(body), header...)
}

func (lt *runningTester) send(path, body string, header ...string) string {
	request, err := http.NewRequest(http.MethodPost, lt.url+path, strings.NewReader(body))
	if err != nil {
		lt.t.Error(err)
		return ""
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		lt.t.Error(err)
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		lt.t.Error(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, text))
}

// waitForLog waits until the log contains a text.
func (lt *runningTester) waitForLog(text string) {
	lt.t.Helper()
	waittest.UntilContains(lt.t, lt.log.String, text)
}

// TestResponsesOfAllPaths requests all paths in the order in which a user would try them.
func TestResponsesOfAllPaths(t *testing.T) {
	lt := startTester(t, func(f *Flags) { f.NamespaceRegexp = "shop" })
	cart := payload()
	other := hook.Payload{Name: "cart", Namespace: "test"}
	const forbidden = "403 Forbidden: the load tester does not accept webhooks from this namespace: see its flag -namespace-regexp"
	for _, c := range []struct {
		path string
		p    hook.Payload
		want string
	}{
		{"/healthz", cart, "200 OK"},
		{"/gate/approve", other, "200 OK"},
		{"/gate/halt", other, "403 Forbidden"},
		{"/gate/check", cart, "403 Forbidden"},
		{"/gate/open", cart, "202"},
		{"/gate/check", cart, "200 Approved"},
		{"/gate/check", hook.Payload{Name: "web", Namespace: "shop"}, "403 Forbidden"},
		{"/rollback/check", cart, "403 Forbidden"},
		{"/rollback/open", cart, "202"},
		{"/gate/close", cart, "202"},
		{"/gate/check", cart, "403 Forbidden"},
		{"/rollback/check", cart, "200 Approved"},
		{"/rollback/close", cart, "202"},
		{"/rollback/check", cart, "403 Forbidden"},
		{"/gate/open", other, forbidden},
		{"/", other, forbidden},
		{"/", cart, "400 metadata not found in payload"},
		{"/any/path", payload("type", "bash", "cmd", "echo hello"), "200"},
		{"/", payload("type", "bash", "cmd", "echo hello", "returnCmdOutput", "true"), "200 hello"},
		{"/", payload("type", "bash", "cmd", "echo out; echo err >&2; exit 7"), "500 command bash failed: out\nerr: exit status 7"},
	} {
		if got := lt.post(c.path, c.p); got != c.want {
			t.Errorf("POST %s of %s.%s %v: got %s, want %s", c.path, c.p.Name, c.p.Namespace, c.p.Metadata, got, c.want)
		}
	}
	for _, path := range []string{"/", "/gate/open", "/rollback/check"} {
		for _, body := range []string{"no JSON", `{"metadata":{"cmd":"` + strings.Repeat("x", maxBody) + `"}}`} {
			if got := lt.send(path, body); got != "400" {
				t.Errorf("POST %s of %.20s: got %s", path, body, got)
			}
		}
	}
	metrics := lt.send("/metrics", "")
	for _, line := range []string{`serin_loadtester_tasks_total{outcome="success",type="bash"} 2`, `serin_loadtester_tasks_total{outcome="failure",type="bash"} 1`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics do not contain %s", line)
		}
	}
}

func TestTokenIsRequired(t *testing.T) {
	lt := startTester(t, func(f *Flags) { f.Token = outbound.Secret("hunter2") })
	for _, path := range []string{"/gate/open", "/gate/approve", "/", "/rollback/open"} {
		for _, header := range []string{"", "Bearer nonsense", "Bearer ", "Basic " + "eDp5", "hunter2"} {
			if got := lt.post(path, payload(), "Authorization", header); !strings.HasPrefix(got, "401 Unauthorized") {
				t.Errorf("%s with %q: got %s", path, header, got)
			}
		}
	}
	if got := lt.post("/healthz", payload()); got != "200 OK" {
		t.Errorf("health: got %s", got)
	}
	if got := lt.post("/gate/open", payload(), "Authorization", "Bearer hunter2"); got != "202" {
		t.Errorf("the bearer of the token: got %s", got)
	}
	// A webhook has the token in its URL.
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	answer, err := client.Do(t.Context(), outbound.Request{
		Method: http.MethodPost, URL: strings.Replace(lt.url, "http://", "http://token:hunter2@", 1) + "/gate/check", Body: []byte(`{"name":"cart","namespace":"shop"}`),
		Limit: 1000, Timeout: time.Minute,
	})
	if err != nil || string(answer.Body) != "Approved" {
		t.Errorf("got %d %s, %v", answer.Code, answer.Body, err)
	}
	if got := lt.post("/", payload("type", "bash", "cmd", "env", "returnCmdOutput", "true"), "Authorization", "Bearer hunter2"); strings.Contains(got, "hunter2") {
		t.Error("a command can read the token")
	}
	if strings.Contains(lt.log.String(), "hunter2") {
		t.Error("the log contains the token")
	}
}

// blockingServer is a server that signals every request on came, and answers once hold is closed.
type blockingServer struct {
	url      string
	requests chan struct{}
	release  chan struct{}
}

func newBlockingServer(t *testing.T) *blockingServer {
	c := &blockingServer{requests: make(chan struct{}, 1000), release: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.requests <- struct{}{}
		select {
		case <-c.release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func TestBackgroundTaskRunsOnceAtATime(t *testing.T) {
	lt := startTester(t, nil)
	c := newBlockingServer(t)
	load := payload("cmd", "hey -n 1 -c 1 "+c.url, "logCmdOutput", "true")
	for range 3 {
		if got := lt.post("/", load); got != "202" {
			t.Fatal(got)
		}
	}
	waittest.Receive(t, "a request is sent", c.requests)
	close(c.release)
	lt.waitForLog("Ended task")
	if len(c.requests) != 0 {
		t.Errorf("%d further requests were sent", len(c.requests))
	}
	if !strings.Contains(lt.log.String(), `[200]\t1 responses`) {
		t.Errorf("the log does not contain the output:\n%s", lt.log)
	}
	for len(c.requests) == 0 { // it runs again once its end is recorded
		if got := lt.post("/", load); got != "202" {
			t.Fatal(got)
		}
	}
}

// TestRepeatedRequestDoesNotRepeatTheTask sends a request again with the same key, as a client does that lost the answer.
// It must not start a second test while the first one runs, nor a further one after a success.
func TestRepeatedRequestDoesNotRepeatTheTask(t *testing.T) {
	lt := startTester(t, nil)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "runs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The script records each run, and ends when the file go exists.
	test := payload("type", "bash", "returnCmdOutput", "true",
		"cmd", fmt.Sprintf("cd %s; echo x >>runs; until [ -e go ]; do :; done; echo $(cat runs); [ -e good ]", folder))
	ask := func(key string) <-chan string {
		answers := make(chan string, 1)
		body, err := test.JSON()
		if err != nil {
			t.Fatal(err)
		}
		go func() { answers <- lt.send("/", string(body), "Serin-Key", key) }()
		return answers
	}
	first := ask("k1")
	lt.waitForLog("Started task")
	second := ask("k1")
	lt.waitForLog("Joined running task")
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("go")
	const answered = "the task is answered"
	if a, b := waittest.Receive(t, answered, first), waittest.Receive(t, answered, second); a != b || a != "500 command bash failed: x: exit status 1" {
		t.Errorf("got %s and %s", a, b)
	}
	touch("good")
	for _, c := range []struct{ key, want string }{
		{"k1", "200 x x"}, // runs again after a failure
		{"k1", "200 x x"}, // returns the stored result of a success
		{"k2", "200 x x x"},
		{"", "200 x x x x"},
		{"", "200 x x x x x"},
	} {
		if got := waittest.Receive(t, answered, ask(c.key)); got != c.want {
			t.Errorf("key %q: got %s, want %s", c.key, got, c.want)
		}
	}
}

func TestConcurrentTasksAreBounded(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	r := newRuns(life)
	for range maxRunning {
		if _, _, err := r.start("", false, func(ctx context.Context) result { <-ctx.Done(); return result{} }); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.start("", false, nil); !errors.Is(err, errBusy) {
		t.Errorf("got %v", err)
	}
	end()
	r.wait()
	if _, _, err := r.start("", false, nil); !errors.Is(err, errStopped) {
		t.Errorf("after the end: got %v", err)
	}
}

func TestStoredResultsAreBounded(t *testing.T) {
	r := newRuns(t.Context())
	for i := range 3 * maxStoredResults {
		current, fresh, err := r.start(fmt.Sprint(i), true, func(context.Context) result { return result{output: strings.Repeat("x", 1<<20)} })
		if err != nil || !fresh {
			t.Fatal(err)
		}
		waittest.Receive(t, "the run has ended", current.done)
	}
	if len(r.known) != maxStoredResults || len(r.storedNames) != maxStoredResults || len(r.known[r.storedNames[0]].result.output) > 4<<10 {
		t.Errorf("%d runs are known, %d results are stored", len(r.known), len(r.storedNames))
	}
}

func TestPanicFailsOnlyItsTask(t *testing.T) {
	r := newRuns(t.Context())
	current, _, err := r.start("x", true, func(context.Context) result { panic("hunter2") })
	if err != nil {
		t.Fatal(err)
	}
	waittest.Receive(t, "the run has ended", current.done)
	if current.result.err == nil || strings.Contains(current.result.err.Error(), "hunter2") {
		t.Errorf("got %v", current.result.err)
	}
	r.wait()
}

func TestGatesAreBounded(t *testing.T) {
	g := newGates()
	for i := range maxOpen {
		if err := g.set(fmt.Sprint(i), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.set("more", true); !errors.Is(err, errTooManyGates) || g.isOpen("more") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(g.set("7", true), g.set("7", false), g.set("more", true)); err != nil || g.isOpen("7") || !g.isOpen("more") {
		t.Errorf("got %v", err)
	}
}

// TestShutdownStopsTasks checks that clients that wait for a task receive an answer, and that no process remains.
func TestShutdownStopsTasks(t *testing.T) {
	lt := startTester(t, nil)
	file := filepath.Join(t.TempDir(), "pid")
	body, err := payload("type", "bash", "cmd", "sleep 1000 & echo $! >"+file+"; wait").JSON()
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 1)
	go func() { answers <- lt.send("/", string(body)) }()
	var pid []byte
	waittest.Until(t, "the command has written its process ID", func() (err error) {
		if pid, err = os.ReadFile(file); err == nil && !bytes.HasSuffix(pid, []byte("\n")) {
			err = fmt.Errorf("it has written %q", pid)
		}
		return err
	})
	lt.stop()
	if got := waittest.Receive(t, "the client is answered", answers); got != "503 command bash failed: : the load tester is shutting down" {
		t.Errorf("got %s", got)
	}
	for _, n := range parsePIDs(t, string(pid)) {
		waitForExit(t, n)
	}
}

func TestTaskIsStoppedAfterTheTimeout(t *testing.T) {
	lt := startTester(t, func(f *Flags) { f.Timeout = 50 * time.Millisecond })
	const want = "500 command bash failed: : stopped after 50ms, the -timeout of the load tester"
	if got := lt.post("/", payload("type", "bash", "cmd", "sleep 1000")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c := newBlockingServer(t)
	if got := lt.post("/", payload("cmd", "hey -z 1h -c 1 "+c.url)); got != "202" {
		t.Fatal(got)
	}
	lt.waitForLog(`"program":"hey","duration"`)
}

// TestCommandsAreNotInTheLog guards the credentials that command lines contain.
func TestCommandsAreNotInTheLog(t *testing.T) {
	lt := startTester(t, nil)
	lt.post("/", payload("type", "bash", "cmd", "echo hunter2; false"))
	if text := lt.log.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, `"err":"exit status 1"`) {
		t.Errorf("the log:\n%s", text)
	}
	lt.post("/", payload("type", "bash", "cmd", "echo shown; false", "logCmdOutput", "true"))
	if !strings.Contains(lt.log.String(), `"output":"shown"`) {
		t.Errorf("the log does not contain the output:\n%s", lt.log)
	}
}

// TestScriptsFindTheBuiltInPrograms only looks up the programs: in a test, they are links to the test binary.
func TestScriptsFindTheBuiltInPrograms(t *testing.T) {
	lt := startTester(t, nil)
	got := lt.post("/", payload("type", "bash", "cmd", "PATH=${PATH##*:}; for p in hey ghz grpc_health_probe; do type -p $p; done", "returnCmdOutput", "true"))
	if lines := strings.Split(got, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "/hey") {
		t.Errorf("got %s", got)
	}
	folder := filepath.Dir(strings.Split(got, "\n")[2])
	lt.stop()
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the links still exist: %v", err)
	}
}

// testServer answers like Concord and nGrinder: for each path with its texts in order, and then repeats the last one.
type testServer struct {
	t        *testing.T
	answers  map[string][]string
	mu       sync.Mutex
	requests []string
}

func (s *testServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	path := r.Method + " " + r.URL.RequestURI()
	s.mu.Lock()
	defer s.mu.Unlock()
	line := path + " " + r.Header.Get("Authorization")
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			s.t.Error(err)
		}
		fields, err := json.Marshal(r.MultipartForm.Value)
		if err != nil {
			s.t.Error(err)
		}
		line += " " + string(fields)
	}
	s.requests = append(s.requests, line)
	remaining := s.answers[path]
	if len(remaining) == 0 {
		http.NotFound(w, r)
		return
	}
	if len(remaining) > 1 {
		s.answers[path] = remaining[1:]
	}
	if remaining[0] == "500" {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, remaining[0])
}

func newTestServer(t *testing.T, answers map[string][]string) (*testServer, string) {
	s := &testServer{t: t, answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func TestConcordProcessIsStartedAndAwaited(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		states     []string
	}{
		{"it ends well", "200", []string{`{"status":"RUNNING"}`, "500", `{"status":"FINISHED"}`}},
		{"it fails", "500 concord process p1 failed", []string{`{"status":"FAILED"}`}},
		{"the server does not report its state", "500 no state for 20ms: the server answered 500 Internal Server Error", []string{"500"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lt := startTester(t, nil)
			s, address := newTestServer(t, map[string][]string{"POST /api/v1/process": {`{"instanceId":"p1","ok":true}`}, "GET /api/v1/process/p1": c.states})
			got := lt.post("/", payload("type", "concord", "server", address, "org", "o", "project", "p", "repo", "r", "entrypoint", "e",
				"apiKeyPath", key, "endpoint", "x", "arguments.a", "b", "pollInterval", "1ms", "pollTimeout", "20ms"))
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			const start = `POST /api/v1/process hunter2 {"arguments.a":["b"],"arguments.endpoint":["x"],"entryPoint":["e"],"org":["o"],"project":["p"],"repo":["r"]}`
			if s.requests[0] != start || s.requests[1] != "GET /api/v1/process/p1 hunter2" {
				t.Errorf("asked %q", s.requests[:2])
			}
			if strings.Contains(lt.log.String(), "hunter2") {
				t.Error("the log contains the key")
			}
		})
	}
}

func TestNGrinderIsStartedAndStopped(t *testing.T) {
	const basic = " Basic dTpw" // u:p
	metadata := func(address string) hook.Payload {
		return payload("type", "ngrinder", "server", address, "clone", "7", "username", "u", "passwd", "cA==", "pollInterval", "1ms")
	}
	for _, c := range []struct {
		name, want string
		states     []string
	}{
		{"it ends well", `"ok":true`, []string{`{"status":[{"status_id":"TESTING"}]}`, "500", `{"status":[]}`, `{"status":[{"status_id":"FINISHED"}]}`}},
		{"it fails", `"err":"ngrinder test 9 ended with STOP_BY_ERROR"`, []string{`{"status":[{"status_id":"STOP_BY_ERROR"}]}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lt := startTester(t, nil)
			s, address := newTestServer(t, map[string][]string{"POST /perftest/api/7/clone_and_start": {`{"id":9}`}, "GET /perftest/api/9/status": c.states})
			if got := lt.post("/", metadata(address)); got != "202" {
				t.Fatal(got)
			}
			lt.waitForLog("Ended task")
			if !strings.Contains(lt.log.String(), c.want) {
				t.Errorf("the log:\n%s", lt.log)
			}
			if s.requests[0] != "POST /perftest/api/7/clone_and_start"+basic || s.requests[1] != "GET /perftest/api/9/status"+basic {
				t.Errorf("asked %q", s.requests[:2])
			}
		})
	}
	t.Run("it takes too long", func(t *testing.T) {
		lt := startTester(t, func(f *Flags) { f.Timeout = 50 * time.Millisecond })
		s, address := newTestServer(t, map[string][]string{
			"POST /perftest/api/7/clone_and_start": {`{"id":9}`}, "GET /perftest/api/9/status": {`{"status":[{"status_id":"TESTING"}]}`}, "PUT /perftest/api/9?action=stop": {"{}"},
		})
		lt.post("/", metadata(address))
		lt.waitForLog(`"err":"stopped after 50ms`)
		s.mu.Lock()
		defer s.mu.Unlock()
		if stop := "PUT /perftest/api/9?action=stop" + basic; !slices.Contains(s.requests, stop) { // the server may receive a cancelled query later
			t.Errorf("asked %q, not %q", s.requests, stop)
		}
	})
}
