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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/waittest"
)

// logged is a log that tests read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tester is a load tester that listens.
type tester struct {
	t    *testing.T
	url  string
	log  *logged
	stop func()
}

// listen starts a load tester; it ends with the test, or by stop.
func listen(t *testing.T, change func(*Flags)) *tester {
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
	lt := &tester{t: t, url: "http://" + listener.Addr().String(), log: &logged{}}
	go func() { ended <- serve(ctx, f, listener, lt.log) }()
	var once sync.Once
	lt.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(lt.stop)
	return lt
}

// post sends a payload and gives status and body as one text.
func (lt *tester) post(path string, p hook.Payload, header ...string) string {
	lt.t.Helper()
	body, err := p.JSON()
	if err != nil {
		lt.t.Fatal(err)
	}
	return lt.send(path, string(body), header...)
}

func (lt *tester) send(path, body string, header ...string) string {
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

// until waits for a text in the log.
func (lt *tester) until(text string) {
	lt.t.Helper()
	waittest.UntilContains(lt.t, lt.log.String, text)
}

// TestTheInterface goes through the paths in the order in which somebody would try them out.
func TestTheInterface(t *testing.T) {
	lt := listen(t, func(f *Flags) { f.NamespaceRegexp = "shop" })
	cart := payload()
	other := hook.Payload{Name: "cart", Namespace: "test"}
	const forbidden = "403 Forbidden: the load tester takes no webhooks of this namespace: see its flag -namespace-regexp"
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
			t.Errorf("the metrics have no %s", line)
		}
	}
}

func TestTheTokenIsAskedFor(t *testing.T) {
	lt := listen(t, func(f *Flags) { f.Token = outbound.Secret("hunter2") })
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
	// As a webhook says it: in its URL.
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
		t.Error("a command sees the token")
	}
	if strings.Contains(lt.log.String(), "hunter2") {
		t.Error("the log shows the token")
	}
}

// counting is a server that counts the requests that it is sent, and holds them until it is let go.
type counting struct {
	url  string
	came chan struct{}
	hold chan struct{}
}

