package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/dashboard"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/waittest"
)

// page is a browser that is signed in to a dashboard.
type page struct {
	t      *testing.T
	server *httptest.Server
	client *http.Client
}

// newServer serves the dashboard of a fake cluster, without a viewer.
func newServer(t *testing.T, w *clitest.FakeCluster) (*dashboard.Server, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	handler, err := dashboard.New(t.Context(), dashboard.Options{
		Session: w.Session, Selections: []cluster.Selection{{}}, Hosts: []string{server.Listener.Addr().String()}, Cluster: "test", Version: "v0",
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = handler
	server.Start()
	t.Cleanup(func() { handler.Close(); server.Close() })
	return handler, server
}

// open opens the dashboard of a fake cluster with the link.
func open(t *testing.T, w *clitest.FakeCluster) page {
	t.Helper()
	handler, server := newServer(t, w)
	p := page{t: t, server: server, client: newBrowser(t)}
	response, err := p.client.Get(server.URL + handler.Link())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Request.URL.RawQuery != "" {
		t.Fatalf("the link leads to %s with %s, want / without the token", response.Request.URL, response.Status)
	}
	return p
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Timeout: time.Minute}
}

// send sends a request and returns the status with the body.
func (p page) send(method, path string, document any, change ...func(*http.Request)) (int, string) {
	p.t.Helper()
	var body io.Reader
	if document != nil {
		text, err := json.Marshal(document)
		if err != nil {
			p.t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.server.URL+path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for _, change := range change {
		change(request)
	}
	response, err := p.client.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// get reads a document.
func get[T any](p page, path string) T {
	p.t.Helper()
	var document T
	code, text := p.send(http.MethodGet, path, nil)
	if code != http.StatusOK {
		p.t.Fatalf("GET %s: got %d %s", path, code, text)
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		p.t.Fatal(err)
	}
	return document
}

// stream is an open stream of events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
}

func (p page) stream(query, lastID string) *stream {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.server.URL+"/api/v1/stream"+query, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	response, err := p.client.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		p.t.Fatalf("the stream responds with %s", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return &stream{p.t, lines, response.Body}
}

// next reads the next event with a name into a document, and returns its ID.
func (s *stream) next(name string, document any) (id string) {
	s.t.Helper()
	var event string
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch field {
		case "event":
			event, id = value, ""
		case "id":
			id = value
		case "data":
			if event != name {
				continue
			}
			if err := json.Unmarshal([]byte(value), document); err != nil {
				s.t.Fatal(err)
			}
			return id
		}
	}
	s.t.Fatalf("the stream ended before an event %s: %v", name, s.lines.Err())
	return ""
}

const cartPath = "/api/v1/releases/canary/shop/cart"

func TestLinkSignsInOneBrowserOnce(t *testing.T) {
	handler, server := newServer(t, clitest.NewFakeCluster(t, clitest.Cart))
	stranger := page{t: t, server: server, client: newBrowser(t)}
	for _, path := range []string{"/api/v1/session", "/api/v1/releases", "/api/v1/stream", cartPath, "/api/v1/check"} {
		if code, text := stranger.send(http.MethodGet, path, nil); code != http.StatusUnauthorized || !strings.Contains(text, "link that serin dashboard printed") {
			t.Errorf("GET %s without the link: got %d %s", path, code, text)
		}
	}
	if code, _ := stranger.send(http.MethodGet, "/?token=guessed", nil); code != http.StatusOK {
		t.Errorf("the page without data: got %d, want it for everyone", code)
	}
	link := handler.Link()
	user := page{t: t, server: server, client: newBrowser(t)}
	if code, _ := user.send(http.MethodGet, link, nil); code != http.StatusOK {
		t.Fatalf("the link: got %d", code)
	}
	get[dashboard.Fleet](user, "/api/v1/releases")
	stranger.send(http.MethodGet, link, nil)
	if code, _ := stranger.send(http.MethodGet, "/api/v1/releases", nil); code != http.StatusUnauthorized {
		t.Errorf("the link works twice: got %d", code)
	}
}

func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	p := open(t, clitest.NewFakeCluster(t, clitest.Cart))
	for name, change := range map[string]func(*http.Request){
		"another host (DNS rebinding)": func(r *http.Request) { r.Host = "attacker.example:80" },
		"another origin":               func(r *http.Request) { r.Header.Set("Origin", "https://attacker.example") },
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if code, text := p.send(method, "/api/v1/releases", nil, change); code != http.StatusMisdirectedRequest {
				t.Errorf("%s, %s: got %d %s", name, method, code, text)
			}
		}
	}
	crossSite := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	if code, text := p.send(http.MethodPost, cartPath+"/orders", dashboard.Order{Verb: "restart"}, crossSite); code != http.StatusForbidden {
		t.Errorf("an order of another site: got %d %s", code, text)
	}
	form := func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
	if code, text := p.send(http.MethodPost, cartPath+"/orders", dashboard.Order{Verb: "restart"}, form); code != http.StatusUnsupportedMediaType {
		t.Errorf("an order as a form of another site could send it: got %d %s", code, text)
	}
}

// The kubelet probes the address of the pod, which is none of the hosts.
func TestProbesMayUseAnyHost(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	handler, err := dashboard.New(t.Context(), dashboard.Options{
		Clock: clock.RealClock{}, Selections: []cluster.Selection{{}}, Hosts: []string{"dashboard.example.com"},
		Connect: func(string) (*cluster.Session, error) { return w.Session, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/": http.StatusMisdirectedRequest} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.1.2.3:8443"+path, nil))
		if response.Code != want {
			t.Errorf("GET %s: got %d %s, want %d", path, response.Code, response.Body, want)
		}
	}
}

func TestPagesForbidOtherServersAndInlineScripts(t *testing.T) {
	p := open(t, clitest.NewFakeCluster(t, clitest.Cart))
	response, err := p.client.Get(p.server.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, banned := range []string{"http://", "https://", " style=", "<style", "onclick"} {
		if strings.Contains(string(text), banned) {
			t.Errorf("the page contains %q", banned)
		}
	}
}

func TestStreamSendsChangesAndResumes(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	p := open(t, w)
	s := p.stream("", "")
	var fleet dashboard.Fleet
	id := s.next("fleet", &fleet)
	if !fleet.Complete || len(fleet.Releases) != 1 || fleet.Releases[0].Weight != 20 || fleet.Summary.Advancing != 1 {
		t.Fatalf("got %+v, want Canary cart with weight 20", fleet)
	}
	cart := w.Canary("cart")
	w.Change(cart, func() { cart.Status.FailedChecks = 1 })
	for fleet.Releases[0].FailedChecks != 1 {
		fleet = dashboard.Fleet{}
		s.next("fleet", &fleet)
		if fleet.Complete || len(fleet.Releases) != 1 {
			t.Fatalf("got %+v, want the change alone", fleet)
		}
	}
	resumed := p.stream("", id)
	fleet = dashboard.Fleet{}
	last := resumed.next("fleet", &fleet)
	if fleet.Complete || len(fleet.Releases) != 1 || fleet.Releases[0].FailedChecks != 1 {
		t.Errorf("the resumed stream sends %+v, want the change since", fleet)
	}
	if err := w.Admin.Delete(t.Context(), cart); err != nil {
		t.Fatal(err)
	}
	for len(fleet.Removed) == 0 {
		fleet = dashboard.Fleet{}
		last = resumed.next("fleet", &fleet)
	}
	if fleet.Removed[0] != (dashboard.ReleaseKey{Kind: explain.KindCanary, Namespace: "shop", Name: "cart"}) {
		t.Errorf("removed %+v", fleet.Removed)
	}
	fleet = dashboard.Fleet{}
	p.stream("", "another-"+last).next("fleet", &fleet)
	if !fleet.Complete || len(fleet.Releases) != 0 {
		t.Errorf("after a restart of the dashboard: got %+v, want all releases", fleet)
	}
}

func TestStreamSelectsReleases(t *testing.T) {
	p := open(t, clitest.NewFakeCluster(t, clitest.Cart))
	for query, want := range map[string]int{"?namespace=shop": 1, "?namespace=other": 0, "?selector=team%3Dshop": 1, "?selector=team%21%3Dshop": 0} {
		if fleet := get[dashboard.Fleet](p, "/api/v1/releases"+query); len(fleet.Releases) != want {
			t.Errorf("%s: got %d releases, want %d", query, len(fleet.Releases), want)
		}
	}
	if code, text := p.send(http.MethodGet, "/api/v1/releases?selector=%21%21", nil); code != http.StatusBadRequest {
		t.Errorf("an invalid selector: got %d %s", code, text)
	}
}

func TestReleaseExplainsItself(t *testing.T) {
	p := open(t, clitest.NewFakeCluster(t, clitest.Cart))
	var d dashboard.Detail
	p.stream("?release=canary/shop/cart", "").next("release", &d)
	if d.Release.Name != "cart" || len(d.Sentences) == 0 || d.Release.Tree == nil || len(d.History) != 4 || len(d.Weights) != 1 || len(d.Measurements) != 1 {
		t.Errorf("got %+v", d)
	}
	var verbs []string
	for _, action := range d.Actions {
		if (action.Refused == "") == (action.Effect == "") {
			t.Errorf("%+v has neither a consequence nor a reason why it is refused", action)
		}
		if action.Refused == "" {
			verbs = append(verbs, fmt.Sprintf("%s %t %t", action.Verb, action.Full, action.Confirm))
		}
	}
	if want := []string{"promote true true", "abort false true", "pause false false", "restart false true"}; !slices.Equal(verbs, want) {
		t.Errorf("actions %q, want %q", verbs, want)
	}
	var gone dashboard.Detail
	p.stream("?release=rollout/shop/missing", "").next("release", &gone)
	if !gone.Gone {
		t.Errorf("a missing release: got %+v", gone)
	}
	if code, _ := p.send(http.MethodGet, "/api/v1/releases/rollout/shop/missing", nil); code != http.StatusNotFound {
		t.Errorf("a missing release: got %d", code)
	}
	if code, text := p.send(http.MethodGet, "/api/v1/stream?release=cart", nil); code != http.StatusBadRequest || !strings.Contains(text, "canary/NAMESPACE/NAME") {
		t.Errorf("an invalid name: got %d %s", code, text)
	}
}

// actionOf returns an action of Canary cart.
func actionOf(p page, verb string, full bool) dashboard.Action {
	p.t.Helper()
	return actionAt(p, cartPath, verb, full)
}

// actionAt returns an action of a release.
func actionAt(p page, path, verb string, full bool) dashboard.Action {
	p.t.Helper()
	actions := get[dashboard.Detail](p, path).Actions
	i := slices.IndexFunc(actions, func(a dashboard.Action) bool { return a.Verb == verb && a.Full == full })
	if i < 0 {
		p.t.Fatalf("there is no action %s", verb)
	}
	return actions[i]
}

func TestOrdersApplyToWhatTheViewerSaw(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	p := open(t, w)
	seen := actionOf(p, "promote", true)
	cart := w.Canary("cart")
	w.Change(cart, func() { cart.Status.Serin.Run = "another" })
	order := dashboard.Order{Verb: "promote", Full: true, Run: seen.Run, Reason: "hotfix 42"}
	if code, text := p.send(http.MethodPost, cartPath+"/orders", order); code != http.StatusConflict || !strings.Contains(text, "has ended") {
		t.Errorf("an order for a release that has ended: got %d %s", code, text)
	}
	if annotations := w.Canary("cart").Annotations; len(annotations) > 0 {
		t.Errorf("it was sent: %v", annotations)
	}
	waittest.Until(t, "the dashboard has observed the other release", func() error {
		if run := actionOf(p, "promote", true).Run; run == seen.Run {
			return errors.New("its actions are still for " + run)
		}
		return nil
	})
	order.Run = actionOf(p, "promote", true).Run
	code, text := p.send(http.MethodPost, cartPath+"/orders", order)
	if code != http.StatusAccepted || !strings.Contains(text, "will be promoted") {
		t.Fatalf("got %d %s", code, text)
	}
	if annotations := w.Canary("cart").Annotations; canary.CommandBy(annotations) != "vera: hotfix 42" {
		t.Errorf("annotations %v, want the command and its user", annotations)
	}
	var d dashboard.Detail
	recorded := func(e explain.Event) bool { return e.ByUser && strings.Contains(e.Message, "by vera: hotfix 42") }
	for s := p.stream("?release=canary/shop/cart", ""); !slices.ContainsFunc(d.Release.Events, recorded); {
		d = dashboard.Detail{}
		s.next("release", &d)
	}
}

// Two viewers see the same bad revision and choose undo: the second one must not bring it back.
func TestUndoLeavesTheRevisionThatTheViewerSaw(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.WebRollout)
	p := open(t, w)
	const webPath = "/api/v1/releases/rollout/shop/web"
	order := dashboard.Order{Verb: "undo", Run: actionAt(p, webPath, "undo", false).Run}
	if code, text := p.send(http.MethodPost, webPath+"/orders", order); code != http.StatusAccepted {
		t.Fatalf("the first undo: got %d %s", code, text)
	}
	again := func(when string) {
		t.Helper()
		code, text := p.send(http.MethodPost, webPath+"/orders", order)
		if image := w.Rollout("web").Spec.Template.Spec.Containers[0].Image; code != http.StatusConflict || image != "web:v1" {
			t.Errorf("the second undo %s: got %d %s and image %s", when, code, text, image)
		}
	}
	again("at once")
	rs := &appsv1.ReplicaSet{}
	rs.Namespace, rs.Name = "shop", "web-old"
	w.Change(rs, func() { rs.Annotations[argov1.RevisionAnnotation] = "3" })
	again("when the previous revision is the newest")
	web := w.Rollout("web")
	w.Change(web, func() { web.Status.CurrentPodHash = "old" })
	again("when the status contains it")
}

func TestPromoteOfARolloutSkipsNoAnalysis(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.WebRollout)
	p := open(t, w)
	const webPath = "/api/v1/releases/rollout/shop/web"
	web := w.Rollout("web")
	w.Change(web, func() {
		s := &web.Status
		s.CurrentStepIndex, s.PauseConditions, s.ControllerPause, s.Phase = new(int32(2)), nil, false, argov1.RolloutPhaseProgressing
	})
	waittest.Until(t, "promote is refused during the analysis", func() error {
		if a := actionAt(p, webPath, "promote", false); !strings.Contains(a.Refused, "step 3 of 5, and waits for no approval") {
			return fmt.Errorf("the action is %+v", a)
		}
		return nil
	})
}

