package analysis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
)

func refs(names ...string) []argov1.AnalysisTemplateRef {
	var out []argov1.AnalysisTemplateRef
	for _, name := range names {
		name, cluster := strings.CutPrefix(name, "cluster/")
		ref := argov1.AnalysisTemplateRef{TemplateName: name}
		if cluster {
			ref.ClusterScope = new(true)
		}
		out = append(out, ref)
	}
	return out
}

func TestCollectTemplatesFollowsReferencesOnce(t *testing.T) {
	all := map[string][]string{"a": {"b", "cluster/x"}, "b": {"a", "b"}, "cluster/x": {"c"}, "cluster/a": nil, "c": nil}
	get := func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
		if cluster {
			name = "cluster/" + name
		}
		nested, ok := all[name]
		if !ok {
			return argov1.AnalysisTemplateSpec{}, errors.New(name + " is not there")
		}
		return argov1.AnalysisTemplateSpec{Templates: refs(nested...)}, nil
	}
	found, err := analysis.CollectTemplates(refs("cluster/a", "a"), get)
	var names []string
	for _, t := range found {
		name := t.Name
		if t.Cluster {
			name = "cluster/" + name
		}
		names = append(names, name)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "cluster/a", "cluster/x"}, names); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := analysis.CollectTemplates(refs("nobody"), get); err == nil || err.Error() != "nobody is not there" {
		t.Errorf("got %v", err)
	}
}

