package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/check"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// usePrometheus is the fix of a query that could not be sent.
const usePrometheus = "use --prometheus with the URL of a Prometheus that you can reach, for example of kubectl port-forward"

// prometheusType is the type of the metrics service whose queries are sent: they are plain requests for values.
const prometheusType = "prometheus"

// maxResponse limits the response of --prometheus, in bytes.
const maxResponse = 1 << 20

// newTransport returns the transport for one query.
func (s *Session) newTransport(request CheckRequest, f flags) *serviceTransport {
	return &serviceTransport{
		api: s.API, namespace: f.Argo.OwnNamespace, instead: request.Prometheus,
		direct: outbound.New(outbound.Policy{AllowLoopback: true}).HTTP(maxResponse, check.Timeout).Transport,
	}
}

// measureCanary sends the queries of a Canary once, for the workload that serves users.
func (s *Session) measureCanary(ctx context.Context, observed *explain.Canary, request CheckRequest, f flags) []check.Measured {
	object, snapshot := observed.Object, &observed.Snapshot
	serving := object.Spec.TargetRef.Name
	if phase := snapshot.Status.Phase; phase != "" && phase != flaggerv1.CanaryPhaseInitializing && object.Spec.TargetRef.Kind != "Service" {
		serving += "-primary"
	}
	settings, _ := f.settingsFor(object)
	var out []check.Measured
	for _, one := range snapshot.Plan.Checks {
		m := check.Measured{Metric: one.Metric.Name}
		m.NotSent, m.Fix = s.cannotQuery(ctx, object, one)
		if f.announced && one.Source != canary.Template && object.Spec.MetricsServer == "" && request.Prometheus == nil {
			m.NotSent, m.Fix = "the controller does not announce the address of its Prometheus", usePrometheus
		}
		if m.NotSent == "" {
			transport := s.newTransport(request, f)
			through := outbound.NewThrough(transport)
			sender := &controller.QuerySender{
				Client: s.Client, APIReader: s.Client, Clock: s.Clock, Services: operator.MetricsServices(metric.Cluster{}, s.Clock),
				Restricted: through, Unrestricted: through, MetricsServer: f.MetricsServer, Provider: settings.Provider, NoCrossNamespace: settings.NoCrossNamespace,
			}
			answer := measureWithin(ctx, func(ctx context.Context) release.Answer { return sender.MeasureFor(ctx, object, one, serving) })
			m.Outcome, m.Text, m.Query, m.Service = answer.Outcome, answer.Text, oneLine(answer.Query), transport.service
			if answer.Outcome == release.Measured {
				ok, value, limit := canary.EvaluateValue(one, answer.Value)
				m.Violated, m.Value, m.Limit = !ok, value, limit
			}
			if transport.notSent != "" {
				m.NotSent, m.Fix = transport.notSent, usePrometheus
			}
		}
		out = append(out, m)
	}
	return out
}

// cannotQuery returns the reason why a query of a Canary is not sent, and how to check it; empty: it is sent.
func (s *Session) cannotQuery(ctx context.Context, object *flaggerv1.Canary, one canary.Check) (reason, fix string) {
	if one.Source != canary.Template {
		return "", ""
	}
	ref := one.Metric.TemplateRef
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if key.Namespace == "" {
		key.Namespace = object.Namespace
	}
	template := &flaggerv1.MetricTemplate{}
	err := s.Client.Get(ctx, key, template)
	if apierrors.IsNotFound(err) {
		return "MetricTemplate " + key.Name + "." + key.Namespace + " does not exist", ""
	}
	if err != nil {
		return noPermission("read MetricTemplate " + key.Name + "." + key.Namespace), ""
	}
	return notSent(template.Spec.Provider.Type, template.Spec.Provider.SecretRef != nil || len(template.Spec.Provider.Headers) > 0)
}

// notSent returns the reason why a query of a service is not sent: it needs credentials, or may be more than a request for a value.
func notSent(service string, hasCredentials bool) (reason, fix string) {
	switch {
	case service != prometheusType:
		return "only the controller queries the service " + service, ""
	case hasCredentials:
		return "only the controller sends the credentials or headers of this query", ""
	default:
		return "", ""
	}
}

