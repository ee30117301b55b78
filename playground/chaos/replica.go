//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/apiproxy"
	"github.com/serin-dev/serin/playground/cluster"
)

// disturbance is what happens to the requests of a replica. The zero value disturbs nothing.
type disturbance struct {
	// share of the requests is disturbed, 0 to 1.
	share float64
	// delay is the time that a request takes in addition.
	delay time.Duration
	// status is an answer that the API server never sent; 0: the request is forwarded.
	status int
	// lost executes the request and closes the connection instead of sending the answer.
	lost bool
}

// replica is one process of Serin, behind a proxy of its own, by which its requests are recognized. It is started again whenever it
// has ended, as a kubelet would.
type replica struct {
	name      string
	arguments []string
	cluster   *cluster.Cluster
	clock     clock.WithTicker
	proxy     *apiproxy.Proxy
	leases    *leaseLog

	mu          sync.Mutex
	disturbance disturbance
	random      *rand.Rand
	// clockOffset is that of the time namespace of the next process.
	clockOffset time.Duration
	// nextVersion is that of the next process, version that of the last one.
	nextVersion, version version
	// starts is the number of processes so far.
	starts int
	// writes is the number of writes so far, except for Leases and events.
	writes int
	// unconditional are kinds of writes that did not name the version that they were decided on.
	unconditional map[string]bool
}

// restartDelay is the time after which a process that has ended is started again.
const restartDelay = 200 * time.Millisecond

// supervise runs processes until ctx ends.
func (r *replica) supervise(ctx context.Context) error {
	for {
		r.mu.Lock()
		r.starts++
		r.version = r.nextVersion
		offset, program := r.clockOffset, r.version.program
		r.mu.Unlock()
		argv, err := inTimeNamespace(offset, append([]string{program}, r.arguments...))
		if err != nil {
			return err
		}
		process, err := r.cluster.StartProcess(r.name, argv, nil)
		if err != nil {
			return err
		}
		select {
		case <-process.Done():
		case <-ctx.Done():
			return r.cluster.Kill(r.name)
		}
		select {
		case <-r.clock.After(restartDelay):
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *replica) kill() error { return r.cluster.Kill(r.name) }

func (r *replica) signal(s unix.Signal) error { return r.cluster.Signal(r.name, s) }

func (r *replica) terminate(ctx context.Context) error { return r.cluster.Terminate(ctx, r.name) }

// disturb disturbs the requests from now on.
func (r *replica) disturb(d disturbance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disturbance = d
}

// setClock sets the offset of the monotonic clock of the next process.
func (r *replica) setClock(offset time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clockOffset = offset
}

// setVersion sets the version of the next process.
func (r *replica) setVersion(v version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nextVersion = v
}

// versionName returns the name of the version of the last process.
func (r *replica) versionName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version.name
}

// startCount returns the number of processes so far.
func (r *replica) startCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts
}

// writeCount returns the number of writes so far.
func (r *replica) writeCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// serve is the fault of the proxy: it records a request, disturbs or forwards it.
func (r *replica) serve(w http.ResponseWriter, request *http.Request, kind apiproxy.Request) bool {
	observe := func(int) {}
	if kind.Resource == "leases" && kind.Verb != "list" && kind.Verb != "watch" {
		r.leases.requested(r.name)
	}
	if kind.Verb == "create" || kind.Verb == "update" || kind.Verb == "patch" || kind.Verb == "delete" {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the client has gone
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case kind.Resource == "leases":
			observe = func(status int) {
				if status/100 == 2 {
					r.leases.written(r.name, r.versionName(), holderOf(body))
				}
			}
		case kind.Resource != "events" && !strings.HasSuffix(kind.Resource, "reviews"):
			r.recordWrite(request, kind, body)
		}
	}
	r.mu.Lock()
	d, chance := r.disturbance, r.random.Float64()
	r.mu.Unlock()
	if chance >= d.share {
		d = disturbance{}
	}
	if d.delay > 0 {
		select {
		case <-r.clock.After(d.delay):
		case <-request.Context().Done():
		}
	}
	switch {
	case d.status != 0:
		writeStatus(w, d.status)
	case d.lost && kind.Verb != "watch":
		answer := httptest.NewRecorder()
		r.proxy.Forward(answer, request.WithContext(context.WithoutCancel(request.Context())))
		observe(answer.Code)
		panic(http.ErrAbortHandler) // closes the connection
	default:
		// What the client does next must not be recorded before the answer that it follows.
		r.proxy.Forward(&headerObserver{w, observe}, request)
	}
	return true
}

// recordWrite records a write that arrived.
func (r *replica) recordWrite(request *http.Request, kind apiproxy.Request, body []byte) {
	r.leases.checkWriter(r.name, kind.String()+" "+request.URL.Path)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	if kind.Verb != "create" && !hasPrecondition(body) {
		r.unconditional[kind.String()] = true
	}
}

