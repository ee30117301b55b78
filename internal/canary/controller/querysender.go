package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/workload"
)

// Missing data right after a step is often data that was not scraped yet: it is queried again before it counts.
const (
	noDataRetries = 3
	noDataPause   = 3 * time.Second
)

// hookTimeout is the default of spec.analysis.webhooks[].timeout. The others limit the settings of a Canary: a call occupies a
// slot of its namespace, and a goroutine, until it ends.
const (
	hookTimeout    = 10 * time.Second
	maxHookTimeout = time.Hour
	maxHookRetries = 10
)

// hookLimits returns the effective timeout and retries of a webhook. reduced is a message about settings above the maximum; empty:
// there are none. A timeout that cannot be parsed is an error.
func hookLimits(h flaggerv1.CanaryWebhook) (timeout time.Duration, retries int, reduced string, err error) {
	timeout, retries = hookTimeout, h.Retries
	if len(h.Timeout) >= 2 {
		if timeout, err = time.ParseDuration(h.Timeout); err != nil {
			return hookTimeout, retries, "", fmt.Errorf("timeout %q is not a valid duration: use a value such as 10s", h.Timeout)
		}
	}
	var reductions []string
	if timeout > maxHookTimeout {
		timeout = maxHookTimeout
		reductions = append(reductions, fmt.Sprintf("timeout %s is reduced to the maximum of 1h", h.Timeout))
	}
	if retries > maxHookRetries {
		retries = maxHookRetries
		reductions = append(reductions, fmt.Sprintf("retries %d are reduced to the maximum of %d", h.Retries, maxHookRetries))
	}
	return timeout, retries, strings.Join(reductions, "; "), nil
}

// Pool names the pool of slots for a query: webhooks may run tests for minutes, and metric queries must not wait for them.
func Pool(query any) string {
	if _, hook := query.(canary.HookQuery); hook {
		return "webhooks"
	}
	return "metrics"
}

// maxQueries is the maximum number of queries of a Canary within one window.
func maxQueries(c *flaggerv1.Canary) int {
	a := analysisOf(c)
	return len(a.Webhooks) + len(a.Metrics) + 1 // the SourcesQuery
}

// maxAnswer limits the text of an answer, in bytes.
const maxAnswer = 1 << 10

// QuerySender sends the queries of Canaries to webhooks and metrics providers. The query runner calls it, outside of the reconcile
// workers.
type QuerySender struct {
	// Client reads from caches.
	Client client.Client
	// APIReader reads Secrets from the API server, by name.
	APIReader client.Reader
	Clock     clock.Clock
	Hooks     *hook.Client
	// Services are the types of metrics providers that templates may have.
	Services *metric.Registry
	// Restricted sends requests to addresses that users configure, Unrestricted to those that the administrator configures.
	Restricted, Unrestricted *outbound.Client
	// MetricsServer is the address of the default Prometheus.
	MetricsServer string
	// Provider is the default provider of the process, which determines the dialect of builtin metrics.
	Provider string
	// NoCrossNamespace forbids templates in other namespaces.
	NoCrossNamespace bool
	Telemetry        *telemetry.Metrics
}

// Send sends one query and returns its answer.
func (s *QuerySender) Send(ctx context.Context, key queryrunner.Key, query release.Query) release.Answer {
	began := s.Clock.Now()
	kind := telemetry.WebhookQuery
	c := &flaggerv1.Canary{}
	if err := s.Client.Get(ctx, key.NamespacedName, c); err != nil {
		return release.Answer{Outcome: release.Unreachable, Text: fmt.Sprintf("get Canary %s: %v", key.NamespacedName, err)}
	}
	var answer release.Answer
	switch q := query.Request.(type) {
	case canary.HookQuery:
		answer = s.callHook(ctx, c, q)
	case canary.MetricQuery:
		kind = telemetry.MetricQuery
		answer = s.measure(ctx, c, q.Check)
	case canary.SourcesQuery:
		kind = telemetry.MetricQuery
		answer = s.checkSources(ctx, c, q.Checks)
	default:
		answer = release.Answer{Outcome: release.Broken, Text: fmt.Sprintf("unknown query type %T", q)}
	}
	// Many answers are stored, and the length of addresses and queries is limited only by the size of a Canary.
	answer.Text, answer.Query = release.Truncate(answer.Text, maxAnswer), release.Truncate(answer.Query, reconciler.MaxGateQuery)
	s.Telemetry.RecordQueryDuration(kind, answer.Outcome, s.Clock.Since(began))
	return answer
}

