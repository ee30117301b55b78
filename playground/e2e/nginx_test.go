//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/ingress"
	"github.com/serin-dev/serin/playground/load"
	"github.com/serin-dev/serin/playground/network"
)

// ingressController contains the parts of ingress-nginx, or the reason why they are missing.
type ingressController struct {
	program, source, debian string
	missing                 error
}

// prepareIngress downloads nginx and builds ingress-nginx, if this machine can download Debian packages.
func prepareIngress(ctx context.Context, b *build.Builder) (c ingressController, err error) {
	c.debian, err = b.NGINX(ctx)
	if errors.Is(err, build.ErrNoPackages) {
		return ingressController{missing: err}, nil
	}
	if err == nil {
		c.program, c.source, err = b.IngressNGINX(ctx)
	}
	return c, err
}

// nginxURL starts ingress-nginx once and returns its URL.
var nginxURL = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	api, err := url.Parse(shared.Config.Host)
	if err != nil {
		return "", err
	}
	files := ingress.Files{Debian: controller.debian, Etc: filepath.Join(shared.Folder, "nginx-etc"), Kubeconfig: shared.Kubeconfig}
	if err := files.Write(controller.source); err != nil {
		return "", err
	}
	if err := shared.Apply(ctx, files.Manifest(network.NodeAddress.String()+":"+api.Port())); err != nil {
		return "", err
	}
	if _, err := shared.Kubectl(ctx, "", "wait", "-n", ingress.Namespace, "--for=condition=Ready", "pod/"+ingress.Pod, "--timeout="+waitTimeout.String()); err != nil {
		logText, _ := shared.Kubectl(ctx, "", "logs", "-n", ingress.Namespace, ingress.Pod)
		return "", fmt.Errorf("%w; the log of ingress-nginx:\n%s", err, logText)
	}
	pod, err := shared.Client.CoreV1().Pods(ingress.Namespace).Get(ctx, ingress.Pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("http://%s:%d", pod.Status.PodIP, ingress.Port), nil
})

// requireNGINX returns the URL of ingress-nginx, or skips the test if it is missing.
func requireNGINX(t *testing.T) string {
	t.Helper()
	if controller.missing != nil {
		t.Skip(controller.missing)
	}
	address, err := nginxURL()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// nginxIngress is an Ingress of the class that ingress-nginx serves.
const nginxIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: nginx
  rules:
  - host: front.test
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}
`

const frontCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: front}
spec:
  provider: nginx
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: front}
  ingressRef: {apiVersion: networking.k8s.io/v1, kind: Ingress, name: shop}
  service: {port: 80, targetPort: http}
  analysis:
    interval: 6s
    threshold: 2
    stepWeights: [20, 50]
    metrics:
    - {name: request-success-rate, interval: 5s, thresholdRange: {min: 99}}
    - {name: request-duration, interval: 5s, thresholdRange: {max: 5000}} # a good version may be slow on a busy machine
`

// TestNGINXSharesRequestsByASecondIngress releases a good and a bad version through ingress-nginx, with the metrics of
// ingress-nginx. It runs alone, like all tests that count shares.
func TestNGINXSharesRequestsByASecondIngress(t *testing.T) {
	address := requireNGINX(t)
	t.Cleanup(func() {
		if t.Failed() {
			logText, err := shared.Kubectl(context.Background(), "", "logs", "-n", ingress.Namespace, ingress.Pod, "--tail=80")
			t.Logf("the log of ingress-nginx: %v\n%s", err, logText)
		}
	})
	// The controller applies a change after about a second, and a script of nginx reads it once a second.
	a := loadedEnvironment{environment: startEnvironment(t, "front", "-drain-delay", "3s")}
	r := a.follow("front")
	a.apply(deployment(t, "front", 2) + nginxIngress + "---" + frontCanary)
	r.waitForPhase("Initialized")
	a.waitForPodsDeleted("app=front")
	a.gateway, a.service = a.startLoadAt(address, "front.test", 80), a.startServiceLoad("front", 80, 10)
	copied := recordHistory[networkingv1.Ingress](t, ingresses, a.namespace)

	promoted := a.follow("front")
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion("front", "v2")
		promoted.waitForEnd("Succeeded")
		a.waitForPodsDeleted("app=front")
	})
	var weights []int
	for _, w := range promoted.windows() {
		weights = append(weights, w.weight)
		a.checkShareBetween(w, "v2", 3*time.Second, 6*time.Second)
	}
	if diff := cmp.Diff([]int{20, 50}, weights); diff != "" {
		t.Errorf("weights of the windows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0", "20", "50", "0"}, ingressWeights(copied, "shop-canary")); diff != "" {
		t.Errorf("weights of the second Ingress (-want +got):\n%s", diff)
	}

	failed := a.follow("front")
	a.checkNoRequestLostDuring("v3", func() {
		a.deployVersion("front", "v3", "ERROR_PERCENT", "20")
		failed.waitForEnd("Failed")
		a.waitForPodsDeleted("app=front")
	})
	failed.waitForEvent("Canary failed! Scaling down front.front")
	if messages := strings.Join(failed.eventMessages(), "\n"); !strings.Contains(messages, "Halt front.front advancement success rate") {
		t.Errorf("no event reports that too many requests failed:\n%s", messages)
	}
	after := waitForRequests(t, a.gateway, 40)
	if answered := after.ByVersion["v2"].Requests; answered != after.Requests {
		t.Errorf("after the rollback v2 answered %d of %d requests: %s", answered, after.Requests, after)
	}
}

