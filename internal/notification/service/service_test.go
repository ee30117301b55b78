package service_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// recordedRequest is a request to a service, in a form that is easy to compare.
type recordedRequest struct {
	call string
	// header contains the relevant headers: credentials and content type.
	header map[string]string
	body   string
}

// fakeService is a service that records its requests.
type fakeService struct {
	*httptest.Server
	mu       sync.Mutex
	requests []recordedRequest
	answer   http.HandlerFunc
}

func newFakeService(t *testing.T, answer http.HandlerFunc) *fakeService {
	f := &fakeService{answer: answer}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	header := map[string]string{}
	for _, name := range []string{"Authorization", "Content-Type", "X-Auth-Token", "X-User-Id", "X-Api-Key", "From", "Accept", "X-Own"} {
		if value := r.Header.Get(name); value != "" {
			if strings.HasPrefix(value, "Bearer eyJ") {
				value = "Bearer signed" // the signature is different each time
			}
			if scheme, _, signed := strings.Cut(value, " Credential="); signed {
				value = scheme
			}
			header[name] = value
		}
	}
	f.mu.Lock()
	f.requests = append(f.requests, recordedRequest{call: r.Method + " " + r.URL.RequestURI(), header: header, body: normalise(string(body))})
	f.mu.Unlock()
	f.answer(w, r)
}

// normalise returns a JSON document or form with sorted fields.
func normalise(body string) string {
	var document any
	if json.Unmarshal([]byte(body), &document) == nil {
		out, _ := json.Marshal(document)
		return string(out)
	}
	if form, err := url.ParseQuery(body); err == nil && strings.Contains(body, "=") {
		return form.Encode()
	}
	return body
}