func TestInvalidOrdersChangeNothing(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	p := open(t, w)
	run := actionOf(p, "abort", false).Run
	before := w.Versions(t)
	for _, test := range []struct {
		path  string
		order any
		code  int
		text  string
	}{
		{cartPath, dashboard.Order{Verb: "delete", Run: run}, http.StatusBadRequest, `no verb \"delete\"`},
		{cartPath, dashboard.Order{Verb: "abort", Full: true, Run: run}, http.StatusBadRequest, "no verb"},
		{cartPath, dashboard.Order{Verb: "abort"}, http.StatusBadRequest, "requires run"},
		{cartPath, dashboard.Order{Verb: "undo"}, http.StatusBadRequest, "requires run"},
		{cartPath, dashboard.Order{Verb: "approve", Run: run}, http.StatusBadRequest, "requires gate"},
		{cartPath, dashboard.Order{Verb: "approve", Gate: "sign-off", Run: run}, http.StatusConflict, "waits for no approval"},
		{cartPath, dashboard.Order{Verb: "retry", Run: run}, http.StatusConflict, "did not fail"},
		{cartPath, dashboard.Order{Verb: "abort", Run: run, Reason: strings.Repeat("x", 501)}, http.StatusBadRequest, "longer than"},
		{cartPath, map[string]any{"verb": "abort", "run": run, "query": "up"}, http.StatusBadRequest, "unknown field"},
		{cartPath, strings.Repeat("x", 20_000), http.StatusBadRequest, "too large"},
		{"/api/v1/releases/canary/shop/missing", dashboard.Order{Verb: "abort", Run: run}, http.StatusNotFound, "there is no Canary missing"},
		{"/api/v1/releases/deployment/shop/cart", dashboard.Order{Verb: "abort", Run: run}, http.StatusNotFound, "use canary or rollout"},
	} {
		code, text := p.send(http.MethodPost, test.path+"/orders", test.order)
		if code != test.code || !strings.Contains(text, test.text) {
			t.Errorf("%v: got %d %s, want %d with %q", test.order, code, text, test.code, test.text)
		}
	}
	if w.Versions(t) != before {
		t.Error("a refused order changed the cluster")
	}
}