// ingressWeights returns the different canary weights of an Ingress, in order.
func ingressWeights(all *history[networkingv1.Ingress], name string) []string {
	var weights []string
	states, _ := all.statesFrom(0)
	for _, state := range states {
		weight := state.object.Annotations["nginx.ingress.kubernetes.io/canary-weight"]
		if state.name == name && (len(weights) == 0 || weights[len(weights)-1] != weight) {
			weights = append(weights, weight)
		}
	}
	return weights
}

// TestNGINXSendsMatchingRequestsToTheCanary matches a header and a cookie.
func TestNGINXSendsMatchingRequestsToTheCanary(t *testing.T) {
	address := requireNGINX(t)
	t.Parallel()
	s := startEnvironment(t, "insiders", "-drain-delay", "3s")
	r := s.follow("front")
	const host = "insiders.test"
	s.apply(deployment(t, "front", 1) + replaceTexts(t, nginxIngress, "front.test", host) + "---" + replaceTexts(t, frontCanary,
		"stepWeights: [20, 50]", "iterations: 3\n    match: [{headers: {x-user: {prefix: inside}}}, {headers: {cookie: {exact: beta}}}]"))
	r.waitForPhase("Initialized")
	insiders := map[string]*load.Load{
		"header": s.startLoadAt(address, host, 15, withHeader("X-User", "insider")),
		"cookie": s.startLoadAt(address, host, 15, withHeader("Cookie", "theme=dark; beta=always")),
	}
	others := map[string]*load.Load{
		"no header":    s.startLoadAt(address, host, 15),
		"other header": s.startLoadAt(address, host, 5, withHeader("X-User", "outsider")),
		"other cookie": s.startLoadAt(address, host, 5, withHeader("Cookie", "beta=never")),
	}

	r = s.follow("front")
	s.deployVersion("front", "v2")
	for _, l := range insiders {
		waitForRequests(t, l, 1, "v2")
	}
	opened := time.Now() // from now on nginx serves the matches
	r.waitForEnd("Succeeded")
	windows := r.windows()
	if len(windows) != 3 {
		t.Fatalf("windows are %+v, want three iterations", windows)
	}
	over := windows[2].start.Add(time.Second) // the primary does not change before the end of the last window
	for who, l := range insiders {
		if counts := l.Between(opened, over); counts.Requests == 0 || counts.ByVersion["v2"].Requests != counts.Requests {
			t.Errorf("of the insiders by %s not all reached the canary: %s", who, counts)
		}
	}
	for who, l := range others {
		if counts := l.Between(time.Time{}, over); counts.ByVersion["v1"].Requests != counts.Requests {
			t.Errorf("of the others (%s) some reached the canary: %s", who, counts)
		}
		waitForRequests(t, l, 1, "v2") // served by the primary now
		if counts := l.Counts(); counts.Failed() != 0 {
			t.Errorf("requests of the others (%s) failed: %s", who, counts)
		}
	}
	for who, l := range insiders {
		if counts := l.Counts(); counts.Failed() != 0 {
			t.Errorf("requests of the insiders by %s failed: %s", who, counts)
		}
	}
}
