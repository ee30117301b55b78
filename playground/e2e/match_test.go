//go:build linux

package e2e_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/playground/load"
)

// replaceIstioGateway returns the texts to replace Istio's gateway in the examples by the one that runs here.
func replaceIstioGateway(host string) []string {
	return []string{
		"provider: istio", "provider: gatewayapi:v1",
		"gateways: [shop/public], hosts: [" + host + "]", "hosts: [" + host + "], gatewayRefs: [{name: gateway, namespace: playground}]",
	}
}

func withHeader(name, value string) func(*load.Options) {
	return func(o *load.Options) { o.Header = http.Header{name: {value}} }
}

func TestOnlyMatchingRequestsReachTheCanaryUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "ab")
	s.apply(deployment(t, "web", 1))
	r := s.follow("web")
	s.apply(readExample(t, "canary-ab", append(replaceIstioGateway("web.example.com"), "interval: 30s", "interval: 1s", "interval: 1m", "interval: 5s")...))
	r.waitForPhase("Initialized")
	const host = "web.example.com"
	insiders := map[string]*load.Load{
		"header": s.startLoad(host, 15, withHeader("X-User", "insider")),
		"cookie": s.startLoad(host, 15, withHeader("Cookie", "theme=dark;canary=always;lang=en")),
	}
	others := map[string]*load.Load{
		"no header":    s.startLoad(host, 15),
		"other header": s.startLoad(host, 5, withHeader("X-User", "outsider")),
		"other cookie": s.startLoad(host, 5, withHeader("Cookie", "canary=never")),
	}

	r = s.follow("web")
	s.deployVersion("web", "v2")
	for _, l := range insiders {
		waitForRequests(t, l, 1, "v2")
	}
	opened := time.Now() // from now on the gateway serves the matches
	r.waitForEnd("Succeeded")
	windows := r.windows()
	if len(windows) != 10 || windows[9].iterations != 10 {
		t.Fatalf("windows are %+v, want ten iterations", windows)
	}
	over := windows[9].start.Add(time.Second) // the primary does not change before the end of the last window
	for who, l := range insiders {
		if counts := l.Between(opened, over); counts.ByVersion["v2"].Requests != counts.Requests {
			t.Errorf("of the insiders by %s not all reached the canary: %s", who, counts)
		}
	}
	for who, l := range others {
		if counts := l.Between(time.Time{}, over); counts.ByVersion["v1"].Requests != counts.Requests {
			t.Errorf("of the others (%s) some reached the canary: %s", who, counts)
		}
		waitForRequests(t, l, 1, "v2") // served by the primary now
	}

	r = s.follow("web")
	s.deployVersion("web", "v3", "ERROR_PERCENT", "50")
	r.waitForEnd("Failed")
	if !strings.Contains(strings.Join(r.eventMessages(), "\n"), "Rolling back web.ab failed checks threshold reached 2") {
		t.Errorf("two failed checks had to roll back:\n%s", strings.Join(r.eventMessages(), "\n"))
	}
	for who, l := range others {
		if counts := l.Counts(); counts.Failed() != 0 || counts.ByVersion["v3"].Requests != 0 {
			t.Errorf("the others (%s) saw a bad version: %s", who, counts)
		}
	}
	for who, l := range insiders {
		if counts := l.Counts(); counts.Failed() != counts.ByVersion["v3"].Errors || counts.ByVersion["v3"].Requests == 0 {
			t.Errorf("the insiders by %s: %s, want failures of v3 only", who, counts)
		}
	}
}

const stickyCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: shop}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  service: {port: 8080, hosts: [shop.test], gatewayRefs: [{name: gateway, namespace: playground}]}
  analysis:
    interval: 3s
    threshold: 2
    stepWeights: [30, 60]
    sessionAffinity: {cookieName: shop-version, maxAge: 3600}
