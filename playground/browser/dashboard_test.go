//go:build linux

package browser_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/dashboard"
	"github.com/serin-dev/serin/playground/browser"
)

// manyReleases is the number of releases in a list of which a screen shows ten.
const manyReleases = 500

// TestListShowsThePartOfManyReleasesThatIsVisible uses a cluster in memory: what is tested is the page.
func TestListShowsThePartOfManyReleasesThatIsVisible(t *testing.T) {
	page := browser.Open(t)
	manifests := []string{clitest.Cart}
	for i := range manyReleases {
		manifests = append(manifests, fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: canary-%04d, namespace: many, uid: uid-%d, generation: 1}
spec: {provider: kubernetes, targetRef: {apiVersion: apps/v1, kind: Deployment, name: canary-%04d}, service: {port: 80}, analysis: {interval: 30s, threshold: 2, iterations: 2}}
status: {phase: Failed, canaryWeight: 0, failedChecks: 0, iterations: 0, lastAppliedSpec: x, lastPromotedSpec: x, lastTransitionTime: "1999-12-31T23:59:00Z"}
`, i, i, i))
	}
	w := clitest.NewFakeCluster(t, strings.Join(manifests, "\n---\n"))
	server := httptest.NewUnstartedServer(nil)
	handler, err := dashboard.New(t.Context(), dashboard.Options{Session: w.Session, Selections: []cluster.Selection{{}}, Hosts: []string{server.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = handler
	server.Start()
	t.Cleanup(func() { handler.Close(); server.Close() })

	page.Open(server.URL + handler.Link())
	page.WaitForText(fmt.Sprintf("Needs you (%d)", manyReleases)) // their targets do not exist
	page.Press("j", "Enter")
	page.WaitForText("canary-0000.many is")
	page.ClickUntil("a.brand", "document.querySelector('a.row')")
	page.WaitForText("canary-0000")
	rows := func() int { return browser.Evaluate[int](page, "document.querySelectorAll('#list a.row').length") }
	if n := rows(); n > 60 {
		t.Errorf("%d rows are in the page", n)
	}
	browser.Evaluate[bool](page, "scrollTo(0, document.documentElement.scrollHeight), true")
	page.WaitForText("cart") // the only one that advances, at the end
	if n := rows(); n > 60 {
		t.Errorf("%d rows are in the page after scrolling", n)
	}
	page.Press("/")
	page.WaitUntil("document.activeElement.matches('input[type=search]')")
	browser.Evaluate[bool](page, "document.activeElement.value = '', true") // a browser suppresses the character, the protocol types it
	page.Type("input[type=search]", "canary-0123")
	page.WaitUntil("document.querySelectorAll('#list a.row').length === 1")
	if address := browser.Evaluate[string](page, "location.search"); !strings.Contains(address, "q=canary-0123") {
		t.Errorf("the address %q does not contain the filter", address)
	}
	page.Type("input[type=search]", "x")
	page.WaitForText("No release matches the filters.")
	if errors := page.Errors(); len(errors) > 0 {
		t.Errorf("the console of the page contains %q", errors)
	}
}
