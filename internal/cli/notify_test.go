package cli

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// notifyObjects are an AlertProvider for each outcome, and the configuration of notifications. HERE is the address of the
// receiver.
const notifyObjects = `
apiVersion: v1
kind: Secret
metadata: {name: access, namespace: shop}
data: {token: aHVudGVyMi1odW50ZXIy, options: OPTIONS}
---
apiVersion: flagger.app/v1beta1
kind: AlertProvider
metadata: {name: good, namespace: shop}
spec: {type: webhook, address: HERE/good}
---
apiVersion: flagger.app/v1beta1
kind: AlertProvider
metadata: {name: chat, namespace: shop}
spec: {type: slack, channel: ops, address: HERE/good}
---
apiVersion: flagger.app/v1beta1
kind: AlertProvider
metadata: {name: denied, namespace: shop}
spec: {type: webhook, channel: ops, address: HERE/denied}
---
apiVersion: flagger.app/v1beta1
kind: AlertProvider
metadata: {name: incomplete, namespace: shop}
spec: {type: telegram, secretRef: {name: access}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argo-rollouts-notification-configmap, namespace: argo-rollouts}
data:
  service.webhook.hook: "{url: HERE/good}"
  service.webhook.denied: "url: HERE/denied?key=$token"
  service.webhook.broken: "{"
  trigger.on-rollout-completed: "- send: [done]"
  trigger.on-degraded: "- {when: 'false', send: [done]}"
  trigger.on-nothing: "[]"
  template.done: "message: '{{.rollout.metadata.name}}: {{.event.message}} {{.secrets.token}}'"
---
apiVersion: v1
kind: Secret
metadata: {name: argo-rollouts-notification-secret, namespace: argo-rollouts}
data: {token: aHVudGVyMi1odW50ZXIy}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart, namespace: shop, annotations: {notifications.argoproj.io/subscribe.on-rollout-completed.hook: ""}}
spec: {replicas: 1, selector: {matchLabels: {app: cart}}, template: {metadata: {labels: {app: cart}}, spec: {containers: [{name: cart, image: "cart:v1"}]}}, strategy: {canary: {}}}
---
apiVersion: argoproj.io/v1alpha1
kind: AnalysisRun
metadata: {name: smoke, namespace: shop, annotations: {notifications.argoproj.io/subscribe.on-degraded.hook: ""}}
spec: {metrics: [{name: m, provider: {web: {url: "http://x"}}}]}
`

// TestNotifyTest sends real requests to a receiver. Its output contains no credentials.
func TestNotifyTest(t *testing.T) {
	var mu sync.Mutex
	var received []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		received = append(received, r.URL.Path+" "+string(body))
		if r.URL.Path == "/denied" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "secret words")
		}
	}))
	t.Cleanup(server.Close)
	manifests := strings.NewReplacer("HERE", server.URL, "OPTIONS", "dG9rZW46ICRtaXNzaW5n").Replace(strings.TrimPrefix(notifyObjects, "\n"))
	w := clitest.NewFakeCluster(t, manifests)
	connect := func(selected *connection, _ controllerFlags) (*cluster.Session, string, error) {
		return w.Session, cmp.Or(selected.overrides.Context.Namespace, "shop"), nil
	}
	for _, c := range []struct {
		args string
		code int
		// want is in the output or the error, received in the last request; without it, there is none.
		want, received string
	}{
		{"alertprovider/good --severity error", ExitDone, "✓ webhook: accepted", `/good {"fields":[{"name":"Severity","value":"error"}],"name":"good","namespace":"shop","severity":"error"`},
		{"alertprovider/chat", ExitDone, "✓ slack:ops: accepted", `"channel":"ops"`},
		{"alertprovider/denied", ExitCheck, "✗ webhook:ops: the service answered 401 Unauthorized", "/denied "},
		{"alertprovider/incomplete", ExitCheck, "✗ telegram: the key options of the secret: it refers to $missing", ""},
		{"alertprovider/none", ExitNotFound, "there is no AlertProvider none in namespace shop: list all with: kubectl get alertproviders -n shop", ""},
		{"alertprovider/good --severity fatal", ExitUsage, `--severity "fatal" is invalid: use info, warn or error`, ""},
		{"alertprovider/good --dry-run", ExitUsage, "an AlertProvider has one recipient", ""},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-rollout-completed", ExitDone, "✓ hook: accepted\n    cart: This is a test message. [redacted]", "/good cart: This is a test message. hunter2-hunter2"},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-rollout-completed --dry-run", ExitDone, "hook: not sent (dry run)\n    cart: This is a test message. [redacted]", ""},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-rollout-completed --to denied:x", ExitCheck, "✗ denied:x: the service answered 401 Unauthorized", "/denied "},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-rollout-completed --to pager", ExitCheck, `✗ pager: no service "pager" is configured`, ""},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-rollout-completed --to broken", ExitCheck, `✗ broken: key "service.webhook.broken": it is not valid YAML`, ""},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-degraded", ExitUsage, "has no subscription to the trigger on-degraded", ""},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-nothing --to hook", ExitUsage, "the trigger on-nothing has no conditions", ""},
		{"rollout/cart --controller-namespace argo-rollouts --trigger on-typo", ExitUsage, `no trigger "on-typo" is configured: add the key trigger.on-typo, or use one of: on-degraded, on-nothing, on-rollout-completed`, ""},
		{"rollout/cart --trigger on-degraded", ExitUsage, "name it with --controller-namespace", ""},
		{"rollout/cart --trigger on-degraded --controller-namespace shop", ExitUsage, "does not exist in namespace shop", ""},
		{"rollout/cart", ExitUsage, "--trigger is missing", ""},
		{"rollout/none --trigger on-degraded", ExitNotFound, "there is no Rollout none", ""},
		{"analysisrun/smoke --controller-namespace argo-rollouts --trigger on-degraded", ExitDone, "✓ hook: accepted", "/good smoke: "},
		{"canary/cart --trigger on-degraded", ExitUsage, "through its AlertProviders", ""},
		{"cart --trigger on-degraded", ExitUsage, "is not an object with messages", ""},
	} {
		received = nil
		root := newRoot("serin", connect)
		var out, notes bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&notes)
		code := Run(t.Context(), root, append([]string{"notify", "test"}, strings.Fields(c.args)...), &notes)
		text := out.String() + notes.String()
		if code != c.code || !strings.Contains(text, c.want) || strings.Contains(text, "hunter2") || strings.Contains(text, "secret words") {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", c.args, code, c.code, c.want, text)
		}
		if last := strings.Join(received, "\n"); c.received == "" && last != "" || !strings.Contains(last, c.received) {
			t.Errorf("%s: received %q, want %q", c.args, last, c.received)
		}
	}
}