`

// TestClientsOfTheCanaryStayThereUntilTheCookieIsRemoved follows one client through a release. The gateway here implements
// the filters of rules, but not those of backends, which set the cookie; so the client reads the cookie from the route.
func TestClientsOfTheCanaryStayThereUntilTheCookieIsRemoved(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "sticky")
	s.apply(deployment(t, "shop", 1))
	r := s.follow("shop")
	s.apply(stickyCanary)
	r.waitForPhase("Initialized")
	all := s.startLoad("shop.test", 40)
	waitForRequests(t, all, 1, "v1")

	r = s.follow("shop")
	s.deployVersion("shop", "v2")
	cookie := ""
	r.waitFor("has a cookie", func(c canary) error {
		if cookie = c.Status.Cookie; cookie == "" {
			return errors.New("none yet")
		}
		return nil
	})
	if !strings.HasPrefix(cookie, "shop-version=") {
		t.Errorf("the cookie is %q, want one called shop-version", cookie)
	}
	route := convert[httpRoute](t, s.get(httpRoutes, "shop"))
	weighted := route.Spec.Rules[len(route.Spec.Rules)-1]
	want := []backend{
		{Name: "shop-primary", Weight: 70},
		{Name: "shop-canary", Weight: 30, Filters: []filter{setCookie(cookie + "; Max-Age=3600")}},
	}
	if diff := cmp.Diff(want, weighted.BackendRefs); diff != "" {
		t.Errorf("backends of the weighted rule (-want +got):\n%s", diff)
	}

	back := s.startLoad("shop.test", 20, withHeader("Cookie", "theme=dark; "+cookie))
	waitForRequests(t, back, 1, "v2")
	since := time.Now()
	end := r.waitForEnd("Succeeded")
	waitForRequests(t, all, 20, "v2")
	windows := r.windows()
	over := windows[len(windows)-1].start.Add(3 * time.Second)
	if counts := back.Between(since, over); counts.Requests == 0 || counts.ByVersion["v2"].Requests != counts.Requests {
		t.Errorf("with the cookie of the canary not all requests reached it: %s", counts)
	}
	if counts := all.Between(since, over); counts.ByVersion["v1"].Requests == 0 || counts.ByVersion["v2"].Requests == 0 {
		t.Errorf("without a cookie all requests reached one version: %s", counts)
	}
	for _, l := range []*load.Load{all, back} {
		if counts := l.Counts(); counts.Failed() != 0 {
			t.Errorf("requests failed: %s", counts)
		}
	}

	if end.Status.PreviousCookie != cookie || end.Status.Cookie != "" {
		t.Errorf("after the release the cookie is %q and the previous one %q, want none and %q", end.Status.Cookie, end.Status.PreviousCookie, cookie)
	}
	header := ask(t, "shop.test", "Cookie", cookie)
	if set := header.Get("Set-Cookie"); !strings.HasPrefix(set, cookie+"; Max-Age=-1") {
		t.Errorf("a client with the cookie of the release receives Set-Cookie %q, want its removal", set)
	}
	if set := ask(t, "shop.test").Get("Set-Cookie"); set != "" {
		t.Errorf("a client without a cookie receives Set-Cookie %q, want none", set)
	}
}

// httpRoute contains the fields of an HTTPRoute that the tests use.
type httpRoute struct {
	Spec struct {
		Rules []struct {
			BackendRefs []backend `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
}

type backend struct {
	Name    string   `json:"name"`
	Weight  int      `json:"weight"`
	Filters []filter `json:"filters,omitempty"`
}

type filter struct {
	Type                   string         `json:"type"`
	ResponseHeaderModifier headerModifier `json:"responseHeaderModifier"`
}

type headerModifier struct {
	Add []headerValue `json:"add"`
}

type headerValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func setCookie(value string) filter {
	return filter{Type: "ResponseHeaderModifier", ResponseHeaderModifier: headerModifier{Add: []headerValue{{"Set-Cookie", value}}}}
}

// ask sends one request through the gateway, with headers as pairs of name and value, and returns the header of the answer.
func ask(t *testing.T, host string, headers ...string) http.Header {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shared.GatewayURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answered %s (%v)", host, response.Status, err)
	}
	return response.Header
}
