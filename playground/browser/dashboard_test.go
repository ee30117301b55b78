//go:build linux

package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/dashboard"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/playground/browser"
)

// manyReleases is the number of releases in a list of which a screen shows ten.
const manyReleases = 10_000

// manifestOf returns a Canary whose target does not exist, so that it waits for the user.
func manifestOf(i int) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: canary-%05d, namespace: many, uid: uid-%d, generation: 1}
spec: {provider: kubernetes, targetRef: {apiVersion: apps/v1, kind: Deployment, name: canary-%05d}, service: {port: 80}, analysis: {interval: 30s, threshold: 2, iterations: 2}}
status: {phase: Failed, canaryWeight: 0, failedChecks: 0, iterations: 0, lastAppliedSpec: x, lastPromotedSpec: x, lastTransitionTime: "1999-12-31T23:59:00Z"}
`, i, i, i)
}

// openDashboard opens the dashboard of a cluster in memory: what is tested is the page. If releases is not nil, the list consists of
// them.
func openDashboard(t *testing.T, page *browser.Page, w *clitest.FakeCluster, releases []explain.FleetRelease) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	handler, err := dashboard.New(t.Context(), dashboard.Options{Session: w.Session, Selections: []cluster.Selection{{}}, Hosts: []string{server.Listener.Addr().String()}, Version: "v0"})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = handler
	if releases != nil {
		server.Config.Handler = withReleases(t, handler, releases)
	}
	server.Start()
	t.Cleanup(func() { handler.Close(); server.Close() })
	page.Open(server.URL + handler.Link())
}

// withReleases replaces the stream of the list.
func withReleases(t *testing.T, next http.Handler, releases []explain.FleetRelease) http.Handler {
	t.Helper()
	text, err := json.Marshal(dashboard.Fleet{Complete: true, Releases: releases})
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/stream" || r.URL.RawQuery != "" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: fleet\ndata: %s\n\n", text)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
	})
}

// checkPage checks a page and the console of the browser.
func checkPage(t *testing.T, page *browser.Page, name string) {
	t.Helper()
	page.Check(name)
	if errors := page.Errors(); len(errors) > 0 {
		t.Errorf("the console of page %s contains %q", name, errors)
	}
}

func TestListShowsThePartOfManyReleasesThatIsVisible(t *testing.T) {
	page := browser.Open(t)
	releases := []explain.FleetRelease{{Kind: explain.KindCanary, Namespace: "shop", Name: "cart", Group: explain.Advancing, Phase: "Progressing", Weight: 20}}
	for i := range manyReleases {
		releases = append(releases, explain.FleetRelease{
			Kind: explain.KindCanary, Namespace: "many", Name: fmt.Sprintf("canary-%05d", i), Group: explain.NeedsUser, Phase: "Failed", Text: "Deployment was not found",
		})
	}
	openDashboard(t, page, clitest.NewFakeCluster(t, clitest.Cart+"\n---"+manifestOf(0)), releases)
	page.WaitForText(fmt.Sprintf("Needs you (%d)", manyReleases))
	page.Press("j", "Enter")
	page.WaitForText("canary-00000.many is")
	page.ClickUntil("a.brand", "document.querySelector('a.row')")
	page.WaitForText("canary-00000")
	rows := func() int { return browser.Evaluate[int](page, "document.querySelectorAll('#list a.row').length") }
	if n := rows(); n > 60 {
		t.Errorf("%d rows are in the page", n)
	}
	checkPage(t, page, "many")
	browser.Evaluate[bool](page, "scrollTo(0, document.documentElement.scrollHeight), true")
	page.WaitForText("cart") // the only one that advances, at the end
	if n := rows(); n > 60 {
		t.Errorf("%d rows are in the page after scrolling", n)
	}
	page.Press("/")
	page.WaitUntil("document.activeElement.matches('input[type=search]')")
	browser.Evaluate[bool](page, "document.activeElement.value = '', true") // a browser suppresses the character, the protocol types it
	page.Type("input[type=search]", "canary-00123")
	page.WaitUntil("document.querySelectorAll('#list a.row').length === 1")
	if address := browser.Evaluate[string](page, "location.search"); !strings.Contains(address, "q=canary-00123") {
		t.Errorf("the address %q does not contain the filter", address)
	}
	page.Type("input[type=search]", "x")
	page.WaitForText("No release matches the filters.")
	if errors := page.Errors(); len(errors) > 0 {
		t.Errorf("the console of the page contains %q", errors)
	}
}

// TestMeasurementsAreDrawnWithLimitAndGaps changes the status of a Canary as its controller does, window by window.
func TestMeasurementsAreDrawnWithLimitAndGaps(t *testing.T) {
	page := browser.Open(t)
	w := clitest.NewFakeCluster(t, clitest.Cart+"\n---\n"+rolloutOfTwoVersions)
	openDashboard(t, page, w, nil)
	page.WaitForText("Advancing (1)")
	page.ClickUntil(`a.row[href="/release/canary/shop/cart"]`, "location.pathname.endsWith('/cart') && document.querySelector('figure')")
	cart := w.Canary("cart")
	for i, value := range []string{"99.40%", "99.10%", "", "98.20%", "99.80%"} {
		w.Change(cart, func() {
			own := cart.Status.Serin
			own.Window.Start.Time = own.Window.Start.Add(30 * time.Second)
			gate := &own.Gates[0]
			gate.Value, gate.Verdict, gate.Message = value, "pass", value+" is within the limit"
			if value == "" || value < "99" {
				gate.Verdict, gate.Message = "fail", "no values found"
			}
		})
		page.WaitUntil(fmt.Sprintf(`document.querySelector("figure svg.measured").getAttribute("aria-label").includes("%d values")`, i+2))
	}
	drawn := browser.Evaluate[map[string]int](page, `Object.fromEntries(["path.line", "circle.pass", "path.failpoint", "line.limit", "text.nodata"].map((part) => [part, document.querySelectorAll("figure svg.measured " + part).length]))`)
	for part, want := range map[string]int{"path.line": 1, "circle.pass": 4, "path.failpoint": 1, "line.limit": 1, "text.nodata": 1} {
		if drawn[part] != want {
			t.Errorf("%d of %s, want %d", drawn[part], part, want)
		}
	}
	if moves := browser.Evaluate[int](page, `document.querySelector("figure svg.measured path.line").getAttribute("d").split("M").length - 1`); moves != 2 {
		t.Errorf("the line consists of %d parts, want two with a gap", moves)
	}
	page.ClickUntil("#fold-values-0", "document.querySelector('figure details[open] table')")
	page.WaitForText("no values found")
	page.ClickUntil("#fold-query-0", "document.body.innerText.includes('sum(rate(x[1m]))')")
	w.Change(cart, func() { cart.Status.CanaryWeight = 40 })
	page.WaitUntil("document.querySelectorAll('figure details[open]').length === 2") // the page was rendered again
	checkPage(t, page, "measurements")

	page.ClickUntil("a.brand", "document.querySelector('a.row')")
	page.ClickUntil(`a.row[href="/release/rollout/shop/web"]`, "location.pathname.endsWith('/web') && document.querySelectorAll('figure').length === 1")
	if lines := browser.Evaluate[int](page, "document.querySelectorAll('figure svg.measured path.line').length"); lines != 2 {
		t.Errorf("%d lines, want one for each version", lines)
	}
	page.WaitForText("stable version: [0.02]")
	page.WaitForText("new version: [0.04]")
	checkPage(t, page, "versions")
}

// rolloutOfTwoVersions is a Rollout with one AnalysisRun that measures both versions, by the hashes of their pods.
var rolloutOfTwoVersions = strings.NewReplacer(`  - name: success-rate
    phase: Running
    count: 2
    successful: 1
    failed: 1
    metadata: {ResolvedPrometheusQuery: "sum(rate(x[1m]))"}
    measurements:
    - {phase: Successful, value: "[0.99]", finishedAt: "1999-12-31T23:59:31Z"}
    - {phase: Failed, value: "[0.91]", finishedAt: "2000-01-01T00:00:01Z"}
