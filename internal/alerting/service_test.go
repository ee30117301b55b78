package alerting_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

var failed = alerting.Message{
	Canary: "cart.shop", Text: `Failed checks "threshold" reached 2`, Severity: release.Error, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	Fields: []alerting.Field{{Name: "Cause", Value: "request-success-rate 94.10 < 99"}},
}

// serviceReceiver records the requests to a service.
type serviceReceiver struct {
	mu       sync.Mutex
	requests []string
}

func (s *serviceReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	switch {
	case strings.HasSuffix(r.URL.Path, "login"):
		_, _ = io.WriteString(w, `{"data":{"authToken":"A","userId":"U"}}`)
	case strings.HasSuffix(r.URL.Path, "/recipients/teams"):
		_, _ = io.WriteString(w, "1")
	case strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetQueueUrl"):
		_, _ = io.WriteString(w, `{"QueueUrl":"https://sqs.example/1/q"}`)
	default:
		_, _ = io.WriteString(w, `{"success":true}`)
	}
}

func newSenders(t *testing.T) *alerting.Senders {
	t.Helper()
	policy := outbound.Policy{AllowLoopback: true}
	client := outbound.New(policy)
	t.Cleanup(client.Close)
	return alerting.NewSenders(client, policy)
}

func newServiceSender(t *testing.T, kind string, o alerting.Options) alerting.Sender {
	t.Helper()
	o.Namespace = "ops"
	sender, err := newSenders(t).New(kind, o)
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

// TestServicesReceiveAlerts sends one alert to each service, with the default content.
func TestServicesReceiveAlerts(t *testing.T) {
	failed := failed
	failed.Fields = append(failed.Fields, alerting.Field{Name: "Metric", Value: "error_rate"})
	cases := map[string]struct {
		recipient, options string
		secret             map[string]string
		// want are parts of the last request.
		want []string
	}{
		"alertmanager":    {"", "targets: [HOST]", nil, []string{`"alertname":"CanaryAlert"`, `"severity":"error"`, `"startsAt":"2026-01-02T03:04:05Z"`}},
		"awssqs":          {"q", "{region: eu-west-1, key: $id, secret: $own, endpointUrl: HERE}", map[string]string{"id": "AKIA", "own": "s3cret"}, []string{"MessageBody", "request-success-rate 94.10"}},
		"googlechat":      {"ops", "webhooks: {ops: HERE/hook}", nil, []string{"POST /hook", "cart.shop: Failed checks"}},
		"grafana":         {"canary", "{apiUrl: HERE/api, apiKey: $key}", map[string]string{"key": "K"}, []string{"POST /api/annotations", `"tags":["canary"]`}},
		"mattermost":      {"chan", "{apiURL: HERE, token: $key}", map[string]string{"key": "K"}, []string{`"channel_id":"chan"`}},
		"newrelic":        {"42", "{apiKey: $key, apiURL: HERE}", map[string]string{"key": "K"}, []string{"/v2/applications/42/deployments.json", `"revision":"cart.shop"`}},
		"opsgenie":        {"team", "{apiUrl: HERE, apiKeys: {team: $key}}", map[string]string{"key": "K"}, []string{`"priority":"P2"`, `"alias":"cart.shop"`, `reached 2","description":"Cause: request-success-rate 94.10`}},
		"pagerduty":       {"SVC", "{token: $key, from: a@b.c, apiURL: HERE}", map[string]string{"key": "K"}, []string{`"urgency":"high"`, `"id":"SVC"`}},
		"pagerdutyv2":     {"ops", "{serviceKeys: {ops: $key}, apiURL: HERE}", map[string]string{"key": "K"}, []string{`"severity":"error"`, `"routing_key":"K"`, `"source":"cart.shop"`}},
		"pushover":        {"U", "{token: $key, apiURL: HERE}", map[string]string{"key": "K"}, []string{"message=cart.shop"}},
		"rocketchat":      {"#ops", "{serverUrl: HERE, email: a@b.c, password: $key}", map[string]string{"key": "K"}, []string{`"channel":"#ops"`}},
		"teams":           {"ops", "recipientUrls: {ops: HERE/recipients/teams}", nil, []string{"MessageCard", "cart.shop: Failed checks"}},
		"teams-workflows": {"ops", "recipientUrls: {ops: HERE/flow}", nil, []string{"AdaptiveCard", "cart.shop: Failed checks"}},
		"telegram":        {"releases", "{token: $key, apiURL: HERE}", map[string]string{"key": "K"}, []string{"POST /botK/sendMessage", `"chat_id":"@releases"`, `error\\_rate`}},
		"webex":           {"room", "{token: $key, apiURL: HERE}", map[string]string{"key": "K"}, []string{`"roomId":"room"`}},
		"webhook": {"", "{url: HERE/alerts}", nil, []string{
			"POST /alerts ", `"name":"cart"`, `"namespace":"shop"`, `"severity":"error"`, `"text":"Failed checks \"threshold\" reached 2"`, `"value":"request-success-rate 94.10`,
		}},
		"github": {"status", "{token: $key, enterpriseBaseURL: HERE}", map[string]string{
			"key": "K", "template": "github: {repoURLPath: acme/cart, revisionPath: main, status: {state: failure, label: 'canary/{{.alert.name}}'}}",
		}, []string{"POST /api/v3/repos/acme/cart/statuses/main", `"context":"canary/cart"`, `"state":"failure"`}},
	}
	for _, kind := range alerting.Types() {
		c, tested := cases[kind]
		switch {
		case !tested && (alerting.RequiresAddress(kind) || kind == "email" || kind == "nats" || kind == "gcppubsub"):
			continue // the chats have their own tests, and these services those of package service
		case !tested:
			t.Errorf("no test for %s", kind)
			continue
		}
		t.Run(kind, func(t *testing.T) {
			receiver := &serviceReceiver{}
			address := serve(t, receiver.ServeHTTP)
			host, _ := url.Parse(address)
			secret := map[string][]byte{"options": []byte(strings.NewReplacer("HERE", address, "HOST", host.Host).Replace(c.options))}
			for key, value := range c.secret {
				secret[key] = []byte(value)
			}
			err := newServiceSender(t, kind, alerting.Options{Recipient: c.recipient, Secret: secret}).Send(t.Context(), failed)
			if err != nil && kind != "awssqs" { // its library compares a checksum that this receiver does not compute
				t.Fatal(err)
			}
			last := receiver.requests[len(receiver.requests)-1]
			for _, want := range c.want {
				if !strings.Contains(last, want) && !strings.Contains(last, strings.ReplaceAll(want, "<", `\u003c`)) {
					t.Errorf("the request does not contain %s: %s", want, last)
				}
			}
		})
	}
}

func TestWebhooksNeedOnlyAnAddress(t *testing.T) {
	receiver := &serviceReceiver{}
	address := serve(t, receiver.ServeHTTP)
	for _, o := range []alerting.Options{
		{URL: address + "/hook?key=1"}, {URL: address + "/hook?key=1", Secret: map[string][]byte{"address": []byte(address)}},
	} {
		if err := newServiceSender(t, "webhook", o).Send(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
	}
	for _, request := range receiver.requests {
		if !strings.HasPrefix(request, `POST /hook?key=1 {"fields":[{`) {
			t.Errorf("got %s", request)
		}
	}
}

func TestServicesReportWhatToCorrect(t *testing.T) {
	for _, c := range []struct {
		kind    string
		secret  map[string]string
		want    string
		nothing string
	}{
		{kind: "telegram", want: "the secret does not contain options: add it, with the options of the service telegram"},
		{kind: "telegram", secret: map[string]string{"options": "{"}, want: "the key options of the secret: it is not valid YAML"},
		{kind: "telegram", secret: map[string]string{"options": "token: $missing"}, want: "the key options of the secret: it refers to $missing"},
		{kind: "telegram", secret: map[string]string{"options": "[1]"}, want: "its options do not have the form of that service"},
		{kind: "telegram", secret: map[string]string{"options": "{}"}, want: "service telegram: its option token is empty: set it"},
		{kind: "telegram", secret: map[string]string{"options": "token: t", "template": "message: '{{'"}, want: "the key template of the secret: "},
		{kind: "telegram", secret: map[string]string{"options": "token: t", "template": "message: '{{range until 999}}{{range until 999}}x{{end}}{{end}}'"}, want: "iterations of loops"},
		{kind: "email", secret: map[string]string{"options": "{host: mail.example, from: 'hunter2-hunter2'}"}, want: "is not an address", nothing: "hunter2"},
		{kind: "github", secret: map[string]string{"options": "token: t"}, want: "github.repoURLPath of the template"},
		{kind: "awssqs", secret: map[string]string{"options": "{region: eu-west-1, queue: q}"}, want: "cannot use the identity of the controller"},
		{kind: "gcppubsub", secret: map[string]string{"options": "{project: shop, topic: releases}"}, want: "cannot use files or the identity of the controller"},
		{kind: "opsgenie", secret: map[string]string{"options": "apiKeys: {other: k}"}, want: `does not contain "general-team"`},
	} {
		secret := map[string][]byte{}
		for key, value := range c.secret {
			secret[key] = []byte(value)
		}
		err := newServiceSender(t, c.kind, alerting.Options{Recipient: "general-team", Secret: secret}).Send(t.Context(), failed)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.nothing != "" && strings.Contains(err.Error(), c.nothing) {
			t.Errorf("%s %v: got %v, want %q", c.kind, c.secret, err, c.want)
		}
		if _, again := chat.RetryAfter(err, time.Now()); again {
			t.Errorf("%s %v would be retried: %v", c.kind, c.secret, err)
		}
	}
	if _, err := newSenders(t).New("pager", alerting.Options{URL: "https://x"}); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("an unknown type: %v", err)
	}
}

// TestFailuresOfServices covers bad credentials, a rate limit, a hostile response and a server that hangs.
func TestFailuresOfServices(t *testing.T) {
	secret := func(address string) map[string][]byte {
		return map[string][]byte{"options": []byte("{token: $token, apiURL: '" + address + "'}"), "token": []byte("hunter2-hunter2")}
	}
	for code, c := range map[int]struct {
		wait  time.Duration
		again bool
	}{401: {0, false}, 429: {7 * time.Second, true}, 503: {7 * time.Second, true}, 404: {0, false}} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, strings.Repeat("see "+r.URL.Path, 10_000))
		})
		err := newServiceSender(t, "telegram", alerting.Options{Secret: secret(address)}).Send(t.Context(), failed)
		if wait, again := chat.RetryAfter(err, time.Now()); err == nil || wait != c.wait || again != c.again || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%d: %v, again %v in %s", code, err, again, wait)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	hanging := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel(errors.New("too slow"))
		<-r.Context().Done()
	})
	err := newServiceSender(t, "telegram", alerting.Options{Secret: secret(hanging)}).Send(ctx, failed)
	if _, again := chat.RetryAfter(err, time.Now()); err == nil || !again || !strings.Contains(err.Error(), "too slow") {
		t.Errorf("a server that hangs: %v, again %v", err, again)
	}
}

func TestEveryAlertProviderTypeOfTheCRDIsServed(t *testing.T) {
	files, err := crd.Files(flaggerv1.GroupName)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(files["flagger.app_alertproviders.yaml"], &definition); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, value := range definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["type"].Enum {
		want = append(want, strings.Trim(string(value.Raw), `"`))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, alerting.Types()); diff != "" || len(want) == 0 {
		t.Errorf("types (-definition +served):\n%s", diff)
	}
}