func TestPermissionsAreThoseOfTheViewer(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	p := open(t, w)
	w.Deny("patch canaries")
	permission := get[dashboard.Permission](p, cartPath+"/can")
	if want := []string{"patch on canaries in namespace shop"}; permission.Allowed || !slices.Equal(permission.Missing, want) {
		t.Errorf("got %+v, want %q", permission, want)
	}
	run := actionOf(p, "abort", false).Run
	w.Forbid("Canary")
	if code, text := p.send(http.MethodPost, cartPath+"/orders", dashboard.Order{Verb: "abort", Run: run}); code != http.StatusForbidden {
		t.Errorf("an order without permission: got %d %s", code, text)
	}
	if code, _ := p.send(http.MethodGet, "/api/v1/releases/canary/shop/missing/can", nil); code != http.StatusNotFound {
		t.Errorf("permissions for a missing release: got %d", code)
	}
}

func TestEachCommandNeedsItsOwnPermissions(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart+"\n---\n"+clitest.WebRollout)
	p := open(t, w)
	const webPath = "/api/v1/releases/rollout/shop/web"
	w.Deny("patch rollouts/status", "list replicasets", "patch deployments")
	for path, want := range map[string]map[string][]string{
		cartPath: {"promote": nil, "abort": nil, "pause": nil, "restart": {"patch on deployments in namespace shop"}},
		webPath: {
			"promote": {"patch on rollouts/status in namespace shop"}, "abort": {"patch on rollouts/status in namespace shop"}, "pause": nil, "restart": nil,
			"undo": {"list on replicasets in namespace shop"},
		},
	} {
		missing := get[dashboard.Permission](p, path+"/can").Missing
		got := map[string][]string{}
		for _, action := range get[dashboard.Detail](p, path).Actions {
			if len(action.Needs) == 0 {
				t.Errorf("%s: %s needs nothing", path, action.Verb)
			}
			got[action.Verb] = slices.DeleteFunc(action.Needs, func(needed string) bool { return !slices.Contains(missing, needed) })
		}
		for verb := range want {
			if !slices.Equal(got[verb], want[verb]) {
				t.Errorf("%s: %s lacks %q, want %q", path, verb, got[verb], want[verb])
			}
		}
	}
	if needs := actionAt(p, webPath, "retry", false).Needs; !slices.Contains(needs, "patch on rollouts/status in namespace shop") {
		t.Errorf("retry, which has no effect now, needs %q later", needs)
	}
	var requests atomic.Int64
	w.CountRequests(func() { requests.Add(1) })
	get[dashboard.Permission](p, webPath+"/can")
	if n := requests.Load(); n > 0 {
		t.Errorf("the same permissions were reviewed again at once, with %d requests", n)
	}
}