`, `  - name: errors-canary
    phase: Running
    count: 3
    metadata: {ResolvedPrometheusQuery: 'errors{hash="7d4c9new"}'}
    measurements:
    - {phase: Successful, value: "[0.03]", finishedAt: "1999-12-31T23:59:31Z"}
    - {phase: Failed, value: "[0.07]", finishedAt: "2000-01-01T00:00:01Z"}
    - {phase: Successful, value: "[0.04]", finishedAt: "2000-01-01T00:00:31Z"}
  - name: errors-stable
    phase: Running
    count: 3
    metadata: {ResolvedPrometheusQuery: 'errors{hash="5f6b8old"}'}
    measurements:
    - {phase: Successful, value: "[0.02]", finishedAt: "1999-12-31T23:59:31Z"}
    - {phase: Successful, value: "[0.01]", finishedAt: "2000-01-01T00:00:01Z"}
    - {phase: Successful, value: "[0.02]", finishedAt: "2000-01-01T00:00:31Z"}
`, `spec:
  metrics:
  - name: success-rate
    interval: 30s
    count: 5
    failureLimit: 2
    successCondition: result[0] >= 0.95
    provider: {prometheus: {address: "http://prometheus:9090", query: "sum(rate(x[1m]))"}}
status:
  phase: Running`, `spec:
  metrics:
  - {name: errors-canary, interval: 30s, failureLimit: 2, successCondition: "result[0] <= 0.05", provider: {prometheus: {address: "http://prometheus:9090", query: errors}}}
  - {name: errors-stable, interval: 30s, provider: {prometheus: {address: "http://prometheus:9090", query: errors}}}
