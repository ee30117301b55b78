//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

var (
	analysisRuns = argov1.SchemeGroupVersion.WithResource("analysisruns")
	experiments  = argov1.SchemeGroupVersion.WithResource("experiments")
	batchJobs    = batchv1.SchemeGroupVersion.WithResource("jobs")
)

// analysisRun is an AnalysisRun with some metrics, in YAML.
func analysisRun(name string, spec string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: AnalysisRun\nmetadata: {name: " + name + "}\nspec:\n" + indent(spec)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n---\n"
}

// waitForRun waits until check returns nil for the status of an AnalysisRun.
func (s *environment) waitForRun(name, what string, check func(argov1.AnalysisRunStatus) error) argov1.AnalysisRun {
	s.t.Helper()
	var last argov1.AnalysisRun
	s.waitForObject(name+" "+what, analysisRuns, name, func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("there is no run")
		}
		last = convert[argov1.AnalysisRun](s.t, object)
		if err := check(last.Status); err != nil {
			return fmt.Errorf("%w: %s", err, toJSON(s.t, last.Status))
		}
		return nil
	})
	return last
}

func inRunPhase(wanted argov1.AnalysisPhase) func(argov1.AnalysisRunStatus) error {
	return func(status argov1.AnalysisRunStatus) error {
		if status.Phase != wanted {
			return fmt.Errorf("phase %s, want %s", status.Phase, wanted)
		}
		return nil
	}
}

// waitForEventOf waits for an event about an object with the source component of Argo Rollouts.
func (s *environment) waitForEventOf(kind, name, reason, message string) {
	s.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for i := 0; ; {
		states, news := s.events.statesFrom(i)
		for _, e := range states {
			about := e.object.InvolvedObject
			if about.Kind == kind && about.Name == name && e.object.Reason == reason && strings.Contains(e.object.Message, message) {
				if e.object.Source.Component != "rollouts-controller" {
					s.t.Errorf("source of event %s is %q", reason, e.object.Source.Component)
				}
				return
			}
		}
		i += len(states)
		select {
		case <-news:
		case <-deadline.C:
			s.t.Fatalf("wait for event %s %q about %s: it took more than %s", reason, message, name, waitTimeout)
		}
	}
}

// tooLargeRun is an AnalysisRun that etcd stores, but not with the queries of its metrics in the status.
func tooLargeRun(prometheus string) string {
	spec := "args:\n- {name: limit, value: '1 # " + strings.Repeat("x", 25<<10) + "'}\n- {name: unused, value: " + strings.Repeat("x", 1200<<10) + "}\nmetrics:\n"
	for i := range 45 {
		spec += fmt.Sprintf("- {name: m%d, interval: 1h, count: 2, provider: {%s}}\n", i, strings.Replace(prometheus, "vector({{args.limit}})", "{{args.limit}}", 1))
	}
	return analysisRun("too-large", spec)
}