func (s *QuerySender) callHook(ctx context.Context, c *flaggerv1.Canary, query canary.HookQuery) release.Answer {
	timeout, retries, reduced, err := hookLimits(query.Hook.CanaryWebhook)
	if err != nil {
		return release.Answer{Outcome: release.No, Text: err.Error()}
	}
	payload := hook.Payload{
		Name: c.Name, Namespace: c.Namespace, Phase: string(query.Phase),
		Checksum: hook.Checksum(c.Status.TrackedConfigs, c.Status.LastAppliedSpec), Metadata: query.Hook.Metadata,
	}
	body, err := payload.JSON()
	if err != nil {
		return release.Answer{Outcome: release.No, Text: err.Error()}
	}
	outcome, text := s.Hooks.Send(ctx, hook.Request{
		URL: query.Hook.URL, Body: body, Timeout: timeout, Retries: retries, DisableTLS: query.Hook.DisableTLS, Key: query.Key,
	})
	if text != "" && reduced != "" {
		text += " (" + reduced + ")"
	}
	return release.Answer{Outcome: outcome, Text: text}
}

// measure queries one value, and retries while there is no data.
func (s *QuerySender) measure(ctx context.Context, c *flaggerv1.Canary, check canary.Check) release.Answer {
	provider, query, broken := s.resolve(ctx, c, check, c.Spec.TargetRef.Name)
	if broken != nil {
		return *broken
	}
	answer := s.measureOnce(ctx, c, check, provider, query)
	for attempt := 0; answer.Outcome == release.NoData && attempt < noDataRetries; attempt++ {
		select {
		case <-ctx.Done():
			return release.Answer{Outcome: release.Unreachable, Text: context.Cause(ctx).Error(), Query: query.Text}
		case <-s.Clock.After(noDataPause):
		}
		answer = s.measureOnce(ctx, c, check, provider, query)
	}
	if answer.Outcome == release.NoData {
		query.Now = s.Clock.Now()
		answer.Detail = s.primaryData(ctx, c, check, query)
	}
	if answer.Outcome == release.Measured {
		gauge := answer.Value
		if check.Canonical == canary.Duration {
			gauge /= 1000 // the gauge of Flagger is in seconds
		}
		s.Telemetry.SetCheckValue(c.Namespace, c.Spec.TargetRef.Name, release.Truncate(check.Metric.Name, reconciler.MaxGateName), gauge)
	}
	return answer
}

// MeasureFor queries the value of a check once, for the pods of a workload: the target or its primary.
func (s *QuerySender) MeasureFor(ctx context.Context, c *flaggerv1.Canary, check canary.Check, workload string) release.Answer {
	provider, query, broken := s.resolve(ctx, c, check, workload)
	if broken != nil {
		return *broken
	}
	return s.measureOnce(ctx, c, check, provider, query)
}

func (s *QuerySender) measureOnce(ctx context.Context, c *flaggerv1.Canary, check canary.Check, provider metric.Provider, query metric.Query) release.Answer {
	query.Now = s.Clock.Now()
	ctx, end := metric.LimitCanary(ctx, c.Namespace)
	defer end()
	value, err := provider.Measure(ctx, query)
	if check.Source == canary.Builtin {
		value *= metric.Scale(metric.Dialect(c.Spec.Provider, s.Provider), check.Canonical)
	}
	answer := release.Answer{Outcome: metric.OutcomeOf(err), Value: value, Query: query.Text}
	if err != nil {
		answer.Text = err.Error()
	}
	return answer
}

// primaryData sends a query that has no data for the canary once more, for the primary: users then know whether the canary lacks
// traffic, or the application its metrics. It returns nil if the query does not depend on the target, or cannot be sent.
func (s *QuerySender) primaryData(ctx context.Context, c *flaggerv1.Canary, check canary.Check, canaryQuery metric.Query) any {
	primary := c.Spec.TargetRef.Name + "-primary"
	provider, query, broken := s.resolve(ctx, c, check, primary)
	// A query may also contain the target in the name of another object, such as the Service of the canary.
	if broken != nil || c.Spec.TargetRef.Knative() || query.Text == canaryQuery.Text || strings.Contains(query.Text, primary+"-canary") {
		return nil
	}
	query.Now = canaryQuery.Now
	ctx, end := metric.LimitCanary(ctx, c.Namespace)
	defer end()
	switch _, err := provider.Measure(ctx, query); metric.OutcomeOf(err) {
	case release.Measured:
		return canary.PrimaryHasData
	case release.NoData:
		return canary.PrimaryHasNoData
	default:
		return nil
	}
}