status:
  phase: Running`, "rollouts-pod-template-hash: new", "rollouts-pod-template-hash: 7d4c9new", "currentPodHash: new", "currentPodHash: 7d4c9new",
	"rollouts-pod-template-hash: old", "rollouts-pod-template-hash: 5f6b8old", "stableRS: old", "stableRS: 5f6b8old").Replace(clitest.WebRollout)

// TestButtonsNameTheMissingPermissions: a viewer who may do some of the commands can press those.
func TestButtonsNameTheMissingPermissions(t *testing.T) {
	page := browser.Open(t)
	w := clitest.NewFakeCluster(t, clitest.WebRollout)
	w.Deny("patch rollouts/status")
	openDashboard(t, page, w, nil)
	page.ClickUntil("a.row", "location.pathname.endsWith('/web')")
	page.WaitUntil("document.querySelector('#action-Pause:enabled')")
	for button, isEnabled := range map[string]bool{"Promote": false, "Promote-fully": false, "Abort": false, "Pause": true, "Restart": true} {
		if got := browser.Evaluate[bool](page, fmt.Sprintf("Boolean(document.querySelector('#action-%s:enabled'))", button)); got != isEnabled {
			t.Errorf("%s is enabled: %v, want %v", button, got, isEnabled)
		}
	}
	if text := browser.Evaluate[string](page, "document.querySelector('#action-Promote').innerText"); !strings.Contains(text, "Needs patch on rollouts/status in namespace shop.") {
		t.Errorf("the button contains %q", text)
	}
	checkPage(t, page, "permissions")
}

func TestSetupShowsTheQueueLive(t *testing.T) {
	page := browser.Open(t)
	w := clitest.NewFakeCluster(t, clitest.Cart+"\n---"+manifestOf(1)+clitest.SerinDeployment)
	openDashboard(t, page, w, nil)
	page.ClickUntil(`a[href="/setup"]`, "location.pathname === '/setup'")
	page.WaitForText("1 in progress, 0 waiting.")
	page.WaitForText("Deployment serin.serin-system")
	page.WaitForText("--mesh-provider=gatewayapi:v1")
	waiting := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: "canary-00001"}}
	w.Change(waiting, func() {
		waiting.Status.Serin = &flaggerv1.SerinStatus{Queue: &flaggerv1.QueuePlace{Since: metav1.NowMicro()}}
	})
	page.WaitForText("1 in progress, 1 waiting.")
	checkPage(t, page, "setup-queue")
}

// brokenWords returns the words in tables that are broken although they fit, such as those of a narrow column next to a long text.
const brokenWords = `[...document.querySelectorAll("td")].flatMap((cell) => {
	const words = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		for (const match of texts.currentNode.data.matchAll(/[A-Za-z0-9:.]{2,24}/g)) {
			const range = document.createRange();
			range.setStart(texts.currentNode, match.index);
			range.setEnd(texts.currentNode, match.index + match[0].length);
			if (new Set([...range.getClientRects()].map((part) => part.top)).size > 1) words.push(match[0]);
		}
	}
	return words;
})`

// TestTablesBreakNoWords has long texts next to short ones.
func TestTablesBreakNoWords(t *testing.T) {
	page := browser.Open(t)
	const short, long = "Advance cart.shop canary weight 20", "no values found: Gateway gatway.playground does not exist, so HTTPRoute cart.shop routes no requests from it: create it, or correct spec.service.gatewayRefs"
	openDashboard(t, page, clitest.NewFakeCluster(t, strings.NewReplacer(short, "'"+strings.Repeat(long+". ", 3)+"'", "type: Normal", "type: Warning", "success rate 91.20% < 99%", long).Replace(clitest.Cart)), nil)
	page.ClickUntil("a.row", "location.pathname.endsWith('/cart') && document.querySelectorAll('td').length > 10")
	for _, width := range []int64{1280, 360} {
		page.Resize(width, 900)
		if broken := browser.Evaluate[[]string](page, brokenWords); len(broken) > 0 {
			t.Errorf("with a width of %d pixels, the tables break the words %q", width, broken)
		}
	}
	checkPage(t, page, "long-texts")
}

// TestOverviewFitsItsWindow: on a wide screen no column remains empty, and on a phone no text must be scrolled sideways.
func TestOverviewFitsItsWindow(t *testing.T) {
	page := browser.Open(t)
	openDashboard(t, page, clitest.NewFakeCluster(t, clitest.Cart), nil)
	page.ClickUntil("a.row", "location.pathname.endsWith('/cart') && document.querySelectorAll('td').length > 10 && document.querySelector('svg.chart')")
	page.Resize(1500, 900)
	panels := browser.Evaluate[map[string]float64](page, `Object.fromEntries([...document.querySelectorAll(".panel")].map((panel) => [panel.querySelector("h2").innerText, panel.getBoundingClientRect().right]))`)
	for _, last := range []string{"Actions", "Gates", "History"} {
		if panels[last] < panels["Traffic"]-1 {
			t.Errorf("the row of panel %s ends at %.0f, want %.0f like that of panel Traffic", last, panels[last], panels["Traffic"])
		}
	}
	page.Resize(390, 844)
	page.Open(browser.Evaluate[string](page, "location.href")) // a chart has the width of the window in which it is drawn
	page.WaitUntil("document.querySelectorAll('td').length > 10 && document.querySelector('svg.chart')")
	for _, cut := range browser.Evaluate[[]string](page, `[...document.querySelectorAll(".scroll")].filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.getAttribute("aria-label"))`) {
		t.Errorf("on a phone, the table %s is cut off", cut)
	}
	if size := browser.Evaluate[float64](page, `document.querySelector("svg.chart").getScreenCTM().a * 11`); size < 10 {
		t.Errorf("on a phone, the texts of the chart have a size of %.1f pixels", size)
	}
}

// TestIdleReleaseHasNoChart: a flat line would show nothing.
func TestIdleReleaseHasNoChart(t *testing.T) {
	page := browser.Open(t)
	promoted := strings.NewReplacer("phase: Progressing", "phase: Succeeded", "canaryWeight: 20", "canaryWeight: 0")
	openDashboard(t, page, clitest.NewFakeCluster(t, promoted.Replace(clitest.Cart)), nil)
	page.WaitForText("Idle (1)")
	page.ClickUntil("#list button", "document.querySelector('a.row')")
	page.ClickUntil("a.row", "location.pathname.endsWith('/cart')")
	page.WaitForText("is idle (Succeeded")
	page.WaitForText("No release is in progress.")
}

// TestReleaseIsDescribedAsItIs: a gate that passes with a notice is not green, and a name is written as it is.
func TestReleaseIsDescribedAsItIs(t *testing.T) {
	page := browser.Open(t)
	openDashboard(t, page, clitest.NewFakeCluster(t, strings.Replace(clitest.Cart, "interval: 30s", "interval: 30sec", 1)), nil)
	page.ClickUntil("a.row", "location.pathname.endsWith('/cart') && document.querySelector('#action-Promote-fully small')")
	page.WaitForText("which is not a duration")
	if state := browser.Evaluate[string](page, `[...document.querySelectorAll("td")].find((cell) => cell.innerText.includes("which is not a duration")).querySelector(".chip").innerText`); !strings.Contains(state, "notice") {
		t.Errorf("the gate with a notice has the state %q", state)
	}
	if text := browser.Evaluate[string](page, `document.querySelector("#action-Promote-fully small").innerText`); !strings.HasPrefix(text, "cart is under analysis") {
		t.Errorf("the consequence is %q", text)
	}
	page.WaitForText("weight 20% desired, 20% served (confirmed by the router)") // as in the tree of serin get
	checkPage(t, page, "notice")
}

// TestSignInDoesNotReportALostConnection: a viewer who is not signed in has a dashboard that responds.
func TestSignInDoesNotReportALostConnection(t *testing.T) {
	page := browser.Open(t)
	w := clitest.NewFakeCluster(t, clitest.Cart)
	handler, err := dashboard.New(t.Context(), dashboard.Options{Clock: clock.RealClock{}, Selections: []cluster.Selection{{}}, Connect: func(string) (*cluster.Session, error) { return w.Session, nil }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() { handler.Close(); server.Close() })
	page.Open(server.URL)
	page.WaitForText("Bearer token for the API server")
	if text := page.Text(); strings.Contains(text, "does not respond") {
		t.Errorf("the page contains:\n%s", text)
	}
	if browser.Evaluate[bool](page, "document.body.classList.contains('lost')") {
		t.Error("the page is grey")
	}
}
