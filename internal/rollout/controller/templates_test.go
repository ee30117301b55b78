package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
)

// readerWithoutPermission is a reader whose account may read nothing while it is forbidden.
type readerWithoutPermission struct {
	client.Reader
	forbidden bool
}

func (r *readerWithoutPermission) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if r.forbidden {
		return apierrors.NewForbidden(schema.GroupResource{Group: argov1.GroupName, Resource: "clusteranalysistemplates"}, key.Name, nil)
	}
	return r.Reader.Get(ctx, key, into, options...)
}

// TestARolloutWaitsForThePermissionToReadATemplate: a Role cannot grant it for a ClusterAnalysisTemplate. The previous revision is
// still scaled, and the release starts without a notification.
func TestARolloutWaitsForThePermissionToReadATemplate(t *testing.T) {
	const background = "strategy: {canary: {analysis: {templates: [{templateName: errors, clusterScope: true}]}, "
	const experiment = "{experiment: {templates: [{name: x, specRef: canary}], analyses: [{name: a, templateName: errors, clusterScope: true}]}}, "
	for path, manifest := range map[string]string{
		"spec.strategy.canary.analysis.templates":              strings.Replace(cart, "strategy: {canary: {", background, 1),
		"spec.strategy.canary.steps[1].experiment.analyses[0]": strings.Replace(cart, "{pause: {}}", experiment+"{pause: {}}", 1),
	} {
		t.Run(path, func(t *testing.T) {
			p := newFakeCluster(t, manifest, cartService)
			if err := p.client.Create(t.Context(), &argov1.ClusterAnalysisTemplate{ObjectMeta: metav1.ObjectMeta{Name: "errors"}, Spec: argov1.AnalysisTemplateSpec{
				Metrics: []argov1.Metric{{Name: "rate", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://x"}}}},
			}}); err != nil {
				t.Fatal(err)
			}
			templates := &readerWithoutPermission{p.client, true}
			p.reconciler.Runs.ClusterTemplates = templates
			p.settle()
			message := path + `: Forbidden: clusteranalysistemplates.argoproj.io "errors" is forbidden`
			p.waitForEvent("ReconciliationError: Reconciliation failed with error: " + message)
			p.edit(withImage("cart:2"))
			p.edit(func(object *argov1.Rollout) { object.Spec.Replicas = new(int32(3)) })
			p.settle()
			if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=3"}) {
				t.Errorf("ReplicaSets %v", got)
			}
			if status := p.rollout().Status; status.Phase != argov1.RolloutPhaseDegraded || !strings.HasPrefix(status.Message, message) {
				t.Errorf("phase %s: %s", status.Phase, status.Message)
			}
			result, err := p.reconcile()
			if err != nil || result.RequeueAfter <= 0 {
				t.Fatalf("retried after %s, %v", result.RequeueAfter, err)
			}
			p.clock.Step(result.RequeueAfter)
			p.settle()
			if !slices.ContainsFunc(shownGates(p.rollout().Status), func(g reconciler.StatusGate) bool {
				return g.Name == "refused" && strings.HasPrefix(g.Message, message)
			}) {
				t.Errorf("gates %+v", shownGates(p.rollout().Status))
			}
			templates.forbidden = false
			p.settle()
			if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=2", "cart:2=2"}) {
				t.Errorf("with the permission: ReplicaSets %v", got)
			}
		})
	}
}

// TestACommandDoesNotDecideByItsPermissions: a user who may not read a template sees the status of the controller.
func TestACommandDoesNotDecideByItsPermissions(t *testing.T) {
	p := newFakeCluster(t, strings.Replace(cart, "{pause: {}}", "{analysis: {templates: [{templateName: errors, clusterScope: true}]}}", 1), cartService)
	p.reconciler.Runs.ClusterTemplates = &readerWithoutPermission{p.client, true}
	p.reconciler.AnswersFromStatus = true
	if _, err := p.reconciler.Snapshot(t.Context(), p.rollout(), p.clock.Now()); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}