// measureRollout measures the metrics of all analyses of a Rollout once, for its stable revision. problems are sentences about
// templates that cannot be used.
func (s *Session) measureRollout(ctx context.Context, reader *cachedReader, observed *explain.Rollout, request CheckRequest, f flags) (out []check.Measured, problems []string) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(observed.Object)
	if err != nil {
		return nil, []string{err.Error()}
	}
	lookup := rolloutObserver(ctx, reader, observed.Object, f).Runs.NewTemplateLookup(ctx, observed.Object.Namespace)
	stable := observed.Snapshot.Status.StableRS
	for _, one := range analysesOf(&observed.Snapshot.Spec.Strategy) {
		args, err := analysis.ResolveRolloutArguments(one.Args, tree, stable, stable)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		run, err := analysis.NewRun(analysis.RunRequest{
			Namespace: observed.Object.Namespace, Name: "check", Templates: one.Templates, RunOptions: analysis.RunOptions{Args: args, DryRun: one.DryRun},
		}, lookup)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for _, m := range run.Spec.Metrics {
			if !slices.ContainsFunc(out, func(done check.Measured) bool { return done.Metric == m.Name }) {
				out = append(out, s.measureMetric(ctx, run, m, request, f))
			}
		}
	}
	return out, slices.Compact(problems)
}

// measureMetric measures one metric of a run.
func (s *Session) measureMetric(ctx context.Context, run *argov1.AnalysisRun, m argov1.Metric, request CheckRequest, f flags) check.Measured {
	out := check.Measured{Metric: m.Name, Limit: analysis.Limit(m)}
	p := m.Provider.Prometheus
	if p == nil {
		out.NotSent, out.Fix = notSent(strings.Join(m.Provider.Types(), ", "), false)
		return out
	}
	hasCredentials := !equality.Semantic.DeepEqual(p.Authentication, argov1.Authentication{}) || len(p.Headers) > 0 ||
		slices.ContainsFunc(run.Spec.Args, func(a argov1.Argument) bool { return a.ValueFrom != nil && a.ValueFrom.SecretKeyRef != nil })
	if out.NotSent, out.Fix = notSent(prometheusType, hasCredentials); out.NotSent != "" {
		return out
	}
	if p.Address == "" && request.Prometheus == nil {
		out.NotSent, out.Fix = "the metric names no address, and only the controller knows its default", usePrometheus
		return out
	}
	transport := s.newTransport(request, f)
	through := outbound.NewThrough(transport)
	measurer := &measure.Measurer{
		Client: s.Client, Clock: s.Clock, Services: operator.MetricsServices(metric.Cluster{}, s.Clock), Restricted: through, Unrestricted: through,
		Environment: func(string) string { return f.MetricsServer }, // whose requests are sent to --prometheus
	}
	answer := measureWithin(ctx, func(ctx context.Context) release.Answer {
		result, outcome := measurer.MeasureOnce(ctx, run, analysis.ResolveMetricName(m.Name, run.Spec.Args))
		return release.Answer{Outcome: outcome, Detail: result}
	})
	result, _ := answer.Detail.(analysis.MeasurementResult)
	out.Outcome, out.Text, out.Value, out.Service = answer.Outcome, result.Message, result.Value, transport.service
	if resolved, err := analysis.ResolveMetric(m, run.Spec.Args, nil); err == nil && resolved.Provider.Prometheus != nil {
		out.Query = oneLine(resolved.Provider.Prometheus.Query)
	}
	switch {
	case transport.notSent != "":
		out.NotSent, out.Fix = transport.notSent, usePrometheus
	case slices.Contains([]string{"", "[]", "NaN", "[NaN]"}, result.Value): // NaN is the result of a division by no requests
		if out.Outcome == release.Measured || out.Outcome == release.Broken {
			out.Outcome = release.NoData
		}
	default:
		out.Violated = result.Phase == argov1.AnalysisPhaseFailed
	}
	return out
}

// measureWithin limits the duration of one query.
func measureWithin(ctx context.Context, measure func(context.Context) release.Answer) release.Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, check.Timeout, fmt.Errorf("no response within %s", check.Timeout))
	defer cancel()
	return measure(ctx)
}

// analysesOf returns all analyses of a strategy.
func analysesOf(strategy *argov1.RolloutStrategy) []argov1.RolloutAnalysis {
	var out []argov1.RolloutAnalysis
	add := func(one *argov1.RolloutAnalysis) {
		if one != nil {
			out = append(out, *one)
		}
	}
	if c := strategy.Canary; c != nil {
		if c.Analysis != nil {
			add(&c.Analysis.RolloutAnalysis)
		}
		for _, step := range c.Steps {
			add(step.Analysis)
		}
	}
	if b := strategy.BlueGreen; b != nil {
		add(b.PrePromotionAnalysis)
		add(b.PostPromotionAnalysis)
	}
	return out
}

// oneLine replaces all white space in a query, which may have several lines.
func oneLine(query string) string { return strings.Join(strings.Fields(query), " ") }