// resolve returns the provider and the query of a check for that target, or an answer if the check cannot be queried.
func (s *QuerySender) resolve(ctx context.Context, c *flaggerv1.Canary, check canary.Check, target string) (metric.Provider, metric.Query, *release.Answer) {
	broken := func(text string) (metric.Provider, metric.Query, *release.Answer) {
		return nil, metric.Query{}, &release.Answer{Outcome: release.Broken, Text: text}
	}
	vars, err := s.vars(ctx, c, check)
	if err != nil {
		return nil, metric.Query{}, &release.Answer{Outcome: release.Unreachable, Text: err.Error()}
	}
	vars.Target = target
	interval, _ := time.ParseDuration(check.Interval)
	query := metric.Query{Interval: interval}
	if check.Source == canary.Template {
		return s.resolveTemplate(ctx, c, check, vars, query)
	}
	provider, err := s.prometheusProvider(c)
	if err != nil {
		return broken(fmt.Sprintf("Error building Prometheus client for %s: %v", outbound.Redact(c.Spec.MetricsServer), err))
	}
	if check.Source == canary.Inline {
		query.Text, err = metric.Render(check.Metric.Query, vars)
	} else {
		provider, query.Text, err = resolveBuiltin(provider, metric.Dialect(c.Spec.Provider, s.Provider), check.Canonical, vars)
	}
	if err != nil {
		return broken(err.Error())
	}
	return provider, query, nil
}

// resolveBuiltin returns the provider and the query of a builtin metric.
func resolveBuiltin(provider metric.Provider, dialect, name string, vars metric.Vars) (metric.Provider, string, error) {
	text, err := metric.Builtin(dialect, name, vars)
	if err != nil || name != metric.RequestSuccessRate {
		return provider, text, err
	}
	complement, err := metric.Complement(dialect, vars)
	return metric.OrElse(provider, complement), text, err
}

func (s *QuerySender) prometheusProvider(c *flaggerv1.Canary) (metric.Provider, error) {
	if c.Spec.MetricsServer != "" {
		return s.Services.NewProvider(s.Restricted, c.Namespace, flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: c.Spec.MetricsServer}, nil)
	}
	return s.Services.NewProvider(s.Unrestricted, c.Namespace, flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: s.MetricsServer}, nil)
}

// resolveTemplate resolves a metric template. The Secret is read in the namespace of the template, never in one that the Canary
// names.
func (s *QuerySender) resolveTemplate(ctx context.Context, c *flaggerv1.Canary, check canary.Check, vars metric.Vars, query metric.Query) (metric.Provider, metric.Query, *release.Answer) {
	key := referenceKey(c.Namespace, *check.Metric.TemplateRef)
	outcome := func(o release.Outcome, text string) (metric.Provider, metric.Query, *release.Answer) {
		return nil, query, &release.Answer{Outcome: o, Text: text}
	}
	if s.NoCrossNamespace && key.Namespace != c.Namespace {
		return outcome(release.Broken, fmt.Sprintf("can't access metric template %s.%s, cross-namespace references are blocked", key.Name, key.Namespace))
	}
	template := &flaggerv1.MetricTemplate{}
	switch err := s.Client.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return outcome(release.Broken, metric.TemplateMissing(key.Name, key.Namespace, templateNotFound(key.Name)))
	case err != nil:
		return outcome(release.Unreachable, metric.TemplateMissing(key.Name, key.Namespace, err))
	}
	credentials, text := s.readCredentials(ctx, template)
	if text != "" {
		return outcome(release.Broken, text)
	}
	provider, err := s.Services.NewProvider(s.Restricted, key.Namespace, *template.Spec.Provider.DeepCopy(), credentials)
	if err != nil {
		return outcome(release.Broken, metric.ProviderRefused(key.Name, key.Namespace, template.Spec.Provider.Type, err))
	}
	query.Text, err = metric.Render(template.Spec.Query, vars)
	if err != nil {
		return outcome(release.Broken, metric.RenderFailed(key.Name, key.Namespace, err))
	}
	return provider, query, nil
}