func respond(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// content returns the rendered content of a template.
func content(t *testing.T, template string) notification.Content {
	t.Helper()
	config := notification.NewConfig(map[string]string{"template.app-done": template}, nil)
	for _, problem := range config.Problems() {
		t.Fatal(problem)
	}
	out, err := config.Render(t.Context(), []string{"app-done"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newSender(t *testing.T, kind, options string) (service.Sender, error) {
	t.Helper()
	config := notification.NewConfig(map[string]string{"service." + kind + ".own": options}, nil)
	s, err := config.Service("own")
	if err != nil {
		t.Fatal(err)
	}
	policy := outbound.Policy{AllowLoopback: true}
	client := outbound.New(policy)
	t.Cleanup(client.Close)
	return service.New(client, policy, s)
}

type serviceCase struct {
	kind, options, template, recipient string
	answer                             http.HandlerFunc
	want                               []recordedRequest
}

var jsonHeader = map[string]string{"Content-Type": "application/json"}

func jsonHeaderWith(pairs ...string) map[string]string {
	out := map[string]string{"Content-Type": "application/json"}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// serviceCases are the services with their requests and responses. HERE is replaced by the address of the fake.
var serviceCases = map[string]serviceCase{
	"slack": {
		kind: "slack", options: "{token: T, apiURL: HERE/api/, username: bot, icon: ':rocket:'}", recipient: "ops",
		template: `{message: hi, slack: {attachments: '[{"title":"a"}]', blocks: '[]'}}`,
		answer:   respond(200, `{"ok":true,"channel":"C1","ts":"1.2"}`),
		want: []recordedRequest{{
			"POST /api/chat.postMessage",
			map[string]string{"Authorization": "Bearer T", "Content-Type": "application/x-www-form-urlencoded"},
			"attachments=%5B%7B%22title%22%3A%22a%22%7D%5D&channel=ops&icon_emoji=%3Arocket%3A&text=hi&username=bot",
		}},
	},
	"gcppubsub": {
		kind: "gcppubsub", options: "{project: 'example.com:shop', topic: releases, apiURL: HERE, serviceAccountKey: '" + googleKey() + "'}",
		template: `{message: hi, gcppubsub: {attributes: {team: shop}}}`, answer: respond(200, `{"messageIds":["1"]}`),
		want: []recordedRequest{{
			"POST /v1/projects/example.com:shop/topics/releases:publish", jsonHeaderWith("Authorization", "Bearer signed"),
			`{"messages":[{"attributes":{"team":"shop"},"data":"aGk="}]}`,
		}},
	},
	"gcppubsub with a recipient": {
		kind: "gcppubsub", options: "{project: shop, apiURL: HERE, serviceAccountKey: '" + googleKey() + "'}", recipient: "on-call",
		template: `{message: hi}`, answer: respond(200, `{"messageIds":["1"]}`),
		want: []recordedRequest{{"POST /v1/projects/shop/topics/on-call:publish", jsonHeaderWith("Authorization", "Bearer signed"), `{"messages":[{"data":"aGk="}]}`}},
	},
	"webhook with a template": {
		kind: "webhook", options: "{url: HERE/base/, headers: [{name: X-Own, value: v}], basicAuth: {username: u, password: p}}", recipient: "",
		template: `{message: hi, webhook: {own: {method: PUT, path: /to/x, body: '{"a": "b"}'}, other: {path: nowhere}}}`, answer: respond(204, ""),
		want: []recordedRequest{{"PUT /base/to/x", map[string]string{"Authorization": "Basic dTpw", "X-Own": "v"}, `{"a":"b"}`}},
	},
	"webhook": {
		kind: "webhook", options: "{url: 'HERE/base?key=1'}", template: `{message: hi}`, answer: respond(200, "ok"),
		want: []recordedRequest{{"GET /base?key=1", map[string]string{}, "hi"}},
	},
	"teams": {
		kind: "teams", options: "{recipientUrls: {ops: HERE/hook}}", recipient: "ops", answer: respond(200, "1"),
		template: `{message: hi, teams: {title: t, themeColor: '#00ff00', facts: '[{"name":"a","value":"b"}]', sections: '[{"x":1}]', potentialAction: '[{"y":2}]'}}`,
		want: []recordedRequest{{"POST /hook", jsonHeader, `{"@type":"MessageCard","context":"https://schema.org/extensions","potentialAction":[{"y":2}],` +
			`"sections":[{"x":1},{"facts":[{"name":"a","value":"b"}]}],"summary":"","text":"hi","themeColor":"#00ff00","title":"t"}`}},
	},
	"teams with a message of its own": {
		kind: "teams", options: "{recipientUrls: {ops: HERE/hook}}", recipient: "ops", answer: respond(200, "1"), template: `{teams: {template: '{"own": true}'}}`,
		want: []recordedRequest{{"POST /hook", jsonHeader, `{"own":true}`}},
	},
	"teams-workflows": {
		kind: "teams-workflows", options: "{recipientUrls: {ops: HERE/flow}}", recipient: "ops", answer: respond(202, ""),
		template: `{message: hi, teams-workflows: {title: t, facts: '[{"name":"a","value":"b"}]'}}`,
		want: []recordedRequest{{"POST /flow", jsonHeader, `{"attachments":[{"content":{"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","body":[` +
			`{"size":"large","text":"t","type":"TextBlock","weight":"bolder","wrap":true},{"text":"hi","type":"TextBlock","wrap":true},` +
			`{"facts":[{"title":"a","value":"b"}],"type":"FactSet"}],"type":"AdaptiveCard","version":"1.4"},` +
			`"contentType":"application/vnd.microsoft.card.adaptive"}],"type":"message"}`}},
	},
	"mattermost": {
		kind: "mattermost", options: "{apiURL: HERE, token: T}", recipient: "chan", template: `{message: hi, mattermost: {attachments: '[{"a":1}]'}}`, answer: respond(201, "{}"),
		want: []recordedRequest{{"POST /api/v4/posts", jsonHeaderWith("Authorization", "Bearer T"), `{"channel_id":"chan","message":"hi","props":{"attachments":[{"a":1}]}}`}},
	},
	"rocketchat": {
		kind: "rocketchat", options: "{serverUrl: HERE, email: a@b.c, password: p, alias: bot, icon: ':x:'}", recipient: "#ops", template: `{message: hi}`,
		answer: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "login") {
				_, _ = io.WriteString(w, `{"status":"success","data":{"authToken":"A","userId":"U"}}`)
				return
			}
			_, _ = io.WriteString(w, `{"success":true}`)
		},
		want: []recordedRequest{
			{"POST /api/v1/login", jsonHeader, `{"password":"p","user":"a@b.c"}`},
			{"POST /api/v1/chat.postMessage", jsonHeaderWith("X-Auth-Token", "A", "X-User-Id", "U"), `{"alias":"bot","channel":"#ops","emoji":":x:","text":"hi"}`},
		},
	},
	"googlechat": {
		kind: "googlechat", options: "{webhooks: {ops: 'HERE/v1?key=K'}}", recipient: "ops", answer: respond(200, "{}"),
		template: "googlechat: {cardsV2: '[{header: {title: t}}]', threadKey: k}",
		want: []recordedRequest{{
			"POST /v1?key=K&messageReplyOption=REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD&threadKey=k", jsonHeader,
			`{"cardsV2":[{"card":{"header":{"title":"t"}},"cardId":"card-1"}],"text":""}`,
		}},
	},
	"googlechat in text": {
		kind: "googlechat", options: "{webhooks: {ops: 'HERE/v1'}}", recipient: "ops", answer: respond(200, "{}"), template: "message: hi",
		want: []recordedRequest{{"POST /v1", jsonHeader, `{"text":"hi"}`}},
	},
	"webex": {
		kind: "webex", options: "{token: T, apiURL: HERE}", recipient: "a@b.c", template: "message: hi", answer: respond(200, "{}"),
		want: []recordedRequest{{"POST /v1/messages", jsonHeaderWith("Authorization", "Bearer T"), `{"markdown":"hi","toPersonEmail":"a@b.c"}`}},
	},
	"telegram": {
		kind: "telegram", options: "{token: T, apiURL: HERE}", recipient: "-100|7", template: "message: hi", answer: respond(200, `{"ok":true}`),
		want: []recordedRequest{{"POST /botT/sendMessage", jsonHeader, `{"chat_id":"-100","message_thread_id":7,"parse_mode":"Markdown","text":"hi"}`}},
	},
	"pushover": {
		kind: "pushover", options: "{token: T, apiURL: HERE}", recipient: "U", template: "message: hi", answer: respond(200, `{"status":1}`),
		want: []recordedRequest{{"POST /1/messages.json", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, "message=hi&token=T&user=U"}},
	},
	"grafana": {
		kind: "grafana", options: "{apiUrl: HERE/api, apiKey: K}", recipient: "a|b", template: "message: hi", answer: respond(200, "{}"),
		want: []recordedRequest{{"POST /api/annotations", jsonHeaderWith("Authorization", "Bearer K"), `{"isRegion":false,"tags":["a","b"],"text":"hi","time":1777896000000}`}},
	},
	"alertmanager": {
		kind: "alertmanager", options: "{targets: ['127.0.0.1:1', HOST], bearerToken: B}", recipient: "", answer: respond(200, ""),
		template: "alertmanager: {labels: {severity: bad}, annotations: {a: b}, generatorURL: 'https://x'}",
		want: []recordedRequest{{"POST /api/v2/alerts", jsonHeaderWith("Authorization", "Bearer B"), `[{"annotations":{"a":"b"},"generatorURL":"https://x",` +
			`"labels":{"alertname":"app-done","severity":"bad"},"startsAt":"2026-05-04T12:00:00Z"}]`}},
	},
	"opsgenie": {
		kind: "opsgenie", options: "{apiUrl: HERE, apiKeys: {team: K}}", recipient: "team", answer: respond(202, "{}"),
		template: "{message: hi, opsgenie: {description: d, priority: P1, tags: [a], details: {k: v}, visibleTo: [{id: i, type: user}]}}",
		want: []recordedRequest{{"POST /v2/alerts", jsonHeaderWith("Authorization", "GenieKey K"), `{"description":"d","details":{"k":"v"},"message":"hi","priority":"P1",` +
			`"responders":[{"id":"team","type":"team"}],"source":"Serin","tags":["a"],"visibleTo":[{"id":"i","type":"user"}]}`}},
	},
	"pagerduty": {
		kind: "pagerduty", options: "{token: T, from: a@b.c, apiURL: HERE}", recipient: "SVC", answer: respond(201, "{}"),
		template: "pagerduty: {title: t, body: b, urgency: high, priorityId: P}",
		want: []recordedRequest{{
			"POST /incidents", jsonHeaderWith("Authorization", "Token token=T", "From", "a@b.c", "Accept", "application/vnd.pagerduty+json;version=2"),
			`{"incident":{"body":{"details":"b","type":"incident_details"},"priority":{"id":"P","type":"priority_reference"},` +
				`"service":{"id":"SVC","type":"service_reference"},"title":"t","type":"incident","urgency":"high"}}`,
		}},
	},
	"pagerdutyv2": {
		kind: "pagerdutyv2", options: "{serviceKeys: {ops: K}, apiURL: HERE}", recipient: "ops", answer: respond(202, "{}"),
		template: "pagerdutyv2: {summary: s, severity: error, source: src, group: g, url: 'https://x'}",
		want: []recordedRequest{{"POST /v2/enqueue", jsonHeader, `{"client":"Serin","client_url":"https://x","event_action":"trigger",` +
			`"payload":{"group":"g","severity":"error","source":"src","summary":"s"},"routing_key":"K"}`}},
	},
	"awssqs": {
		kind: "awssqs", options: "{region: eu-west-1, queue: releases, account: '123456789012', key: K, secret: S, endpointUrl: HERE}",
		template: `{message: hi, awssqs: {messageAttributes: {team: shop}, messageGroupId: g, messageDeduplicationId: d}}`, answer: answerAsSQS,
		want: []recordedRequest{
			{"POST /", sqsHeader, `{"QueueName":"releases","QueueOwnerAWSAccountId":"123456789012"}`},
			{"POST /", sqsHeader, `{"MessageAttributes":{"team":{"DataType":"String","StringValue":"shop"}},"MessageBody":"hi",` +
				`"MessageDeduplicationId":"d","MessageGroupId":"g","QueueUrl":"https://sqs.example/1/q"}`},
		},
	},
	"awssqs with a recipient": {
		kind: "awssqs", options: "{region: eu-west-1, key: K, secret: S, endpointUrl: HERE}", recipient: "on-call", template: `{message: hi}`, answer: answerAsSQS,
		want: []recordedRequest{
			{"POST /", sqsHeader, `{"QueueName":"on-call"}`}, {"POST /", sqsHeader, `{"MessageBody":"hi","QueueUrl":"https://sqs.example/1/q"}`},
		},
	},
	"github": {
		kind: "github", options: "{appID: 1234567, installationID: '89', privateKey: '" + gitHubKey() + "', enterpriseBaseURL: HERE}",
		template: `{message: "` + strings.Repeat("é", 150) + `", github: {repoURLPath: 'https://github.com/acme/cart.git', revisionPath: 'c0ffee', ` +
			`status: {state: success, label: release/cart, targetURL: 'https://x'}}}`, answer: answerAsGitHub,
		want: []recordedRequest{
			{"POST /api/v3/app/installations/89/access_tokens", gitHubHeader("Bearer signed", false), ""},
			{"POST /api/v3/repos/acme/cart/statuses/c0ffee", gitHubHeader("Bearer T", true), `{"state":"success","context":"release/cart","target_url":"https://x","description":"` + strings.Repeat("é", 139) + `…"}`},
		},
	},
	"github with all calls": {
		kind: "github", options: "{token: T, enterpriseBaseURL: HERE/own/v3}", answer: answerAsGitHub,
		template: `{message: hi, github: {repoURLPath: 'git@github.com:acme/cart.git', revisionPath: c0ffee, status: {state: success}, ` +
			`checkRun: {name: release, status: completed, conclusion: success, details_url: 'https://x', output: {title: t}}, ` +
			`deployment: {state: success, environment: production, environmentURL: 'https://e', logURL: 'https://l', autoMerge: false, requiredContexts: []}, ` +
			`pullRequestComment: {content: released, commentTag: cart}}}`,
		want: []recordedRequest{
			{"POST /own/v3/repos/acme/cart/statuses/c0ffee", gitHubHeader("Bearer T", true), `{"state":"success","context":"","target_url":"","description":"hi"}`},
			{"POST /own/v3/repos/acme/cart/check-runs", gitHubHeader("Bearer T", true), `{"name":"release","head_sha":"c0ffee","status":"completed","conclusion":"success","details_url":"https://x","output":{"title":"t"}}`},
			{"GET /own/v3/repos/acme/cart/deployments?environment=production&per_page=1&ref=c0ffee", gitHubHeader("Bearer T", false), ""},
			{"POST /own/v3/repos/acme/cart/deployments", gitHubHeader("Bearer T", true), `{"auto_merge":false,"description":"hi","environment":"production","ref":"c0ffee","required_contexts":[]}`},
			{"POST /own/v3/repos/acme/cart/deployments/42/statuses", gitHubHeader("Bearer T", true), `{"state":"success","log_url":"https://l","environment_url":"https://e","description":"hi"}`},
			{"GET /own/v3/repos/acme/cart/commits/c0ffee/pulls?per_page=10", gitHubHeader("Bearer T", false), ""},
			{"GET /own/v3/repos/acme/cart/issues/7/comments?per_page=100", gitHubHeader("Bearer T", false), ""},
			{"PATCH /own/v3/repos/acme/cart/issues/comments/5", gitHubHeader("Bearer T", true), `{"body":"<!-- notification: cart -->\nreleased"}`},
		},
	},
	"github, a comment only": {
		kind: "github", options: "{token: T, enterpriseBaseURL: HERE}", recipient: "comment", answer: answerAsGitHub,
		template: `{message: hi, github: {repoURLPath: acme/cart, revisionPath: c0ffee, status: {state: success}, pullRequestComment: {content: released}}}`,
		want: []recordedRequest{
			{"GET /api/v3/repos/acme/cart/commits/c0ffee/pulls?per_page=10", gitHubHeader("Bearer T", false), ""},
			{"POST /api/v3/repos/acme/cart/issues/7/comments", gitHubHeader("Bearer T", true), `{"body":"released"}`},
		},
	},
	"newrelic": {
		kind: "newrelic", options: "{apiKey: K, apiURL: HERE}", recipient: "42", template: "{message: hi, newrelic: {revision: r}}", answer: respond(201, ""),
		want: []recordedRequest{{"POST /v2/applications/42/deployments.json", jsonHeaderWith("X-Api-Key", "K"), `{"deployment":{"description":"hi","revision":"r"}}`}},
	},
}

func (f serviceCase) sender(t *testing.T, at *fakeService) service.Sender {
	t.Helper()
	address, _ := url.Parse(at.URL)
	sender, err := newSender(t, f.kind, strings.NewReplacer("HERE", at.URL, "HOST", address.Host).Replace(f.options))
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

func (f serviceCase) send(t *testing.T, ctx context.Context, at *fakeService) error {
	t.Helper()
	return f.sender(t, at).Send(ctx, service.Message{Content: content(t, f.template), Service: "own", Recipient: f.recipient, Now: now}) //nolint:contextcheck // content renders in the context of the test
}

func TestRequestsOfEachService(t *testing.T) {
	tested := map[string]bool{"email": true, "nats": true} // these have separate tests
	for name, f := range serviceCases {
		tested[f.kind] = true
		t.Run(name, func(t *testing.T) {
			at := newFakeService(t, f.answer)
			if err := f.send(t, t.Context(), at); err != nil {
				t.Fatal(err)
			}
			for i := range f.want {
				f.want[i].body = normalise(f.want[i].body)
			}
			if diff := cmp.Diff(f.want, at.requests, cmp.AllowUnexported(recordedRequest{})); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	for _, kind := range service.Types() {
		if !tested[kind] {
			t.Errorf("no test for %s", kind)
		}
	}
}

// TestFailuresOfEachService checks every failure with every service. The error contains nothing of the response, and a
// redirect to another server is not followed.
func TestFailuresOfEachService(t *testing.T) {
	elsewhere := newFakeService(t, respond(200, `{"ok":true}`))
	failures := map[string]struct {
		answer http.HandlerFunc
		again  bool
		wait   time.Duration
	}{
		"401": {respond(401, "secret words"), false, 0},
		"404": {respond(404, "secret words"), false, 0},
		"429 with a time": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}, true, 7 * time.Second},
		"500":        {respond(500, "secret words"), true, 0},
		"503, much":  {respond(503, strings.Repeat("secret words ", 1<<16)), true, 0},
		"broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, 0},
		"a redirect": {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP, false, 0},
		"half of it": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"ok":`)
		}, true, 0},
		"no redirect": {http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, false, 0},
	}
	for name, f := range serviceCases {
		for failure, how := range failures {
			t.Run(name+"/"+failure, func(t *testing.T) {
				err := f.send(t, t.Context(), newFakeService(t, how.answer))
				if err == nil {
					t.Fatal("no error")
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("the error contains the response: %v", err)
				}
				if wait, again := chat.RetryAfter(err, now); again != how.again || wait != how.wait {
					t.Errorf("%v: again %v in %s, want %v in %s", err, again, wait, how.again, how.wait)
				}
			})
		}
	}
	if len(elsewhere.requests) > 0 {
		t.Errorf("the redirect was followed: %v", elsewhere.requests)
	}
}

// TestSlowServiceEndsWithTheContext checks every service.
func TestSlowServiceEndsWithTheContext(t *testing.T) {
	for name, f := range serviceCases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			at := newFakeService(t, func(_ http.ResponseWriter, r *http.Request) {
				cancel()
				<-r.Context().Done()
			})
			err := f.send(t, ctx, at)
			if _, again := chat.RetryAfter(err, now); err == nil || !again {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestErrorsInTheBodyOfSuccessfulResponses covers services that report errors with the status 200.
func TestErrorsInTheBodyOfSuccessfulResponses(t *testing.T) {
	for name, tt := range map[string]struct{ form, answer, want string }{
		"slack":          {"slack", `{"ok":false,"error":"channel_not_found"}`, "channel_not_found"},
		"slack, odd":     {"slack", `{"ok":false,"error":"see https://x?y"}`, "check recipient"},
		"slack, no JSON": {"slack", `hello`, "check apiURL"},
		"teams":          {"teams", `Summary or Text is required.`, "check recipient"},
		"rocketchat":     {"rocketchat", `{"status":"error"}`, "login"},
	} {
		t.Run(name, func(t *testing.T) {
			err := serviceCases[tt.form].send(t, t.Context(), newFakeService(t, respond(200, tt.answer)))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "https") || strings.Contains(err.Error(), "Summary") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, tt := range []struct{ kind, options, want string }{
		{"pigeon", "{}", `service type "pigeon" is not supported: use one of alertmanager,`},
		{"slack", "{}", "option token is empty"},
		{"slack", "{token: [Secret]}", "its options do not have the form"},
		{"webhook", "{}", "option url is empty"},
		{"alertmanager", "{}", "option targets is empty"},
		{"email", "{host: x}", "option from is empty"},
		{"rocketchat", "{serverUrl: x}", "option email is empty"},
		{"awssqs", "{region: 'evil.example/'}", "option region is not the name of a region"},
		{"awssqs", "{region: eu-west-1, account: '12'}", "option account is not the number of an account"},
		{"awssqs", "{region: eu-west-1, key: K}", "key and secret belong together"},
		{"awssqs", "{region: eu-west-1, endpointUrl: 'https://evil.example'}", "endpointUrl needs key and secret"},
		{"awssqs", "{region: eu-west-1, key: K, secret: S, endpointUrl: evil}", "option endpointUrl: the address must begin with"},
		{"github", "{}", "option appID is empty"},
		{"github", "{appID: 1, installationID: 2, privateKey: Secret}", "option privateKey is not the key of an app"},
		{"github", "{token: T, enterpriseBaseURL: evil}", "option enterpriseBaseURL: the address must begin with"},
		{"gcppubsub", "{}", "option project is empty"},
		{"gcppubsub", "{project: ../shop}", "option project is not the name of a project"},
		{"gcppubsub", "{project: shop, keyFile: /x, serviceAccountKey: Secret}", "exclude each other"},
		{"gcppubsub", "{project: shop, serviceAccountKey: Secret}", "serviceAccountKey is not the JSON key of a service account"},
		{"gcppubsub", "{project: shop, apiURL: 'https://evil.example'}", "apiURL needs serviceAccountKey or keyFile"},
	} {
		if _, err := newSender(t, tt.kind, tt.options); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s %s: %v, want %q", tt.kind, tt.options, err, tt.want)
		}
	}
	for name, tt := range map[string]struct{ form, template, recipient, want string }{
		"nobody":                 {"teams", "message: x", "nobody", `option recipientUrls does not contain "nobody"`},
		"attachments":            {"slack", "slack: {attachments: '{'}", "ops", "slack.attachments of the template is not a JSON list"},
		"a part of another form": {"slack", "slack: [x]", "ops", "does not have the form"},
		"no labels":              {"alertmanager", "message: x", "", "alertmanager.labels"},
		"no part":                {"pagerdutyv2", "message: x", "ops", "no part pagerdutyv2"},
		"cards":                  {"googlechat", "googlechat: {cards: '{a: b}'}", "ops", "not a YAML list"},
		"a queue of another":     {"awssqs", "message: x", "https://evil.example/q", "not the name of a queue"},
		"no repository":          {"github", "message: x", "", "github.repoURLPath of the template is"},
		"a repository's path":    {"github", "github: {repoURLPath: 'https://github.com/acme/..', revisionPath: a, status: {}}", "", "github.repoURLPath of the template is"},
		"a revision's path":      {"github", "github: {repoURLPath: a/b, revisionPath: '../../../x', status: {}}", "", "github.revisionPath of the template is"},
		"nothing for GitHub":     {"github", "github: {repoURLPath: a/b, revisionPath: a, status: {}}", "deployment", "correct the subscription to status, checkRun, deployment, comment or nothing"},
		"a topic of another":     {"gcppubsub", "message: x", "../../other/topics/x", "not the name of a topic"},
		"a thread":               {"telegram", "message: x", "-1|x", "is not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			f := serviceCases[tt.form]
			f.template, f.recipient = tt.template, tt.recipient
			at := newFakeService(t, f.answer)
			err := f.send(t, t.Context(), at)
			if _, again := chat.RetryAfter(err, now); err == nil || again || !strings.Contains(err.Error(), tt.want) || len(at.requests) > 0 {
				t.Errorf("%v, want %q; requests %v", err, tt.want, at.requests)
			}
		})
	}
}

// TestSlackPostsAGroupInOneThread checks that the first message begins a thread, and that later ones follow or replace it.
func TestSlackPostsAGroupInOneThread(t *testing.T) {
	at := newFakeService(t, respond(200, `{"ok":true,"channel":"C1","ts":"1.2"}`))
	sender := serviceCases["slack"].sender(t, at)
	for _, policy := range []string{"Post", "Post", "Update", "PostAndUpdate"} {
		m := service.Message{Content: content(t, "{message: hi, slack: {groupingKey: cart, notifyBroadcast: true, deliveryPolicy: "+policy+"}}"), Recipient: "ops"}
		if err := sender.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, a := range at.requests {
		form, _ := url.ParseQuery(a.body)
		got = append(got, strings.Join([]string{strings.TrimPrefix(a.call, "POST /api/"), form.Get("channel"), form.Get("thread_ts"), form.Get("reply_broadcast"), form.Get("ts")}, " "))
	}
	want := []string{"chat.postMessage ops   ", "chat.postMessage ops 1.2 true ", "chat.update C1   1.2", "chat.postMessage ops 1.2 true ", "chat.update C1   1.2"}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}

// TestPolicyAppliesToServices checks that refused addresses are not called by any protocol.
func TestPolicyAppliesToServices(t *testing.T) {
	at := newFakeService(t, respond(200, "1"))
	address, _ := url.Parse(at.URL)
	client := outbound.New(outbound.Policy{})
	t.Cleanup(client.Close)
	for kind, options := range map[string]string{
		"webhook": `{"url":"` + at.URL + `"}`, "slack": `{"token":"T","apiURL":"` + at.URL + `"}`,
		"email": `{"host":"127.0.0.1","port":` + address.Port() + `,"from":"a@b.c"}`, "nats": `{"url":"nats://` + address.Host + `"}`,
	} {
		sender, err := service.New(client, outbound.Policy{}, notification.Service{Name: "own", Type: kind, Options: []byte(options)})
		if err != nil {
			t.Fatal(err)
		}
		err = sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: "a@b.c"})
		if _, again := chat.RetryAfter(err, now); err == nil || again || !strings.Contains(err.Error(), "loopback") || len(at.requests) > 0 {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestPolicyAppliesToResolvedNames checks that an address is checked when it is dialled, after its name was resolved.
func TestPolicyAppliesToResolvedNames(t *testing.T) {
	at := newFakeService(t, respond(200, "1"))
	address, _ := url.Parse(at.URL)
	policy := outbound.Policy{AllowLoopback: true, Denied: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	client := outbound.New(policy)
	t.Cleanup(client.Close)
	for kind, options := range map[string]string{
		"webhook": `{"url":"http://localhost:` + address.Port() + `"}`, "nats": `{"url":"nats://localhost:` + address.Port() + `"}`,
		"email": `{"host":"localhost","port":` + address.Port() + `,"from":"a@b.c"}`,
	} {
		sender, err := service.New(client, policy, notification.Service{Name: "own", Type: kind, Options: []byte(options)})
		if err != nil {
			t.Fatal(err)
		}
		err = sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: "a@b.c"})
		if _, again := chat.RetryAfter(err, now); err == nil || again || !strings.Contains(err.Error(), "denied range") || len(at.requests) > 0 {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
