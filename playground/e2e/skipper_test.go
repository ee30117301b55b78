//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/network"
)

const (
	// skipperImage is the image of Skipper.
	skipperImage = "serin.dev/skipper"
	skipperPort  = "80"
)

// skipperPod is Skipper, with the metrics that Serin reads. It has the permissions of the administrator, whose token is in a folder
// with the certificate of the authority.
const skipperPod = `
apiVersion: v1
kind: Namespace
metadata: {name: skipper}
---
apiVersion: v1
kind: Pod
metadata:
  name: skipper
  namespace: skipper
  annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9911"}
spec:
  containers:
  - name: skipper
    image: %[1]s
    args:
    - -kubernetes
    - -kubernetes-url=%[2]s
    - -kubernetes-token-file=/credentials/token
    - -kubernetes-ingress-class=skipper
    - -kubernetes-path-mode=path-prefix
    - -address=:%[3]s
    - -metrics-flavour=prometheus
    - -route-response-metrics
    - -serve-route-metrics
    - -wait-first-route-load
    - -access-log-disabled
    env:
    - {name: SSL_CERT_FILE, value: /credentials/ca.crt}
    readinessProbe: {httpGet: {path: /kube-system/healthz, port: %[3]s}, periodSeconds: 1}
    volumeMounts:
    - {name: credentials, mountPath: /credentials, readOnly: true}
  volumes:
  - {name: credentials, hostPath: {path: %[4]s}}
`

// skipperURL starts Skipper once and returns its URL.
var skipperURL = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	credentials := filepath.Join(shared.Folder, "skipper")
	if err := os.MkdirAll(credentials, 0o700); err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{"token": []byte(shared.Config.BearerToken), "ca.crt": shared.Config.CAData} {
		if err := os.WriteFile(filepath.Join(credentials, name), content, 0o600); err != nil {
			return "", err
		}
	}
	api, err := url.Parse(shared.Config.Host)
	if err != nil {
		return "", err
	}
	server := "https://" + net.JoinHostPort(network.NodeAddress.String(), api.Port())
	if err := shared.Apply(ctx, fmt.Sprintf(skipperPod, skipperImage, server, skipperPort, credentials)); err != nil {
		return "", err
	}
	if _, err := shared.Kubectl(ctx, "", "wait", "-n", "skipper", "--for=condition=Ready", "pod/skipper", "--timeout="+waitTimeout.String()); err != nil {
		logText, _ := shared.Kubectl(ctx, "", "logs", "-n", "skipper", "skipper")
		return "", fmt.Errorf("%w; the log of Skipper:\n%s", err, logText)
	}
	pod, err := shared.Client.CoreV1().Pods("skipper").Get(ctx, "skipper", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return "http://" + net.JoinHostPort(pod.Status.PodIP, skipperPort), nil
})

// startSkipper returns the URL of Skipper.
func startSkipper(t *testing.T) string {
	t.Helper()
	address, err := skipperURL()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