func TestMergeTemplatesRejectsContradictions(t *testing.T) {
	arg := func(name string, value ...string) argov1.Argument {
		a := argov1.Argument{Name: name}
		if len(value) > 0 {
			a.Value = &value[0]
		}
		return a
	}
	template := func(metrics string, args ...argov1.Argument) analysis.Template {
		spec := argov1.AnalysisTemplateSpec{Args: args}
		for name := range strings.FieldsSeq(metrics) {
			spec.Metrics = append(spec.Metrics, argov1.Metric{Name: name})
		}
		return analysis.Template{Spec: spec}
	}
	dry := func(t analysis.Template, names ...string) analysis.Template {
		for _, name := range names {
			t.Spec.DryRun = append(t.Spec.DryRun, argov1.DryRun{MetricName: name})
			t.Spec.MeasurementRetention = append(t.Spec.MeasurementRetention, argov1.MeasurementRetention{MetricName: name, Limit: 3})
		}
		return t
	}
	spec, err := analysis.MergeTemplates(
		[]analysis.Template{template("a b", arg("host"), arg("limit", "5")), dry(template("c", arg("host", "x"), arg("limit", "5")), "c")},
		analysis.RunOptions{Args: []argov1.Argument{arg("limit", "7"), arg("unknown", "1")}, DryRun: []argov1.DryRun{{MetricName: "a"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := argov1.AnalysisRunSpec{
		Metrics: []argov1.Metric{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Args: []argov1.Argument{arg("host", "x"), arg("limit", "7")},
		DryRun: []argov1.DryRun{{MetricName: "a"}, {MetricName: "c"}}, MeasurementRetention: []argov1.MeasurementRetention{{MetricName: "c", Limit: 3}},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Error(diff)
	}
	for want, templates := range map[string][]analysis.Template{
		"two metrics have the same name 'a'":                                       {template("a"), template("b a")},
		"Argument `host` specified multiple times with different values: 'x', 'y'": {template("a", arg("host", "x")), template("b", arg("host", "y"))},
		"two Dry-Run metric rules have the same name 'a'":                          {dry(template("a"), "a"), dry(template("b"), "a")},
		"args.host was not resolved":                                               {template("a", arg("host"))},
	} {
		if _, err := analysis.MergeTemplates(templates, analysis.RunOptions{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestResolveMetricReplacesArgumentsAndHidesSecrets(t *testing.T) {
	secret := argov1.SecretKeyRef{Name: "token", Key: "key"}
	args := []argov1.Argument{
		{Name: "host", Value: new(`a "quoted" \ name`)},
		{Name: "n", Value: new("3")},
		{Name: "empty"},
		{Name: "token", ValueFrom: &argov1.ValueFrom{SecretKeyRef: &secret}},
	}
	m := metric("m")
	m.Provider.Prometheus.Query = `up{host="{{args.host}}", token="{{ args.token }}"} > {{args.n}}`
	m.Count = new(intstr.FromString("{{args.n}}"))

	shown, err := analysis.ResolveMetric(m, args, nil)
	if want := `up{host="a "quoted" \ name", token="*****"} > 3`; err != nil || shown.Provider.Prometheus.Query != want || shown.Count.IntValue() != 3 {
		t.Errorf("got %q, %v, %v", shown.Provider.Prometheus.Query, shown.Count, err)
	}
	asked, err := analysis.ResolveMetric(m, args, func(ref argov1.SecretKeyRef) (string, error) { return ref.Name + "/" + ref.Key, nil })
	if err != nil || !strings.Contains(asked.Provider.Prometheus.Query, `token="token/key"`) {
		t.Errorf("got %q, %v", asked.Provider.Prometheus.Query, err)
	}
	for query, want := range map[string]string{
		"{{args.nobody}}": "failed to resolve {{args.nobody}}",
		"{{ host }}":      "failed to resolve {{host}}",
		"{{args.empty}}":  `argument "empty" was not supplied`,
	} {
		m.Provider.Prometheus.Query = query
		if _, err := analysis.ResolveMetric(m, args, nil); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", query, err, want)
		}
	}
}

func TestValidateReturnsTheErrorsOfArgoRollouts(t *testing.T) {
	twice := metric("m")
	twice.Provider.Web = &argov1.WebMetric{}
	for want, spec := range map[string]argov1.AnalysisRunSpec{
		"no metrics specified":                                                                         {},
		"metrics[1]: duplicate name 'm'":                                                               {Metrics: []argov1.Metric{metric("m"), metric("m")}},
		"metrics[0]: multiple providers specified":                                                     {Metrics: []argov1.Metric{twice}},
		"metrics[0]: consecutiveSuccessLimit must be >= 0":                                             {Metrics: []argov1.Metric{metric("m", "successes=-1")}},
		"metrics[0]: failureLimit must be >= 0, or -1 to be disabled":                                  {Metrics: []argov1.Metric{metric("m", "failures=-2")}},
		"metrics[0]: failureLimit and consecutiveSuccessLimit cannot both be disabled":                 {Metrics: []argov1.Metric{metric("m", "failures=-1")}},
		"metrics[0]: inconclusiveLimit must be >= 0":                                                   {Metrics: []argov1.Metric{metric("m", "inconclusive=-1")}},
		"metrics[0]: consecutiveErrorLimit must be >= 0":                                               {Metrics: []argov1.Metric{metric("m", "errors=-1")}},
		"metrics[0]: count (4) must be >= failureLimit + consecutiveSuccessLimit (2 + 3) if both >= 0": {Metrics: []argov1.Metric{metric("m", "count=4", "failures=2", "successes=3", "interval=1s")}},
		"metrics[0]: count must be >= consecutiveSuccessLimit":                                         {Metrics: []argov1.Metric{metric("m", "count=2", "failures=-1", "successes=3", "interval=1s")}},
		"metrics[0]: count must be >= inconclusiveLimit":                                               {Metrics: []argov1.Metric{metric("m", "count=1", "inconclusive=2")}},
		"metrics[0]: interval must be specified when count > 1":                                        {Metrics: []argov1.Metric{metric("m", "count=2")}},
		`metrics[0]: invalid interval string: time: invalid duration "soon"`:                           {Metrics: []argov1.Metric{metric("m", "interval=soon")}},
		`metrics[0]: invalid startDelay string: time: invalid duration "soon"`:                         {Metrics: []argov1.Metric{metric("m", "delay=soon")}},
		"dryRun[1]: Rule didn't match any metric name(s)":                                              {Metrics: []argov1.Metric{metric("m")}, DryRun: []argov1.DryRun{{MetricName: "m"}, {MetricName: "x"}}},
		"measurementRetention[0]: Rule didn't match any metric name(s)":                                {Metrics: []argov1.Metric{metric("m")}, MeasurementRetention: []argov1.MeasurementRetention{{MetricName: "("}}},
	} {
		if err := analysis.Validate(spec, spec.Metrics); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
