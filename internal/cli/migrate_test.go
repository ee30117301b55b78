package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/migrate"
)

// runMigrate executes serin migrate with these arguments.
func runMigrate(t *testing.T, w *clitest.FakeCluster, args ...string) (out, stderrText string, code int) {
	t.Helper()
	root := &cobra.Command{Use: "serin", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newMigrateCommand(func(*connection, controllerFlags) (*cluster.Session, string, error) { return w.Session, "shop", nil }))
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = Run(t.Context(), root, append([]string{"migrate"}, args...), &stderr)
	return stdout.String(), stderr.String(), code
}

func TestMigrateReportsTheOutcomeForCanaries(t *testing.T) {
	midRelease := []string{"phase: Succeeded", "phase: Progressing", "canaryWeight: 0", "canaryWeight: 20", "weight: 100", "weight: 80", "weight: 0}", "weight: 20}", "replicas: 0\n", "replicas: 1\n", "status: {observedGeneration: 3}", "status: {observedGeneration: 3, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}"}
	newTemplate := []string{`image: "cart:2", ports: [{name: http, containerPort: 8080}]}]}
status: {observedGeneration: 3`, `image: "cart:3", ports: [{name: http, containerPort: 8080}]}]}
status: {observedGeneration: 3`}
	for _, tt := range []struct {
		name      string
		replace   []string // pairs of old and new text in the manifests of Flagger
		more      string
		forbidden []string
		outcome   migrate.Outcome
		contains  []string
		writes    []string
		code      int
	}{
		{name: "idle", outcome: migrate.Adopt, contains: []string{"No running Flagger was found", "cart.shop: Adopted unchanged: no release starts", "1 Canary: 1 idle. No release requires attention."}},
		{
			name: "Flagger is running", more: clitest.FlaggerDeployment, outcome: migrate.Adopt,
			contains: []string{"Flagger is running: Deployment flagger in namespace flagger-system has 1 ready pods", "kubectl -n flagger-system scale deployment/flagger --replicas=0"},
		},
		{name: "a hash set by hand", replace: []string{"lastAppliedSpec: 5fcc94f9fb", "lastAppliedSpec: v1.2.3"}, outcome: migrate.Adopt, contains: []string{`status.lastAppliedSpec is "v1.2.3", which neither Flagger nor Serin wrote`}},
		{name: "a change that was not released", replace: newTemplate, outcome: migrate.Release, contains: []string{"A release would start: the revision of Deployment/cart is neither"}, code: ExitCheck},
		{name: "a failed release", replace: append([]string{"phase: Succeeded", "phase: Failed", "lastPromotedSpec: 5fcc94f9fb", "lastPromotedSpec: b5dc9c69"}, newTemplate...), outcome: migrate.Adopt},
		{
			name: "mid-release", replace: append(slices.Clone(midRelease), newTemplate...), outcome: migrate.Continue,
			contains: []string{"A release is in progress (Progressing, weight 20, 0 of 2 failed checks) and would continue. Its window of 30s starts again", "Next: weight 40."},
		},
		{
			name: "an unsupported provider", replace: []string{"provider: gatewayapi:v1", "provider: teleport"}, outcome: migrate.Blocked, code: ExitCheck,
			contains: []string{`spec.provider: unknown provider "teleport"`},
		},
		{
			name: "a missing template", replace: []string{"- {name: request-success-rate,", "- {name: errors, templateRef: {name: errors},"}, outcome: migrate.Adopt,
			contains: []string{"Adopted unchanged", "A release would fail its checks: Metric template errors.shop error"},
		},
		{
			name: "an unsupported metrics service", replace: []string{"- {name: request-success-rate,", "- {name: errors, templateRef: {name: errors},"}, code: ExitCheck, outcome: migrate.Blocked,
			more:     "\n---\napiVersion: flagger.app/v1beta1\nkind: MetricTemplate\nmetadata: {name: errors, namespace: shop}\nspec: {provider: {type: crystalball, address: \"http://x\"}, query: up}",
			contains: []string{"metric template errors.shop has provider type crystalball"},
		},
		{
			name: "an unsupported kind of workload", replace: []string{"kind: Deployment, name: cart}", "kind: Fleet, name: cart}"}, outcome: migrate.Blocked, code: ExitCheck,
			contains: []string{"spec.targetRef.kind Fleet is not supported"},
		},
		{name: "an edited Service", replace: []string{"selector: {app: cart}, ports", "selector: {app: cort}, ports"}, outcome: migrate.Adopt, writes: []string{"patch Service shop/cart-canary"}, contains: []string{"Besides the status, Serin would patch Service shop/cart-canary."}},
		{name: "not initialized", replace: []string{"phase: Succeeded", "phase: \"\""}, outcome: migrate.Continue, contains: []string{"Not initialized yet"}},
		{name: "no permission to read Deployments", forbidden: []string{"Deployment"}, outcome: migrate.Unknown, code: ExitCheck, contains: []string{"Unknown", "Incomplete: No permission to read Deployments in all namespaces."}},
		{name: "no permission to read Secrets", forbidden: []string{"Secret"}, outcome: migrate.Adopt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				manifests := clitest.FlaggerCart
				for i := 0; i < len(tt.replace); i += 2 {
					if !strings.Contains(manifests, tt.replace[i]) {
						t.Fatalf("no %q in the manifests", tt.replace[i])
					}
					manifests = strings.Replace(manifests, tt.replace[i], tt.replace[i+1], 1)
				}
				w := clitest.NewFakeCluster(t, manifests+tt.more)
				before := w.Versions(t)
				w.Forbid(tt.forbidden...)
				out, notes, code := runMigrate(t, w, "--check")
				if code != tt.code {
					t.Errorf("exit code %d, want %d: %s%s", code, tt.code, out, notes)
				}
				for _, text := range tt.contains {
					if !strings.Contains(out, text) {
						t.Errorf("output lacks %q:\n%s", text, out)
					}
				}
				document, _, _ := runMigrate(t, w, "--check", "-o", "json")
				var report migrate.Report
				if err := json.Unmarshal([]byte(document), &report); err != nil {
					t.Fatal(err)
				}
				if len(report.Canaries) != 1 || report.Canaries[0].Outcome != tt.outcome || report.Ready != (tt.code == ExitDone) {
					t.Errorf("want one Canary with the outcome %s:\n%s", tt.outcome, document)
				} else if !slices.Equal(report.Canaries[0].Writes, tt.writes) && tt.outcome == migrate.Adopt {
					t.Errorf("would write %v, want %v", report.Canaries[0].Writes, tt.writes)
				}
				if after := w.Versions(t); after != before {
					t.Errorf("the command changed the cluster:\n%s\n%s", before, after)
				}
			})
		})
	}
}

func TestMigrateExitCodesOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.FlaggerCart)
		for _, tt := range []struct {
			args []string
			want int
		}{{nil, ExitUsage}, {[]string{"--check", "cart"}, ExitUsage}, {[]string{"--check", "-o", "xml"}, ExitUsage}} {
			if _, notes, code := runMigrate(t, w, tt.args...); code != tt.want {
				t.Errorf("%v: exit code %d, want %d: %s", tt.args, code, tt.want, notes)
			}
		}
		w.FailRequests(errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"))
		if _, notes, code := runMigrate(t, w, "--check"); code != ExitUnreachable {
			t.Errorf("without a cluster: exit code %d: %s", code, notes)
		}
	})
}

func TestMigrateReportsTheOutcomeForRollouts(t *testing.T) {
	healthy := []string{
		"phase: Paused\n  message: CanaryPauseStep", "phase: Healthy", "stableRS: old", "stableRS: new", "currentStepIndex: 1", "currentStepIndex: 5",
		"controllerPause: true\n  pauseConditions: [{reason: CanaryPauseStep, startTime: \"1999-12-31T23:59:00Z\"}]", "controllerPause: false", "updatedReplicas: 1", "updatedReplicas: 4",
		"spec:\n  replicas: 3", "spec:\n  replicas: 0", "status: {replicas: 3, readyReplicas: 3, availableReplicas: 3", "status: {replicas: 0, readyReplicas: 0, availableReplicas: 0",
		"spec:\n  replicas: 1", "spec:\n  replicas: 4", "status: {replicas: 1, readyReplicas: 1, availableReplicas: 1", "status: {replicas: 4, readyReplicas: 4, availableReplicas: 4",
		"  conditions:\n  - {type: Progressing, status: Unknown, reason: RolloutPaused, message: \"Rollout is paused\",", "  conditions:\n  - {type: Progressing, status: \"True\", reason: NewReplicaSetAvailable, message: \"done\",",
		"  - {type: Paused, status: \"True\", reason: RolloutPaused, message: \"Rollout is paused\",", "  - {type: Completed, status: \"True\", reason: RolloutCompleted, message: \"done\",",
	}
	for _, tt := range []struct {
		name      string
		replace   []string // pairs of old and new text in the manifests of Argo Rollouts
		more      string
		forbidden []string
		outcome   migrate.Outcome
		contains  []string
		code      int
	}{
		{name: "idle", replace: healthy, outcome: migrate.Adopt, contains: []string{"No running Argo Rollouts was found", "Rollout web.shop: Adopted unchanged: no release starts", "1 Rollout: 1 idle. No release requires attention."}},
		{
			name: "Argo Rollouts is running", more: clitest.ArgoRolloutsDeployment, outcome: migrate.Continue,
			contains: []string{"Argo Rollouts is running: Deployment argo-rollouts in namespace argo-rollouts has 1 ready pods", "kubectl -n argo-rollouts scale deployment/argo-rollouts --replicas=0"},
		},
		{name: "mid-release", outcome: migrate.Continue, contains: []string{"A release is in progress (Paused, step 2 of 5, the new revision receives 25% of the traffic) and would continue. It waits for the user: until the user promotes the rollout. Next: analysis."}},
		{
			name: "a change that was not released", replace: append([]string{`spec: {containers: [{name: web, image: "web:v2"}]}
  strategy:`, `spec: {containers: [{name: web, image: "web:v3"}]}
  strategy:`, "uid: web-uid, generation: 2", "uid: web-uid, generation: 3"}, healthy...), outcome: migrate.Release, contains: []string{"A release would start"}, code: ExitCheck,
		},
		{name: "a step of a plugin", replace: []string{"{setWeight: 25}", "{plugin: {name: acme/step}}"}, outcome: migrate.Blocked, contains: []string{"Its steps call plugin acme/step"}, code: ExitCheck},
		{name: "an unsupported router", replace: []string{"      steps:", "      stableService: a\n      canaryService: b\n      trafficRouting: {plugins: {acme/mesh: {}}}\n      steps:"}, outcome: migrate.Blocked, code: ExitCheck, contains: []string{"Serin would reject it"}},
		{name: "a missing template", replace: []string{"metadata: {name: success, namespace: shop}", "metadata: {name: other, namespace: shop}"}, outcome: migrate.Blocked, code: ExitCheck, contains: []string{"AnalysisTemplate 'success' not found"}},
		{
			name: "a metric of a plugin", replace: []string{`successCondition: result[0] >= 0.95
    provider: {prometheus: {address: "http://prometheus:9090", query: "sum(rate(x[1m]))"}}
---`, `successCondition: result[0] >= 0.95
    provider: {plugin: {acme/metric: {}}}
---`}, outcome: migrate.Continue, code: ExitCheck, contains: []string{"AnalysisTemplate success.shop measures success-rate with a plugin"},
		},
		{name: "notifications", replace: []string{`{rollout.argoproj.io/revision: "2"}}`, `{rollout.argoproj.io/revision: "2", notifications.argoproj.io/subscribe.on-rollout-completed.slack: shop}}`}, outcome: migrate.Continue, contains: []string{"Serin sends them, except to GitHub and Amazon SQS"}},
		{name: "an instance ID", replace: []string{"labels: {team: shop}", "labels: {team: shop, argo-rollouts.argoproj.io/controller-instance-id: blue}", "kind: AnalysisTemplate\nmetadata: {name: success, namespace: shop}", "kind: AnalysisTemplate\nmetadata: {name: success, namespace: shop, labels: {argo-rollouts.argoproj.io/controller-instance-id: blue}}"}, outcome: migrate.Continue, contains: []string{"by --instance-id: blue."}},
		{
			name: "Istio's objects are in another cluster", replace: []string{"      steps:", "      stableService: a\n      canaryService: b\n      trafficRouting: {istio: {virtualService: {name: web}}}\n      steps:"},
			more:    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: mesh, namespace: istio-system, labels: {istio.argoproj.io/primary-cluster: \"true\"}}\n",
			outcome: migrate.Unknown, code: ExitCheck, contains: []string{"Unknown: A Secret with the label istio.argoproj.io/primary-cluster refers to another cluster"},
		},
		{name: "no permission to read ReplicaSets", forbidden: []string{"ReplicaSet"}, outcome: migrate.Unknown, code: ExitCheck, contains: []string{"Unknown"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				manifests := clitest.WebRollout
				for i := 0; i < len(tt.replace); i += 2 {
					if !strings.Contains(manifests, tt.replace[i]) {
						t.Fatalf("no %q in the manifests", tt.replace[i])
					}
					manifests = strings.Replace(manifests, tt.replace[i], tt.replace[i+1], 1)
				}
				w := clitest.NewFakeCluster(t, manifests+tt.more)
				before := w.Versions(t)
				w.Forbid(tt.forbidden...)
				w.Uninstall("Canary")
				out, notes, code := runMigrate(t, w, "--check")
				if code != tt.code {
					t.Errorf("exit code %d, want %d: %s%s", code, tt.code, out, notes)
				}
				for _, text := range tt.contains {
					if !strings.Contains(out, text) {
						t.Errorf("output lacks %q:\n%s", text, out)
					}
				}
				document, _, _ := runMigrate(t, w, "--check", "-o", "json")
				var report migrate.Report
				if err := json.Unmarshal([]byte(document), &report); err != nil {
					t.Fatal(err)
				}
				if len(report.Rollouts) != 1 || report.Rollouts[0].Outcome != tt.outcome || report.Ready != (tt.code == ExitDone) {
					t.Errorf("want one Rollout with the outcome %s:\n%s", tt.outcome, document)
				}
				if after := w.Versions(t); after != before {
					t.Errorf("the command changed the cluster:\n%s\n%s", before, after)
				}
			})
		})
	}
}

// A Canary whose deletion is an outage is reported, and is no finding.
func TestMigrateWarnsAboutCanariesWithoutRevertOnDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const warning = "Without spec.revertOnDeletion, deleting it removes the Services and the route: run serin eject cart -n shop instead."
		for manifest, want := range map[string]bool{
			clitest.FlaggerCart: true,
			strings.Replace(clitest.FlaggerCart, "spec:\n", "spec:\n  revertOnDeletion: true\n", 1): false,
		} {
			out, _, code := runMigrate(t, clitest.NewFakeCluster(t, manifest), "--check")
			if code != ExitDone || strings.Contains(out, warning) != want {
				t.Errorf("want the warning: %v, exit code %d: %s", want, code, out)
			}
		}
	})
}