func count(t *testing.T) *counting {
	c := &counting{came: make(chan struct{}, 1000), hold: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.came <- struct{}{}
		select {
		case <-c.hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func TestATaskInTheBackgroundRunsOnceAtATime(t *testing.T) {
	lt := listen(t, nil)
	c := count(t)
	load := payload("cmd", "hey -n 1 -c 1 "+c.url, "logCmdOutput", "true")
	for range 3 {
		if got := lt.post("/", load); got != "202" {
			t.Fatal(got)
		}
	}
	<-c.came
	close(c.hold)
	lt.until("Ended task")
	if len(c.came) != 0 {
		t.Errorf("%d more requests came", len(c.came))
	}
	if !strings.Contains(lt.log.String(), `[200]\t1 responses`) {
		t.Errorf("the output is not in the log:\n%s", lt.log)
	}
	for len(c.came) == 0 { // it runs again, once it is seen to have ended
		if got := lt.post("/", load); got != "202" {
			t.Fatal(got)
		}
	}
}

// TestOneQuestionIsAskedOnce: a caller that lost the answer asks again with the same key, and must not start a second
// test beside the first one; nor a third one after that has said yes.
func TestOneQuestionIsAskedOnce(t *testing.T) {
	lt := listen(t, nil)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "runs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// It says that it runs, and ends when it may.
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
	lt.until("Started task")
	second := ask("k1")
	lt.until("Left task running")
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("go")
	if a, b := <-first, <-second; a != b || a != "500 command bash failed: x: exit status 1" {
		t.Errorf("got %s and %s", a, b)
	}
	touch("good")
	for _, c := range []struct{ key, want string }{
		{"k1", "200 x x"}, // a no is asked again
		{"k1", "200 x x"}, // a yes is a yes
		{"k2", "200 x x x"},
		{"", "200 x x x x"},
		{"", "200 x x x x x"},
	} {
		if got := <-ask(c.key); got != c.want {
			t.Errorf("key %q: got %s, want %s", c.key, got, c.want)
		}
	}
}

func TestNoMoreThanSoManyRunAtOnce(t *testing.T) {
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

func TestAnswersThatAreKeptAreBounded(t *testing.T) {
	r := newRuns(t.Context())
	for i := range 3 * answersKept {
		of, fresh, err := r.start(fmt.Sprint(i), true, func(context.Context) result { return result{output: strings.Repeat("x", 1<<20)} })
		if err != nil || !fresh {
			t.Fatal(err)
		}
		<-of.done
	}
	if len(r.known) != answersKept || len(r.kept) != answersKept || len(r.known[r.kept[0]].result.output) > 4<<10 {
		t.Errorf("%d are known and %d kept", len(r.known), len(r.kept))
	}
}

func TestAFaultInATaskIsItsOwn(t *testing.T) {
	r := newRuns(t.Context())
	of, _, err := r.start("x", true, func(context.Context) result { panic("hunter2") })
	if err != nil {
		t.Fatal(err)
	}
	if <-of.done; of.result.err == nil || strings.Contains(of.result.err.Error(), "hunter2") {
		t.Errorf("got %v", of.result.err)
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

// TestTheEndStopsTasks: who waits for one is told, and no process is left.
func TestTheEndStopsTasks(t *testing.T) {
	lt := listen(t, nil)
	file := filepath.Join(t.TempDir(), "pid")
	body, err := payload("type", "bash", "cmd", "sleep 1000 & echo $! >"+file+"; wait").JSON()
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 1)
	go func() { answers <- lt.send("/", string(body)) }()
	var pid []byte
	waittest.Until(t, "the command has written the number of its process", func() (err error) {
		if pid, err = os.ReadFile(file); err == nil && !bytes.HasSuffix(pid, []byte("\n")) {
			err = fmt.Errorf("it has written %q", pid)
		}
		return err
	})
	lt.stop()
	if got := <-answers; got != "503 command bash failed: : the load tester stops" {
		t.Errorf("got %s", got)
	}
	for _, n := range numbers(t, string(pid)) {
		gone(t, n)
	}
}

func TestATaskThatTakesTooLongIsStopped(t *testing.T) {
	lt := listen(t, func(f *Flags) { f.Timeout = 50 * time.Millisecond })
	const want = "500 command bash failed: : stopped after 50ms, the -timeout of the load tester"
	if got := lt.post("/", payload("type", "bash", "cmd", "sleep 1000")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c := count(t)
	if got := lt.post("/", payload("cmd", "hey -z 1h -c 1 "+c.url)); got != "202" {
		t.Fatal(got)
	}
	lt.until(`"program":"hey","duration"`)
}

// TestCommandsAreNotInTheLog: they hold credentials.
func TestCommandsAreNotInTheLog(t *testing.T) {
	lt := listen(t, nil)
	lt.post("/", payload("type", "bash", "cmd", "echo hunter2; false"))
	if text := lt.log.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, `"why":"exit status 1"`) {
		t.Errorf("the log:\n%s", text)
	}
	lt.post("/", payload("type", "bash", "cmd", "echo shown; false", "logCmdOutput", "true"))
	if !strings.Contains(lt.log.String(), `"output":"shown"`) {
		t.Errorf("no output in the log:\n%s", lt.log)
	}
}

// TestScriptsFindTheBuiltInPrograms: they are links to this program, which is a test here, and says its own usage.
func TestScriptsFindTheBuiltInPrograms(t *testing.T) {
	lt := listen(t, nil)
	got := lt.post("/", payload("type", "bash", "cmd", "PATH=${PATH##*:}; for p in hey ghz grpc_health_probe; do type -p $p; done", "returnCmdOutput", "true"))
	if lines := strings.Split(got, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "/hey") {
		t.Errorf("got %s", got)
	}
	folder := filepath.Dir(strings.Split(got, "\n")[2])
	lt.stop()
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the links are left behind: %v", err)
	}
}

// testServer answers like Concord and nGrinder: each path with its texts one after the other, the last one for ever.
type testServer struct {
	t       *testing.T
	answers map[string][]string
	mu      sync.Mutex
	asked   []string
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
	s.asked = append(s.asked, line)
	left := s.answers[path]
	if len(left) == 0 {
		http.NotFound(w, r)
		return
	}
	if len(left) > 1 {
		s.answers[path] = left[1:]
	}
	if left[0] == "500" {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, left[0])
}

func testServerFor(t *testing.T, answers map[string][]string) (*testServer, string) {
	s := &testServer{t: t, answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func TestConcordIsStartedAndWaitedFor(t *testing.T) {
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
		{"it is never heard of again", "500 no state for 20ms: the server answered 500 Internal Server Error", []string{"500"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lt := listen(t, nil)
			s, address := testServerFor(t, map[string][]string{"POST /api/v1/process": {`{"instanceId":"p1","ok":true}`}, "GET /api/v1/process/p1": c.states})
			got := lt.post("/", payload("type", "concord", "server", address, "org", "o", "project", "p", "repo", "r", "entrypoint", "e",
				"apiKeyPath", key, "endpoint", "x", "arguments.a", "b", "pollInterval", "1ms", "pollTimeout", "20ms"))
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			const start = `POST /api/v1/process hunter2 {"arguments.a":["b"],"arguments.endpoint":["x"],"entryPoint":["e"],"org":["o"],"project":["p"],"repo":["r"]}`
			if s.asked[0] != start || s.asked[1] != "GET /api/v1/process/p1 hunter2" {
				t.Errorf("asked %q", s.asked[:2])
			}
			if strings.Contains(lt.log.String(), "hunter2") {
				t.Error("the log shows the key")
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
		{"it fails", `"why":"ngrinder test 9 ended with STOP_BY_ERROR"`, []string{`{"status":[{"status_id":"STOP_BY_ERROR"}]}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lt := listen(t, nil)
			s, address := testServerFor(t, map[string][]string{"POST /perftest/api/7/clone_and_start": {`{"id":9}`}, "GET /perftest/api/9/status": c.states})
			if got := lt.post("/", metadata(address)); got != "202" {
				t.Fatal(got)
			}
			lt.until("Ended task")
			if !strings.Contains(lt.log.String(), c.want) {
				t.Errorf("the log:\n%s", lt.log)
			}
			if s.asked[0] != "POST /perftest/api/7/clone_and_start"+basic || s.asked[1] != "GET /perftest/api/9/status"+basic {
				t.Errorf("asked %q", s.asked[:2])
			}
		})
	}
	t.Run("it takes too long", func(t *testing.T) {
		lt := listen(t, func(f *Flags) { f.Timeout = 50 * time.Millisecond })
		s, address := testServerFor(t, map[string][]string{
			"POST /perftest/api/7/clone_and_start": {`{"id":9}`}, "GET /perftest/api/9/status": {`{"status":[{"status_id":"TESTING"}]}`}, "PUT /perftest/api/9?action=stop": {"{}"},
		})
		lt.post("/", metadata(address))
		lt.until(`"why":"stopped after 50ms`)
		s.mu.Lock()
		defer s.mu.Unlock()
		if last := s.asked[len(s.asked)-1]; last != "PUT /perftest/api/9?action=stop"+basic {
			t.Errorf("asked last %q", last)
		}
	})
}