func TestSetupShowsQueueAndControllers(t *testing.T) {
	const waiting = `
---
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: basket, namespace: shop, uid: basket-uid, generation: 1, annotations: {serin.dev/priority: "7"}}
spec: {provider: kubernetes, targetRef: {apiVersion: apps/v1, kind: Deployment, name: basket}, service: {port: 80}, analysis: {interval: 30s, threshold: 2, iterations: 2}}
status: {phase: Succeeded, canaryWeight: 0, failedChecks: 0, iterations: 0, lastTransitionTime: "1999-12-31T23:59:00Z", serin: {queue: {since: "1999-12-31T23:58:00.000000Z"}}}`
	serin := strings.Replace(clitest.SerinDeployment, "args: [controller,", "args: [controller, -max-moving=3, -slack-url=https://hooks.example/confidential, --slack-token, confidential,", 1)
	w := clitest.NewFakeCluster(t, clitest.Cart+waiting+serin)
	p := open(t, w)
	var update dashboard.QueueUpdate
	p.stream("?queue", "").next("queue", &update)
	want := []explain.QueueMember{{Kind: explain.KindCanary, Namespace: "shop", Name: "cart"}}
	if !slices.Equal(update.InProgress, want) || update.Controller.State != explain.Running {
		t.Errorf("got %+v, want %+v in progress", update, want)
	}
	if len(update.Waiting) != 1 || update.Waiting[0].Name != "basket" || update.Waiting[0].Priority != 7 || update.Waiting[0].Since.IsZero() {
		t.Errorf("waiting: got %+v, want basket", update.Waiting)
	}
	code, text := p.send(http.MethodGet, "/api/v1/controllers", nil)
	if code != http.StatusOK || strings.Contains(text, "confidential") {
		t.Fatalf("got %d %s, want it without secrets", code, text)
	}
	found := get[dashboard.Controllers](p, "/api/v1/controllers").Controllers
	flags := []string{"--max-moving=3", "--mesh-provider=gatewayapi:v1", "--min-analysis-interval=1s", "--slack-token=(set)", "--slack-url=(set)"}
	if len(found) != 1 || found[0].Source != "Deployment serin.serin-system" || found[0].Ready != 1 || found[0].Limit != 3 || !slices.Equal(found[0].Flags, flags) ||
		!strings.HasPrefix(found[0].Image, "registry.test:5000/mirror/serin:v1") {
		t.Errorf("got %+v, want the flags %q", found, flags)
	}
	w.Forbid("Deployment", "Lease")
	if document := get[dashboard.Controllers](p, "/api/v1/controllers"); len(document.Controllers) != 0 || !slices.Equal(document.Unread, []string{"Deployments", "Leases"}) {
		t.Errorf("without permission: got %+v", document)
	}
}