// TestAnalysisRunsOfRealServices measures with the real Prometheus, the API server, and Jobs that run as pods.
func TestAnalysisRunsOfRealServices(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "analysis", "-allow-loopback-hooks")
	prometheus := "prometheus: {address: " + shared.PrometheusURL + ", query: 'vector({{args.limit}})'}"
	api := shared.Config.Host
	s.apply(analysisRun("good", `
args: [{name: limit, value: "5"}]
metrics:
- name: value
  interval: 1s
  count: 3
  successCondition: result[0] == 5
  provider: {`+prometheus+`}
- name: version
  successCondition: result == "1"
  provider: {web: {url: "`+api+`/version", insecure: true, jsonPath: "{$.major}"}}
- name: job
  provider: {job: {spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "`+loadtesterImage+`:e2e", args: ["version"]}]}}}}}
`) + analysisRun("bad", `
args: [{name: limit, value: "7"}]
metrics:
- name: value
  successCondition: result[0] == 5
  provider: {`+prometheus+`}
`) + analysisRun("failing-job", `
metrics:
- name: job
  provider: {job: {spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "`+loadtesterImage+`:e2e", args: ["no-such-command"]}]}}}}}
`) + analysisRun("no-image", `
metrics:
- name: job
  provider: {job: {spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "serin.dev/nowhere:v1"}]}}}}}
`))
	s.apply(tooLargeRun(prometheus))
	good := s.waitForRun("good", "to be successful", inRunPhase(argov1.AnalysisPhaseSuccessful))
	for _, result := range good.Status.MetricResults {
		switch m := result.Measurements[len(result.Measurements)-1]; {
		case result.Name == "value" && (result.Count != 3 || m.Value != "[5]" || result.Metadata["ResolvedPrometheusQuery"] != "vector(5)"),
			result.Name == "version" && m.Value != `"1"`,
			result.Name == "job" && m.Metadata["job-name"] != string(good.UID)+".job.1":
			t.Errorf("measured %s", toJSON(t, result))
		}
	}
	job := s.get(batchJobs, string(good.UID)+".job.1")
	if owners := job.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != good.UID {
		t.Errorf("the Job is owned by %v", owners)
	}
	bad := s.waitForRun("bad", "to fail", inRunPhase(argov1.AnalysisPhaseFailed))
	if want := `Metric "value" assessed Failed due to failed (1) > failureLimit (0)`; bad.Status.Message != want {
		t.Errorf("says %q, want %q", bad.Status.Message, want)
	}
	s.waitForEventOf("AnalysisRun", "bad", "MetricFailed", "Metric 'value' Completed. Result: Failed")
	s.waitForEventOf("AnalysisRun", "bad", "AnalysisRunFailed", "Analysis Completed. Result: Failed")
	s.waitForRun("failing-job", "to fail", inRunPhase(argov1.AnalysisPhaseFailed))
	stuck := s.waitForRun("no-image", "to be inconclusive", inRunPhase(argov1.AnalysisPhaseInconclusive))
	if text := stuck.Status.MetricResults[0].Measurements[0].Message; !strings.Contains(text, "container main has terminal error") {
		t.Errorf("says %q", text)
	}
	large := s.waitForRun("too-large", "to end", inRunPhase(argov1.AnalysisPhaseError))
	if !strings.HasPrefix(large.Status.Message, "The results of the metrics are not stored") || len(large.Status.MetricResults) > 0 {
		t.Errorf("the run that is too large: %q with %d results", large.Status.Message, len(large.Status.MetricResults))
	}
}

// TestAnalysisSurvivesARestartOfItsController kills Serin during a run and its Job, and checks that each measurement is taken
// once.
func TestAnalysisSurvivesARestartOfItsController(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "analysis-killed", "-allow-loopback-hooks")
	s.apply(analysisRun("long", `
args: [{name: hidden, valueFrom: {secretKeyRef: {name: hidden, key: value}}}]
metrics:
- name: value
  interval: 1s
  count: 12
  successCondition: result[0] == {{args.hidden}}
  provider: {prometheus: {address: `+shared.PrometheusURL+`, query: "vector({{args.hidden}})"}}
- name: job
  provider: {job: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: "serin.dev/demo:v1", env: [{name: CRASH_AFTER, value: 10s}]}]}}, backoffLimit: 0}}}
  failureLimit: 1
`) + `
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {value: "73501"}
`)
	measured := func(n int) func(argov1.AnalysisRunStatus) error {
		return func(status argov1.AnalysisRunStatus) error {
			for _, r := range status.MetricResults {
				if r.Name == "value" && len(r.Measurements) >= n {
					return nil
				}
			}
			return fmt.Errorf("fewer than %d measurements", n)
		}
	}
	s.waitForRun("long", "to have measured", measured(2))
	if err := shared.Kill(s.processName()); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	done := s.waitForRun("long", "to be successful", inRunPhase(argov1.AnalysisPhaseSuccessful))
	if value := done.Status.MetricResults[0]; value.Count != 12 || value.Error != 0 {
		t.Errorf("measured %s", toJSON(t, value))
	}
	if text := toJSON(t, done.Status); strings.Contains(text, "73501") || !strings.Contains(text, "*****") {
		t.Errorf("the status shows a Secret: %s", text)
	}
	all, err := shared.Dynamic.Resource(batchJobs).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Errorf("%d Jobs, %v", len(all.Items), err)
	}
}

