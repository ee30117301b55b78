//go:build linux

package e2e_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pricing is a Deployment with a message from ConfigMap prices, a key from Secret keys, and a ConfigMap for which the user
// has disabled config tracking.
const pricing = `
apiVersion: v1
kind: ConfigMap
metadata: {name: prices}
data: {list: summer}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {key: "1234"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: switches, annotations: {flagger.app/config-tracking: disabled}}
data: {colour: green}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: pricing}
spec:
  replicas: 1
  selector: {matchLabels: {app: pricing}}
  template:
    metadata: {labels: {app: pricing}}
    spec:
      containers:
      - name: app
        image: serin.dev/demo:v1
        ports: [{name: http, containerPort: 8080}]
        env:
        - {name: MESSAGE_FILE, value: /etc/prices/list}
        - {name: KEY, valueFrom: {secretKeyRef: {name: keys, key: key}}}
        - {name: COLOUR, valueFrom: {configMapKeyRef: {name: switches, key: colour}}}
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
        volumeMounts: [{name: prices, mountPath: /etc/prices}]
      volumes:
      - {name: prices, configMap: {name: prices}}
---
`

func TestChangedConfigurationAloneIsARelease(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "config")
	s.apply(pricing)
	r := s.follow("pricing")
	s.apply(readExample(t, "canary-config", "gatewayRefs: [{name: public, namespace: shop}]", "gatewayRefs: [{name: gateway, namespace: playground}]",
		"interval: 30s", "interval: 2s"))
	r.waitForPhase("Initialized")
	const host = "pricing.example.com"
	l := s.startLoad(host, 20)
	waitForRequests(t, l, 1, "v1")

	// The primary has copies, except for the object that is not tracked.
	template := toJSON(t, s.get(deployments, "pricing-primary").Object["spec"])
	for _, name := range []string{"prices-primary", "keys-primary", "switches"} {
		if !strings.Contains(template, `"name":"`+name+`"`) {
			t.Errorf("the primary does not refer to %s: %s", name, template)
		}
	}
	if data := convert[corev1.ConfigMap](t, s.get(configMaps, "prices-primary")).Data; data["list"] != "summer" {
		t.Errorf("prices-primary contains %v", data)
	}
	if data := convert[corev1.Secret](t, s.get(secrets, "keys-primary")).Data; string(data["key"]) != "1234" {
		t.Errorf("keys-primary contains %s", data)
	}
	_, err := shared.Client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "switches-primary", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap that is not tracked has a copy (%v)", err)
	}

	r = s.follow("pricing")
	s.patch(configMaps, "switches", `{"data":{"colour":"blue"}}`) // starts no release
	s.patch(configMaps, "prices", `{"data":{"list":"winter"}}`)   // starts a release
	r.waitFor("has its last weight", func(c canary) error {
		if c.Status.CanaryWeight != 50 {
			return errors.New("not yet")
		}
		return nil
	})
	if data := convert[corev1.ConfigMap](t, s.get(configMaps, "prices-primary")).Data; data["list"] != "summer" {
		t.Errorf("the primary's prices changed before the promotion: %v", data)
	}
	seen := map[string]bool{}
	for range 1000 { // both versions of the configuration answer
		if len(seen) == 2 {
			break
		}
		seen[ask(t, host).Get("X-Message")] = true
	}
	if !seen["summer"] || !seen["winter"] {
		t.Errorf("at weight 50 clients receive %v, want summer and winter", seen)
	}
	end := r.waitForEnd("Succeeded")
	s.waitForPodsDeleted("app=pricing")
	if data := convert[corev1.ConfigMap](t, s.get(configMaps, "prices-primary")).Data; data["list"] != "winter" {
		t.Errorf("after the promotion the primary's prices are %v", data)
	}
	for range 20 {
		if message := ask(t, host).Get("X-Message"); message != "winter" {
			t.Errorf("after the promotion a client received %q", message)
		}
	}
	for name := range end.Status.TrackedConfigs {
		if strings.Contains(name, "switches") {
			t.Errorf("the object that is not tracked is in the status: %v", end.Status.TrackedConfigs)
		}
	}

	// If a change of switches had started a release, here or above, there would be more than two events.
	s.patch(configMaps, "switches", `{"data":{"colour":"red"}}`)
	next := s.follow("pricing")
	s.patch(secrets, "keys", `{"stringData":{"key":"5678"}}`)
	next.waitForEnd("Succeeded")
	next.waitForEvent("Promotion completed!")
	if releases := s.countEvents("pricing", "New revision detected!"); releases != 2 {
		t.Errorf("%d releases began, want one for prices and one for keys", releases)
	}
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
}