func TestLostClusterIsReported(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	w.FailRequests(errors.New("connection refused"))
	p := open(t, w)
	s := p.stream("", "")
	var fleet dashboard.Fleet
	s.next("fleet", &fleet)
	if !fleet.Lost || len(fleet.Notes) != 1 || !strings.Contains(fleet.Notes[0], "connection refused") {
		t.Fatalf("got %+v, want a lost cluster", fleet)
	}
	w.FailRequests(nil)
	for fleet.Lost || len(fleet.Releases) != 1 {
		fleet = dashboard.Fleet{}
		s.next("fleet", &fleet)
	}
	if fleet.Observed.IsZero() {
		t.Error("the time of the observation is missing")
	}
}

// TestLostClusterIsReportedForAReleaseAtOnce: the page of a release must not be empty until the first heartbeat.
func TestLostClusterIsReportedForAReleaseAtOnce(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	w.FailRequests(errors.New("access denied"))
	w.Session.Clock = clocktesting.NewFakeClock(time.Now()) // without heartbeats
	var status dashboard.Status
	open(t, w).stream("?release=canary/shop/cart", "").next("heartbeat", &status)
	if !status.Lost || len(status.Notes) != 1 || !strings.Contains(status.Notes[0], "access denied") {
		t.Errorf("got %+v, want a lost cluster", status)
	}
}