// templateNotFound is Flagger's error for a missing template; the error of a cache has another form of the kind.
func templateNotFound(name string) error {
	return apierrors.NewNotFound(flaggerv1.Resource("metrictemplate"), name)
}

func (s *QuerySender) readCredentials(ctx context.Context, template *flaggerv1.MetricTemplate) (map[string][]byte, string) {
	ref := template.Spec.Provider.SecretRef
	if ref == nil {
		return nil, ""
	}
	secret := &corev1.Secret{}
	if err := s.APIReader.Get(ctx, types.NamespacedName{Namespace: template.Namespace, Name: ref.Name}, secret); err != nil {
		return nil, metric.SecretMissing(template.Name, template.Namespace, ref.Name, err)
	}
	return secret.Data, ""
}

// QueryVars returns the variables of the query of a check. For a Knative Service, the reconciler replaces the route by the latest
// revision.
func QueryVars(c *flaggerv1.Canary, check canary.Check) metric.Vars {
	v := metric.Vars{
		Name: c.Name, Namespace: c.Namespace,
		Target: c.Spec.TargetRef.Name, TargetKind: c.Spec.TargetRef.Kind,
		Service: c.Spec.Service.Name, Ingress: c.Spec.TargetRef.Name, Route: c.Spec.TargetRef.Name,
		Interval: check.Interval, Variables: check.Metric.TemplateVariables,
	}
	if v.Service == "" {
		v.Service = v.Target
	}
	if c.Spec.IngressRef != nil {
		v.Ingress = c.Spec.IngressRef.Name
	}
	if c.Spec.RouteRef != nil {
		v.Route = c.Spec.RouteRef.Name
	}
	return v
}

func (s *QuerySender) vars(ctx context.Context, c *flaggerv1.Canary, check canary.Check) (metric.Vars, error) {
	v := QueryVars(c, check)
	if !c.Spec.TargetRef.Knative() {
		return v, nil
	}
	var err error
	if v.Route, err = workload.LatestRevision(ctx, s.Client, c); err != nil {
		return metric.Vars{}, err
	}
	return v, nil
}

// checkSources checks whether the sources of all checks are available. Inline queries use the same server as the builtin metrics,
// and are checked with them.
func (s *QuerySender) checkSources(ctx context.Context, c *flaggerv1.Canary, checks []canary.Check) release.Answer {
	var problems []string
	prometheusAsked := false
	for _, check := range checks {
		if check.Source != canary.Template {
			if prometheusAsked || check.Source == canary.Inline {
				continue
			}
			prometheusAsked = true
			provider, err := s.prometheusProvider(c)
			if err == nil {
				err = checkOnline(ctx, c, provider)
			}
			if err != nil {
				problems = append(problems, fmt.Sprintf("prometheus not avaiable: %v", err)) // sic: Flagger's text
			}
			continue
		}
		key := referenceKey(c.Namespace, *check.Metric.TemplateRef)
		vars, err := s.vars(ctx, c, check)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		provider, _, broken := s.resolveTemplate(ctx, c, check, vars, metric.Query{})
		if broken != nil {
			problems = append(problems, lowerFirst(broken.Text))
			continue
		}
		if err := checkOnline(ctx, c, provider); err != nil {
			template := &flaggerv1.MetricTemplate{}
			kind := ""
			if s.Client.Get(ctx, key, template) == nil {
				kind = template.Spec.Provider.Type
			}
			problems = append(problems, fmt.Sprintf("%s in metric template %s.%s not avaiable: %v", kind, key.Name, key.Namespace, err))
		}
	}
	if len(problems) > 0 {
		return release.Answer{Outcome: release.No, Text: strings.Join(problems, "; ")}
	}
	return release.Answer{Outcome: release.Yes}
}

func checkOnline(ctx context.Context, c *flaggerv1.Canary, provider metric.Provider) error {
	ctx, end := metric.LimitCanary(ctx, c.Namespace)
	defer end()
	return provider.Online(ctx)
}

func lowerFirst(text string) string {
	if text == "" {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}