// holderOf returns the holder in a Lease that is being written, empty if the Lease is released.
func holderOf(body []byte) string {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if lease, ok := object.(*coordinationv1.Lease); err == nil && ok && lease.Spec.HolderIdentity != nil {
		return *lease.Spec.HolderIdentity
	}
	return ""
}

// hasPrecondition reports whether a body names the resourceVersion that its write was decided on. Clients encode options and
// objects of built-in kinds as protobuf.
func hasPrecondition(body []byte) bool {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if options, ok := decoded.(*metav1.DeleteOptions); ok && err == nil {
		return options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
	}
	if object, ok := decoded.(metav1.Object); ok && err == nil {
		return object.GetResourceVersion() != ""
	}
	var object struct {
		Metadata, Preconditions struct {
			ResourceVersion string `json:"resourceVersion"`
		}
	}
	return json.Unmarshal(body, &object) == nil && object.Metadata.ResourceVersion+object.Preconditions.ResourceVersion != ""
}

// writeStatus answers like an API server that refuses a request.
func writeStatus(w http.ResponseWriter, status int) {
	reason := "InternalError"
	if status == http.StatusTooManyRequests {
		reason = "TooManyRequests"
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","reason":%q,"code":%d}`, reason, status)
}

// headerObserver observes the status of a response before the client receives it.
type headerObserver struct {
	http.ResponseWriter
	observe func(status int)
}

// WriteHeader implements http.ResponseWriter.
func (o *headerObserver) WriteHeader(status int) {
	o.observe(status)
	o.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (o *headerObserver) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// leaseLog records which replica holds the leader Lease, by the answers to its requests.
type leaseLog struct {
	clock   clock.PassiveClock
	violate func(invariant, format string, args ...any)

	mu sync.Mutex
	// leader is the replica that holds the Lease, empty if none does.
	leader string
	// renewed is the time of the last renewal of the leader.
	renewed time.Time
	// handovers is the number of times that another process has acquired the Lease.
	handovers int
	holder    string
	// version is that of the last holder. takeovers is the number of times that a version has acquired the Lease after the other
	// one.
	version   string
	takeovers map[string]int
	// excused is a replica whose Lease was deleted. It cannot know that before its next renewal; it is excused until it has sent
	// two requests for the Lease after the answer, because of writes that were in flight.
	excused      string
	requestsLeft int
	news         chan struct{} // closed at a change, and replaced
}

func newLeaseLog(c clock.PassiveClock, violate func(invariant, format string, args ...any)) *leaseLog {
	return &leaseLog{clock: c, violate: violate, takeovers: map[string]int{}, news: make(chan struct{})}
}

// written records a Lease that was written by a version of Serin in a replica.
func (l *leaseLog) written(name, version, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case holder == "" && l.leader != name:
		l.violate("I38", "%s released the Lease that %q holds", name, l.leader)
		l.leader = ""
	case holder == "":
		l.leader = ""
	default:
		if l.holder != holder {
			l.holder = holder
			l.handovers++
			if l.version != "" && l.version != version {
				l.takeovers[version]++
			}
			l.version = version
		}
		l.leader, l.renewed = name, l.clock.Now()
	}
	close(l.news)
	l.news = make(chan struct{})
}

// excuse records that the Lease is being deleted.
func (l *leaseLog) excuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excused, l.requestsLeft = l.leader, 3
}

func (l *leaseLog) isNobodyExcused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.excused == ""
}

// requested records that a replica sends a request for the Lease.
func (l *leaseLog) requested(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.excused == name {
		if l.requestsLeft--; l.requestsLeft <= 0 {
			l.excused = ""
		}
	}
}

// leads reports whether a version holds the Lease.
func (l *leaseLog) leads(version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader != "" && l.version == version
}

// checkWriter reports a write of a replica that does not hold the Lease.
func (l *leaseLog) checkWriter(name, write string) {
	l.mu.Lock()
	leader, excused := l.leader, l.excused == name
	l.mu.Unlock()
	if leader != name && !excused {
		l.violate("I38", "%s wrote while %q held the Lease: %s", name, leader, write)
	}
}

// waitUntil waits until a condition is true for the leader and the time of its last renewal.
func (l *leaseLog) waitUntil(ctx context.Context, what string, holds func(leader string, renewed time.Time) bool) error {
	for {
		l.mu.Lock()
		leader, renewed, news := l.leader, l.renewed, l.news
		l.mu.Unlock()
		if holds(leader, renewed) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; the leader is %q, last renewal %s", what, context.Cause(ctx), leader, renewed.Format(time.TimeOnly))
		}
	}
}

// checkPanics returns an error if the log of a replica contains a panic.
func (r *replica) checkPanics() error {
	text, err := os.ReadFile(r.cluster.LogPath(r.name))
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", r.name, err)
	}
	for _, fatal := range []string{"\npanic: ", "\nfatal error: ", "Observed a panic", "DATA RACE"} {
		if i := bytes.Index(text, []byte(fatal)); i >= 0 {
			return errors.New(strings.TrimSpace(string(text[i:min(len(text), i+2000)])))
		}
	}
	return nil
}