// TestAViewerOfOneNamespaceKnowsIt: without permission to list all namespaces, an empty list does not mean that there are no releases.
func TestAViewerOfOneNamespaceKnowsIt(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	w.Session.Client = interceptor.NewClient(w.Session.Client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if (&client.ListOptions{}).ApplyOptions(options).Namespace == "" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "canaries"}, "", errors.New("in the cluster scope"))
			}
			return c.List(ctx, list, options...)
		},
	})
	handler, err := dashboard.New(t.Context(), dashboard.Options{Session: w.Session, Selections: []cluster.Selection{{}, {Namespace: "empty"}}, Version: "v0"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() { handler.Close(); server.Close() })
	p := page{t: t, server: server, client: newBrowser(t)}
	response, err := p.client.Get(server.URL + handler.Link())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	var fleet dashboard.Fleet
	s := p.stream("", "")
	for s.next("fleet", &fleet); !fleet.Complete; s.next("fleet", &fleet) {
	}
	const want = "No permission to list the releases of all namespaces: only those of namespace empty are shown."
	if !slices.Contains(fleet.Notes, want) {
		t.Errorf("got the notes %q, want %q", fleet.Notes, want)
	}
}

func TestViewersShareTheRequests(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	var requests atomic.Int64
	w.CountRequests(func() { requests.Add(1) })
	p := open(t, w)
	var fleet dashboard.Fleet
	var d dashboard.Detail
	p.stream("", "").next("fleet", &fleet)
	p.stream("?release=canary/shop/cart", "").next("release", &d)
	before := requests.Load()
	if before == 0 {
		t.Fatal("no request was counted")
	}
	const viewers = 50
	for range viewers {
		p.stream("", "").next("fleet", &fleet)
		p.stream("?release=canary/shop/cart", "").next("release", &d)
	}
	if during := requests.Load() - before; during >= viewers { // the first observations may still be in progress
		t.Errorf("%d more viewers sent %d more requests to the API server, want none for a viewer", viewers, during)
	}
}