// TestAnExperimentComparesTwoTemplates runs two templates side by side with an analysis, and kills Serin in the middle.
func TestAnExperimentComparesTwoTemplates(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "experiment", "-allow-loopback-hooks")
	side := func(name, more string) string {
		return `
- name: ` + name + `
  ` + more + `
  selector: {matchLabels: {app: cart, side: ` + name + `}}
  template:
    metadata: {labels: {app: cart, side: ` + name + `}}
    spec: {containers: [` + toJSON(t, container("v1", nil)) + `]}`
	}
	s.apply(`
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: hash}
spec:
  args: [{name: hash}]
  metrics:
  - name: up
    interval: 1s
    successCondition: result[0] == 1
    provider: {prometheus: {address: ` + shared.PrometheusURL + `, query: 'vector(1) # {{args.hash}}'}}
---
apiVersion: argoproj.io/v1alpha1
kind: Experiment
metadata: {name: compare}
spec:
  duration: 10s
  scaleDownDelaySeconds: 2
  templates:` + strings.ReplaceAll(side("baseline", "replicas: 1")+side("candidate", "service: {}"), "\n", "\n  ") + `
  analyses:
  - name: up
    templateName: hash
    args: [{name: hash, value: "{{templates.candidate.podTemplateHash}}"}]
`)
	phase := func(wanted argov1.AnalysisPhase) argov1.Experiment {
		var last argov1.Experiment
		s.waitForObject("the Experiment is "+string(wanted), experiments, "compare", func(object *unstructured.Unstructured) error {
			if object == nil {
				return errors.New("there is none")
			}
			last = convert[argov1.Experiment](t, object)
			if last.Status.Phase != wanted {
				return errors.New(toJSON(t, last.Status))
			}
			return nil
		})
		return last
	}
	phase(argov1.AnalysisPhaseRunning)
	s.get(services, "compare-candidate")
	s.waitForRun("compare-up", "to have measured", func(status argov1.AnalysisRunStatus) error {
		if len(status.MetricResults) == 0 || status.MetricResults[0].Count == 0 {
			return errors.New("nothing is measured")
		}
		return nil
	})
	if err := shared.Kill(s.processName()); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	done := phase(argov1.AnalysisPhaseSuccessful)
	measured := s.waitForRun("compare-up", "to be successful", inRunPhase(argov1.AnalysisPhaseSuccessful))
	hash := ""
	for _, side := range done.Status.TemplateStatuses {
		if side.Name == "candidate" {
			hash = side.PodTemplateHash
		}
	}
	if got := *measured.Spec.Args[0].Value; got != hash || hash == "" {
		t.Errorf("the analysis is about %q, the template is %q", got, hash)
	}
	for _, name := range []string{"compare-baseline", "compare-candidate"} {
		s.waitForObject(name+" has gone to zero", replicaSets, name, func(object *unstructured.Unstructured) error {
			if set := convert[appsv1.ReplicaSet](t, object); *set.Spec.Replicas != 0 || set.Status.Replicas != 0 {
				return fmt.Errorf("has %d pods", set.Status.Replicas)
			}
			return nil
		})
	}
	s.waitForObject("the Service is deleted", services, "compare-candidate", checkAbsent)
	s.waitForEventOf("Experiment", "compare", "ExperimentSuccessful", "Experiment transitioned from Running -> Successful")
	s.waitForEventOf("Experiment", "compare", "TemplateRunning", "Template 'candidate' transitioned from Progressing -> Running")
}

// TestAnalysesDetermineTheOutcomeOfARollout has a step with a successful analysis, and one whose failed analysis aborts the
// release.
func TestAnalysesDetermineTheOutcomeOfARollout(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "analysed", "-allow-loopback-hooks")
	template := func(name, condition string) string {
		return `
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: ` + name + `}
spec:
  args: [{name: hash}]
  metrics:
  - name: value
    successCondition: ` + condition + `
    provider: {prometheus: {address: ` + shared.PrometheusURL + `, query: 'vector(1) # {{args.hash}}'}}
---
`
	}
	s.apply(template("good", "result[0] == 1") + template("bad", "result[0] == 2") + rolloutManifest(t, "cart", 1, `{canary: {steps: [
  {analysis: {templates: [{templateName: good}], args: [{name: hash, valueFrom: {podTemplateHashValue: Latest}}]}}, {pause: {}},
  {analysis: {templates: [{templateName: bad}], args: [{name: hash, value: x}]}}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.releaseVersion("cart", "v2")
	paused := s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	first := s.waitForRun(fmt.Sprintf("cart-%s-2-0", paused.Status.CurrentPodHash), "to be successful", inRunPhase(argov1.AnalysisPhaseSuccessful))
	if got := *first.Spec.Args[0].Value; got != paused.Status.CurrentPodHash {
		t.Errorf("the analysis is about %q, want %q", got, paused.Status.CurrentPodHash)
	}
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, `Metric "value" assessed Failed due to failed (1) > failureLimit (0)`)
	s.waitForRun(fmt.Sprintf("cart-%s-2-2", paused.Status.CurrentPodHash), "to fail", inRunPhase(argov1.AnalysisPhaseFailed))
}
