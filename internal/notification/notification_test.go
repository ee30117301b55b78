package notification

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/release"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func subject(annotations ...string) Subject {
	s := Subject{Labels: map[string]string{"app": "cart"}, Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		s.Annotations[annotations[i]] = annotations[i+1]
	}
	return s
}

func rolloutIn(phase string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "cart", "namespace": "shop", "creationTimestamp": "2026-05-04T11:00:00Z"},
		"spec":     map[string]any{"replicas": int64(1000000)},
		"status":   map[string]any{"phase": phase, "message": "why"},
	}
}

func TestSubscriptionsSelectDestinations(t *testing.T) {
	config := map[string]string{
		"defaultTriggers":       "[on-a, on-b]",
		"defaultTriggers.email": "[on-mail]",
		"subscriptions": `
- recipients: ["slack:all", "slack:all"]
  selector: app=cart
  triggers: [on-a]
- recipients: [webhook]
- recipients: ["slack:nobody"]
  selector: app!=cart
`,
	}
	for name, c := range map[string]struct {
		annotation, value string
		want              map[string][]string
	}{
		"trigger and service": {"notifications.argoproj.io/subscribe.on-x.slack", "one; two;;one", map[string][]string{"on-x": {"slack:one", "slack:two"}}},
		"no recipient":        {"notifications.argoproj.io/subscribe.on-x.webhook", "", map[string][]string{"on-x": {"webhook"}}},
		"default triggers":    {"notifications.argoproj.io/subscribe.slack", "one", map[string][]string{"on-a": {"slack:one"}, "on-b": {"slack:one"}}},
		"service defaults":    {"notifications.argoproj.io/subscribe.email", "a@b.c", map[string][]string{"on-mail": {"email:a@b.c"}}},
		"a list": {"notifications.argoproj.io/subscriptions", `
- trigger: [on-x, on-y]
  destinations:
  - {service: slack, recipients: [one, two]}
- destinations:
  - {service: email, recipients: [a@b.c]}
`, map[string][]string{"on-x": {"slack:one", "slack:two"}, "on-y": {"slack:one", "slack:two"}, "on-mail": {"email:a@b.c"}}},
		"invalid list":       {"notifications.argoproj.io/subscriptions", "{a: b}", map[string][]string{}},
		"another annotation": {"example.org/subscribe.on-x.slack", "one", map[string][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string][]string{}
			own := NewConfig(map[string]string{"defaultTriggers": config["defaultTriggers"], "defaultTriggers.email": config["defaultTriggers.email"]}, nil)
			destinations, _ := own.Destinations(subject(c.annotation, c.value))
			for trigger, all := range destinations {
				for _, to := range all {
					got[trigger] = append(got[trigger], to.String())
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("destinations (-want +got):\n%s", diff)
			}
		})
	}
	all, _ := NewConfig(config, nil).Destinations(subject("notifications.argoproj.io/subscribe.on-a.slack", "all"))
	want := map[string][]Destination{
		"on-a": {{Service: "slack", Recipient: "all"}, {Service: "webhook"}}, "on-b": {{Service: "webhook"}},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("destinations of all (-want +got):\n%s", diff)
	}
	if text := InvalidAnnotation(subject("notifications.argoproj.io/subscriptions", "{a: b}")); text == "" {
		t.Error("an invalid list is not reported")
	}
}