func TestReportEscapesTextsOfTheCluster(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	cart := w.Canary("cart")
	w.Change(cart, func() {
		cart.Status.Serin.History[0].Cause.Message = "<script>alert(1)</script> [link](http://attacker.example)\n# Approved | yes"
	})
	code, report := open(t, w).send(http.MethodGet, cartPath+"/report.md", nil)
	if code != http.StatusOK || !strings.HasPrefix(report, "# Canary cart in namespace shop\n") {
		t.Fatalf("got %d %s", code, report)
	}
	for _, banned := range []string{"<script>", "[link](", "\n# Approved"} {
		if strings.Contains(report, banned) {
			t.Errorf("the report contains %q:\n%s", banned, report)
		}
	}
}

func TestTokensAreCheckedByTheAPIServer(t *testing.T) {
	w := clitest.NewFakeCluster(t, clitest.Cart)
	rejected := clitest.NewFakeCluster(t, clitest.Cart)
	rejected.FailRequests(errors.New("Unauthorized"))
	handler, err := dashboard.New(t.Context(), dashboard.Options{
		Clock: clock.RealClock{}, Selections: []cluster.Selection{{}},
		Connect: func(token string) (*cluster.Session, error) {
			if token == "valid" {
				return w.Session, nil
			}
			return rejected.Session, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(func() { handler.Close(); server.Close() })
	p := page{t: t, server: server, client: server.Client()}
	if p.client.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	signIn := func(token string) (int, string) {
		return p.send(http.MethodPost, "/api/v1/session?token="+token, nil, func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") })
	}
	if handler.Link() != "" {
		t.Errorf("there is a link %s", handler.Link())
	}
	for _, token := range []string{"", "valid"} { // a token in an address would be logged
		if code, text := signIn(token); code != http.StatusBadRequest {
			t.Errorf("the token %q in the address: got %d %s", token, code, text)
		}
	}
	post := func(token string) int {
		response, err := p.client.PostForm(server.URL+"/api/v1/session", map[string][]string{"token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if code := post("invalid"); code != http.StatusUnauthorized {
		t.Errorf("an invalid token: got %d", code)
	}
	if code, _ := p.send(http.MethodGet, "/api/v1/releases", nil); code != http.StatusUnauthorized {
		t.Errorf("without a token: got %d", code)
	}
	if code := post("valid"); code != http.StatusNoContent {
		t.Errorf("a valid token: got %d", code)
	}
	if fleet := get[dashboard.Fleet](p, "/api/v1/releases"); len(fleet.Releases) != 1 {
		t.Errorf("got %+v", fleet)
	}
	other := page{t: t, server: server, client: &http.Client{Transport: server.Client().Transport}}
	code, _ := other.send(http.MethodGet, "/api/v1/releases", nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer valid") })
	if code != http.StatusOK {
		t.Errorf("a token that a proxy adds: got %d", code)
	}
}