// TestRecipientsAreBounded checks that an annotation, which may have 256 KiB, subscribes a limited number of recipients.
func TestRecipientsAreBounded(t *testing.T) {
	names := func(prefix string, count int) (all []string) {
		for i := range count {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	manyTriggers := fmt.Sprintf("- trigger: [%s]\n  destinations: [{service: slack, recipients: [%s]}]", strings.Join(names("on-", 250), ","), strings.Join(names("", 50), ","))
	for name, tt := range map[string]struct {
		annotation, value string
		want              int
		wantProblem       bool
	}{
		"as many as possible": {"subscribe.on-x.slack", strings.Join(names("", 100), ";"), 100, false},
		"duplicates":          {"subscribe.on-x.slack", strings.Repeat("one;", 1000), 1, false},
		"more":                {"subscribe.on-x.slack", strings.Join(names("", 5000), ";"), 100, true},
		"without triggers":    {"subscribe.slack", strings.Join(names("", 5000), ";"), 0, false},
		"many triggers":       {"subscriptions", manyTriggers, 10_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			all, problem := NewConfig(nil, nil).Destinations(subject("notifications.argoproj.io/"+tt.annotation, tt.value))
			got := 0
			for _, to := range all {
				got += len(to)
			}
			if got != tt.want || (problem != "") != tt.wantProblem {
				t.Errorf("%d subscriptions, want %d; problem %q", got, tt.want, problem)
			}
		})
	}
}

func TestEventFiresTheTriggerOfItsName(t *testing.T) {
	for reason, want := range map[string]string{
		"RolloutCompleted": "on-rollout-completed", "AnalysisRunFailed": "on-analysis-run-failed", "ScalingReplicaSet": "on-scaling-replica-set",
		"PatchingALBIngress": "on-patching-alb-ingress", "SkipSteps": "on-skip-steps",
	} {
		if got := triggerName(reason); got != want {
			t.Errorf("%s fires %s, want %s", reason, got, want)
		}
	}
	c := NewConfig(map[string]string{
		"trigger.on-rollout-completed": "- send: [done]\n- when: rollout.status.phase == 'Degraded'\n  send: [odd]",
	}, nil)
	to, _ := c.Destinations(subject("notifications.argoproj.io/subscribe.on-rollout-completed.slack", "ops",
		"notifications.argoproj.io/subscribe.on-nothing.slack", "ops"))
	vars := c.Vars(Situation{Rollout: rolloutIn("Healthy"), Now: now})
	for _, tt := range []struct {
		event string
		fires bool
	}{{"RolloutCompleted", true}, {"RolloutPaused", false}, {"", false}, {"Nothing", false}} {
		event := release.Event{Reason: tt.event}
		if fires := c.MayFire(event, to); fires != tt.fires {
			t.Errorf("event %q fires: %v", tt.event, fires)
		}
		out := c.Evaluate(t.Context(), event, to, vars, nil)
		if (len(out.Due) > 0) != tt.fires {
			t.Errorf("event %q: due %v", tt.event, out.Due)
		}
	}
	out := c.Evaluate(t.Context(), release.Event{Reason: "RolloutCompleted"}, to, vars, SentLog{})
	want := []Message{{To: Destination{"slack", "ops"}, Trigger: "on-rollout-completed", Templates: []string{"done"}}}
	if diff := cmp.Diff(want, out.Due); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
}

// TestConditionIsReportedOnceUntilItIsFalse checks that a message in the log of sent messages is not due, and that it is
// removed from the log when its condition becomes false.
func TestConditionIsReportedOnceUntilItIsFalse(t *testing.T) {
	c := NewConfig(map[string]string{"trigger.on-degraded": "- when: rollout.status.phase == 'Degraded'\n  send: [bad]"}, nil)
	to, _ := c.Destinations(subject("notifications.argoproj.io/subscribe.on-degraded.slack", "ops"))
	evaluate := func(phase string, sentLog SentLog) Outcome {
		return c.Evaluate(t.Context(), release.Event{}, to, c.Vars(Situation{Rollout: rolloutIn(phase), Now: now}), sentLog)
	}
	if out := evaluate("Healthy", SentLog{}); len(out.Due) > 0 {
		t.Errorf("healthy: due %v", out.Due)
	}
	first := evaluate("Degraded", SentLog{})
	if len(first.Due) != 1 || first.Due[0].Key == "" {
		t.Fatalf("degraded: due %v", first.Due)
	}
	// Argo Rollouts writes the same key into the annotation.
	if want := "on-degraded:[0]." + hashBase64("rollout.status.phase == 'Degraded'") + ":slack:ops"; first.Due[0].Key != want {
		t.Errorf("key %s, want %s", first.Due[0].Key, want)
	}
	sentLog := ParseSentLog(first.SentLog.With(first.Due[0].Key, now).String())
	if out := evaluate("Degraded", sentLog); len(out.Due) > 0 || !out.SentLog.Has(first.Due[0].Key) {
		t.Errorf("already sent: due %v, sentLog %v", out.Due, out.SentLog)
	}
	ended := evaluate("Healthy", sentLog)
	if len(ended.Due) > 0 || len(ended.SentLog) > 0 {
		t.Errorf("ended: due %v, sentLog %v", ended.Due, ended.SentLog)
	}
	if out := evaluate("Degraded", ended.SentLog); len(out.Due) != 1 {
		t.Errorf("degraded again: due %v", out.Due)
	}
	if self := c.ForNamespace("shop").Evaluate(t.Context(), release.Event{}, to, c.Vars(Situation{Rollout: rolloutIn("Degraded")}), sentLog); len(self.Due) != 1 || !strings.HasPrefix(self.Due[0].Key, "shop:") {
		t.Errorf("configuration of the namespace: %v", self.Due)
	}
}

func TestOncePerSendsOneMessagePerValue(t *testing.T) {
	c := NewConfig(map[string]string{"trigger.on-x": "- when: 'true'\n  oncePer: rollout.status.phase\n  send: [x]"}, nil)
	to, _ := c.Destinations(subject("notifications.argoproj.io/subscribe.on-x.slack", "ops"))
	sentLog := SentLog{}
	for _, tt := range []struct {
		phase string
		due   int
	}{{"A", 1}, {"A", 0}, {"B", 1}, {"A", 0}} {
		out := c.Evaluate(t.Context(), release.Event{}, to, c.Vars(Situation{Rollout: rolloutIn(tt.phase)}), sentLog)
		if len(out.Due) != tt.due {
			t.Errorf("%s: due %v, want %d", tt.phase, out.Due, tt.due)
		}
		for _, m := range out.Due {
			sentLog = sentLog.With(m.Key, now)
		}
	}
}

func TestSentLogDropsTheOldestMessages(t *testing.T) {
	sentLog := SentLog{}
	for i := range 105 {
		sentLog = sentLog.With(fmt.Sprint(i), now.Add(time.Duration(i)*time.Second))
	}
	if got := sentLog.Newest(100, 1<<20); len(got) != 100 || got.Has("4") || !got.Has("5") || got.Has("") {
		t.Errorf("by number: %v", got)
	}
	sentLog = sentLog.With(strings.Repeat("<", 500), now.Add(time.Hour)) // 3000 bytes as JSON
	if got := sentLog.Newest(200, 1000); len(got) < 30 || len(got.String()) > 1000 || !got.Has("104") || got.Has("0") {
		t.Errorf("by size: %d bytes, %v", len(got.String()), got)
	}
	for _, text := range []string{"", "null", "[]", "{", `{"a":"b"}`} {
		if sentLog := ParseSentLog(text); sentLog == nil || len(sentLog) > 0 {
			t.Errorf("%q is parsed as %v", text, sentLog)
		}
	}
}

func TestTemplatesRenderTheVariables(t *testing.T) {
	c := NewConfig(map[string]string{
		"template.a": `
message: '{{.rollout.metadata.name}} of {{.rollout.spec.replicas}} {{.recipient}} {{.event.message | upper}} {{toString .secrets.word}} {{range .analysisRuns}}{{.name}}{{end}}'
slack:
  attachments: '[{"title": "{{(call .time.Parse .rollout.metadata.creationTimestamp).Hour}} {{(call .time.Now).Year}}"}]'
  notifyBroadcast: true
webhook:
  own: {body: "{{.serviceType}}", method: POST}
`,
		"template.b": "message: ''\nslack: {attachments: '', username: '{{.missing}}b'}\nemail: {subject: s}",
	}, map[string][]byte{"word": []byte("open sesame")})
	if problems := c.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	vars := c.Vars(Situation{Rollout: rolloutIn(""), Runs: []any{map[string]any{"name": "run"}}, Event: release.Event{Message: "it is"}, Now: now})
	vars["recipient"], vars["serviceType"] = "ops", "slack"
	got, err := c.Render(t.Context(), []string{"a", "b"}, vars)
	if err != nil {
		t.Fatal(err)
	}
	want := Content{
		Message: "cart of 1000000 ops IT IS open sesame run", Template: "b",
		parts: map[string]any{
			"slack":   map[string]any{"attachments": `[{"title": "11 2026"}]`, "notifyBroadcast": true, "username": "<no value>b"},
			"webhook": map[string]any{"own": map[string]any{"body": "slack", "method": "POST"}},
			"email":   map[string]any{"subject": "s"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Content{})); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// TestInvalidKeyDoesNotAffectOthers checks that each key is parsed separately, and that its error contains no secret.
func TestInvalidKeyDoesNotAffectOthers(t *testing.T) {
	c := NewConfig(map[string]string{
		"trigger.on-a": "- send: [a]", "trigger.on-b": "- when: 'rollout.('", "trigger.on-c": "send: x",
		"template.a": "message: fine", "template.b": "message: '{{.x'", "template.c": "message: '{{env \"HOME\"}}'", "template.d": "[",
		"service.slack": "token: $slack-token", "service.webhook.x": "url: https://a/$none", "service.a.b.c": "{}", "service.email": "{",
		"subscriptions": "- selector: 'a in b'", "defaultTriggers": "x: y", "something": "else",
	}, map[string][]byte{"slack-token": []byte("xoxb-1")})
	got := map[string]string{}
	for _, problem := range c.Problems() {
		got[problem.Key] = problem.Text
	}
	for key, want := range map[string]string{
		"trigger.on-b": "is not a valid expression", "trigger.on-c": "it does not have the form of such a key", "template.b": "unclosed action",
		"template.c": `function "env" not defined`, "template.d": "it does not have the form of such a key", "service.webhook.x": "refers to $none",
		"service.a.b.c": "service.TYPE.NAME", "service.email": "not valid YAML", "subscriptions": "the selector",
		"defaultTriggers": "it does not have the form of such a key",
	} {
		if text, ok := got[key]; !ok || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", key, text, want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("further problems: %v", got)
	}
	if s, err := c.Service("slack"); err != nil || string(s.Options) != `{"token":"xoxb-1"}` {
		t.Errorf("slack: %s, %v", s.Options, err)
	}
	if s, err := c.Service("x"); err != nil || s.Type != "webhook" {
		t.Errorf("x: %+v, %v", s, err)
	}
	to := map[string][]Destination{"on-a": {{"slack", "ops"}}, "on-b": {{"slack", "ops"}}}
	if out := c.Evaluate(t.Context(), release.Event{}, to, nil, nil); len(out.Problems) != 1 || out.Problems[0].Key != "trigger.on-b" {
		t.Errorf("problems of the evaluated triggers: %v", out.Problems)
	}
	for _, template := range []string{"b", "none"} {
		if _, err := c.Render(t.Context(), []string{"a", template}, nil); err == nil || !strings.Contains(err.Error(), "template."+template) {
			t.Errorf("template %s: %v", template, err)
		}
	}
	for _, service := range []string{"email", "none"} {
		if _, err := c.Service(service); err == nil || !strings.Contains(err.Error(), "service."+service) {
			t.Errorf("service %s: %v", service, err)
		}
	}
}

// TestConditionAboutMissingFieldsIsFalse covers conditions that refer to AnalysisRuns which do not exist yet.
func TestConditionAboutMissingFieldsIsFalse(t *testing.T) {
	c := NewConfig(map[string]string{"trigger.on-x": "- when: analysisRuns[0].status.phase == 'Failed'\n  send: [x]", "trigger.on-y": "- when: 1 + 1\n  send: [x]"}, nil)
	to := map[string][]Destination{"on-x": {{"slack", "ops"}}, "on-y": {{"slack", "ops"}}}
	out := c.Evaluate(t.Context(), release.Event{}, to, c.Vars(Situation{Rollout: rolloutIn("")}), nil)
	if len(out.Due) > 0 || len(out.Problems) > 0 || len(out.EvaluationErrors) != 2 {
		t.Errorf("%+v", out)
	}
}

func TestTemplatesAreBounded(t *testing.T) {
	for _, text := range []string{
		`{{range until 1000000000}}x{{end}}`, `{{repeat 2000000000 "x"}}`, `{{untilStep -9223372036854775808 9223372036854775807 1}}`,
		`{{range until 1000}}{{repeat 1000 "x"}}{{end}}`, `{{randAlphaNum 1000000000}}`, `{{indent 1000000000 "x"}}`, `{{repeat -1 "x"}}`,
	} {
		c := NewConfig(map[string]string{"template.x": "message: |\n  " + text}, nil)
		if _, err := c.Render(t.Context(), []string{"x"}, nil); err == nil || !strings.Contains(err.Error(), errTooLong.Error()) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// hostileTemplates each cost gigabytes, hours, or a crash if nothing limits them.
var hostileTemplates = map[string]string{
	"doubled text":             `{{$a := repeat 1000 "x"}}{{range until 30}}{{$a = print $a $a}}{{end}}{{len $a}}`,
	"formatted":                `{{printf "%1000000000d" 1}}`,
	"formatted by number":      `{{printf "%*d" 1000000000 1}}`,
	"one argument often":       `{{$a := repeat 200000 "x"}}{{len (printf (repeat 20000 "%[1]s") $a)}}`,
	"concatenated":             `{{$a := repeat 100000 "x"}}{{range until 1000}}{{$a = cat $a $a}}{{end}}{{len $a}}`,
	"joined":                   `{{$a := repeat 200000 "x"}}{{len (join $a (until 1000))}}`,
	"joined the same":          `{{$a := repeat 200000 "x"}}{{$l := list $a}}{{range until 30}}{{$l = concat $l $l}}{{end}}{{len (join "" $l)}}`,
	"replaced":                 `{{$a := repeat 200000 "x"}}{{len (replace "" $a $a)}}`,
	"wrapped":                  `{{$a := repeat 200000 "x "}}{{len (wrapWith 1 $a $a)}}`,
	"random bytes":             `{{len (randBytes 1000000000)}}`,
	"doubled list":             `{{$a := list 1 1}}{{range until 60}}{{$a = list $a $a}}{{end}}{{len (toJson $a)}}`,
	"doubled, printed":         `{{$a := list 1 1}}{{range until 60}}{{$a = list $a $a}}{{end}}{{$a}}`,
	"doubled map":              `{{$a := dict}}{{range until 60}}{{$a = dict "a" $a "b" $a}}{{end}}{{len (toPrettyJson $a)}}`,
	"map in itself":            `{{$a := dict}}{{$_ := set $a "a" $a}}{{$a}}`,
	"map in itself later":      `{{$a := dict}}{{$b := dict "a" $a}}{{$_ := set $a "b" $b}}{{$a}}`,
	"map in itself by merging": `{{$a := dict "x" (dict)}}{{$_ := set $a.x "y" $a}}{{deepCopy $a}}`,
	"loops":                    `{{range until 1000}}{{range until 1000}}{{range until 1000}}{{end}}{{end}}{{end}}`,
	"loop over a number":       `{{range 1000000000}}{{end}}`,
	"loops in templates":       `{{define "a"}}{{range until 1000}}{{template "b"}}{{end}}{{end}}{{define "b"}}{{range until 1000}}{{end}}{{end}}{{range until 1000}}{{template "a"}}{{end}}`,
	"template in itself":       `{{define "a"}}{{template "a"}}{{template "a"}}{{end}}{{template "a"}}`,
	"pattern":                  `{{$a := repeat 200000 "x"}}{{range until 1000}}{{regexMatch "x{500}x{500}x{500}x{500}y" $a}}{{end}}`,
	"large pattern":            `{{regexMatch (repeat 2000 "x{1000}") "x"}}`,
	"replaced by pattern":      `{{$a := repeat 200000 "x"}}{{len (regexReplaceAll "" $a $a)}}`,
	"decoded":                  `{{$a := printf "[%s1]" (repeat 100000 "1,")}}{{range until 1000}}{{$_ := fromJson $a}}{{end}}`,
	"unique":                   `{{$a := until 1000}}{{range until 1000}}{{$_ := uniq $a}}{{end}}`,
	"escaped":                  `{{$a := repeat 200000 "<"}}{{range until 1000}}{{$_ := html $a | js | urlquery}}{{end}}`,
	"indented":                 `{{$a := repeat 200000 "\n"}}{{len (indent 1000 $a)}}`,
	"time zones":               `{{range until 1000}}{{range until 20}}{{$_ := dateInZone "2006" now "Europe/Zurich"}}{{end}}{{end}}`,
}

// TestHostileTemplatesEnd checks that each fails with an error, and allocates no more than several concurrent messages may.
func TestHostileTemplatesEnd(t *testing.T) {
	const most = 256 << 20 // total allocations, of which only a part is live
	for name, content := range hostileTemplates {
		t.Run(name, func(t *testing.T) {
			c := NewConfig(map[string]string{"template.x": "message: |\n  " + content}, nil)
			if problems := c.Problems(); len(problems) > 0 {
				t.Fatal(problems)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := c.Render(t.Context(), []string{"x"}, c.Vars(Situation{Rollout: rolloutIn("Degraded"), Now: now}))
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("got %.100s, want an error", got.Message)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > most {
				t.Errorf("allocated %d MiB, want at most %d: %v", used>>20, most>>20, err)
			}
		})
	}
}

// TestLoopsAndTemplatesWithinTheLimits checks that the limits do not affect ordinary templates, however deeply they are nested.
func TestLoopsAndTemplatesWithinTheLimits(t *testing.T) {
	for content, want := range map[string]string{
		strings.Repeat("{{range until 2}}", 5) + "x" + strings.Repeat("{{end}}", 5):                           strings.Repeat("x", 32),
		`{{define "a"}}x{{end}}{{range until 3}}{{template "a"}}{{end}}`:                                      "xxx",
		`{{define "a"}}{{if .}}{{len .}}{{template "a" (rest .)}}{{end}}{{end}}{{template "a" (list 1 2)}}`:   "21",
		`{{printf "%-5s|%05.1f" "a" 1.25}}`:                                                                   "a    |001.2",
		`{{$d := dict "a" 1}}{{$_ := set $d "b" 2}}{{toJson $d}}`:                                             `{"a":1,"b":2}`,
		`{{range $i, $e := list "a" "b"}}{{if $i}}, {{end}}{{$e | upper | quote}}{{end}}`:                     `"A", "B"`,
		`{{default "x" ""}}{{ternary "y" "n" true}}{{coalesce "" "z"}}{{regexReplaceAll "a(b)" "ab" "${1}"}}`: "xyzb",
		`{{max 1 2}} {{add 1 2 3}} {{mustToJson (list 1)}} {{len "abc"}} {{index (list 1 2) 1}}`:              "2 6 [1] 3 2",
	} {
		c := NewConfig(map[string]string{"template.x": "message: |-\n  " + content}, nil)
		got, err := c.Render(t.Context(), []string{"x"}, nil)
		if err != nil || got.Message != want {
			t.Errorf("%s: got %q, %v, want %q", content, got.Message, err, want)
		}
	}
}

// TestTemplatesDoNotModifySharedVariables executes templates concurrently.
func TestTemplatesDoNotModifySharedVariables(t *testing.T) {
	c := NewConfig(map[string]string{"template.x": `message: '{{$_ := set .rollout "x" "y"}}{{$_ := unset .rollout.metadata "name"}}'`}, nil)
	vars := c.Vars(Situation{Rollout: rolloutIn("Degraded"), Now: now})
	before := fmt.Sprint(vars["rollout"])
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, err := c.Render(t.Context(), []string{"x"}, vars); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if after := fmt.Sprint(vars["rollout"]); after != before {
		t.Errorf("changed to %s", after)
	}
}

// TestTemplatesEndWithTheirContext covers a template that is within its budget.
func TestTemplatesEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the controller is shutting down")
	c := NewConfig(map[string]string{"template.x": "message: '{{range until 900}}{{call $.tick}}{{end}}'"}, nil)
	rounds := 0
	_, err := c.Render(ctx, []string{"x"}, map[string]any{"tick": func() string {
		if rounds++; rounds == 10 {
			cancel(cause)
		}
		return ""
	}})
	if !errors.Is(err, cause) || rounds != 10 {
		t.Errorf("got %v after %d rounds, want %v after 10", err, rounds, cause)
	}
}

func TestErrorsContainNoSecret(t *testing.T) {
	c := NewConfig(map[string]string{"template.x": "message: '{{atoi .secrets.word}}{{fail .secrets.word}}{{fail .secrets.lines}}'"},
		map[string][]byte{"word": []byte(`pa"ss word`), "lines": []byte("first line\nsecond line\n")})
	_, err := c.Render(t.Context(), []string{"x"}, c.Vars(Situation{}))
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range []string{`pa"ss word`, `pa\"ss`, "first line", "second line"} {
		if text := c.Redact(fmt.Errorf("%w %q https://user:x@host/p?key=1 second line", err, `pa"ss word`)); strings.Contains(text, word) || strings.Contains(text, "key=1") {
			t.Errorf("the error contains %q: %s", word, text)
		}
	}
}

// FuzzConfig evaluates arbitrary configurations. Nothing panics, everything ends, and no text contains the secret.
func FuzzConfig(f *testing.F) {
	f.Add("trigger.on-rollout-completed", "- when: rollout.status.phase in ['Healthy']\n  oncePer: rollout.metadata.name\n  send: [x]", "template.x", "message: '{{.rollout}} {{.secrets.word}}'\nslack: {attachments: '[]'}", "slack:ops")
	f.Add("service.slack", "token: $word", "subscriptions", "- recipients: [slack:x]\n  selector: a in (b)", "")
	f.Add("service.webhook.x", "url: $word\nheaders: [{name: a, value: $word}]", "defaultTriggers", "[on-x]", ";")
	f.Add("template.x", "message: '{{range $i, $e := until 100}}{{repeat $i \"x\"}}{{end}}'", "trigger.on-x", "- when: len(rollout) > 0\n  send: [x]", "a;b")
	for _, content := range hostileTemplates {
		f.Add("template.x", "message: |\n  "+content, "trigger.on-x", "- when: all(1..1000, all(1..1000, all(1..1000, true)))\n  send: [x]", "a")
	}
	f.Fuzz(func(t *testing.T, key, text, other, more, annotation string) {
		const word = "Very-Secret-Word"
		c := NewConfig(map[string]string{key: text, other: more}, map[string][]byte{"word": []byte(word)})
		for _, problem := range c.Problems() {
			if strings.Contains(problem.String(), word) {
				t.Errorf("the problem contains the secret: %s", problem)
			}
		}
		s := subject("notifications.argoproj.io/subscribe.on-x.slack", annotation, "notifications.argoproj.io/subscribe."+key, annotation,
			"notifications.argoproj.io/subscriptions", annotation)
		to, _ := c.Destinations(s)
		vars := c.Vars(Situation{Rollout: rolloutIn("Degraded"), Now: now})
		for _, event := range []release.Event{{}, {Reason: "RolloutCompleted"}} {
			out := c.Evaluate(t.Context(), event, to, vars, ParseSentLog(annotation))
			for _, m := range out.Due {
				content, err := c.Render(t.Context(), m.Templates, vars)
				if err != nil && strings.Contains(c.Redact(err), word) {
					t.Errorf("the error contains the secret: %s", c.Redact(err))
				}
				if len(content.Message) > maxText {
					t.Errorf("a message of %d bytes", len(content.Message))
				}
			}
		}
		for name := range c.templates {
			_, _ = c.Render(t.Context(), []string{name}, vars)
		}
	})
}
