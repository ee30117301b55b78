package eject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/rollout"
)

// idleCanary returns an idle Canary whose Service Serin created, and whose last release failed.
func idleCanary() *Canary {
	c := &Canary{Controller: explain.Controller{State: explain.Running}, HandOver: Rehearsal{Objects: []string{"Service cart"}}}
	c.Object = &flaggerv1.Canary{}
	c.Object.Namespace, c.Object.Name = "shop", "cart"
	c.Object.Spec.TargetRef.Kind, c.Object.Spec.TargetRef.Name = "Deployment", "cart"
	c.Snapshot = canary.Snapshot{Status: flaggerv1.CanaryStatus{Phase: flaggerv1.CanaryPhaseFailed}}
	return c
}

// healthyRollout returns a complete Rollout whose strategy names a Service.
func healthyRollout() *Rollout {
	r := &Rollout{Controller: explain.Controller{State: explain.Running}, Deployment: Deployment{Name: "web"}, MissingEndpoints: "Service web has 2 of 4"}
	r.Object = &argov1.Rollout{}
	r.Object.Namespace, r.Object.Name = "shop", "web"
	r.Object.Spec.Strategy.Canary = &argov1.CanaryStrategy{StableService: "web"}
	r.Snapshot = rollout.Snapshot{
		Hash: "new", Status: argov1.RolloutStatus{StableRS: "new", CurrentPodHash: "new"}, Services: map[string]rollout.Service{"web": {ManagedBy: "web"}},
		ReplicaSets: []rollout.ReplicaSet{{Name: "web-old", Hash: "old", Replicas: 1}, {Name: "web-new", Hash: "new", Replicas: 2}},
	}
	return r
}

func TestPlansHaveAllStepsInTheirOrder(t *testing.T) {
	referring := healthyRollout()
	referring.Object.Spec.WorkloadRef = &argov1.ObjectRef{Kind: "Deployment", Name: "web", ScaleDown: argov1.ScaleDownOnSuccess}
	referring.Deployment.Found = true
	meshed := healthyRollout()
	meshed.Object.Spec.Strategy.Canary.TrafficRouting = &argov1.RolloutTrafficRouting{AppMesh: &argov1.AppMeshTrafficRouting{}}
	for name, test := range map[string]struct {
		release Release
		want    []Action
	}{
		"Canary": {idleCanary(), []Action{RequestRevert, AwaitFinalizer, Suspend, AwaitSuspended, HandOver, RestoreTarget, Delete, AwaitGone}},
		"Rollout": {healthyRollout(), []Action{
			CreateDeployment, AwaitDeployment, AwaitScaleDown, ReleaseServices, AwaitServices, AwaitEndpoints, Delete,
		}},
		"Rollout with workloadRef": {referring, []Action{
			KeepWorkload, ScaleDeployment, AwaitDeployment, AwaitScaleDown, ReleaseServices, AwaitServices, AwaitEndpoints, Delete,
		}},
		"Rollout with App Mesh": {meshed, []Action{
			AwaitScaleDown, ReleaseServices, AwaitServices, CreateDeployment, AwaitDeployment, AwaitEndpoints, Delete,
		}},
	} {
		steps, err := Plan(test.release)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []Action
		for _, step := range steps {
			got = append(got, step.Action)
			if step.Waits != strings.HasPrefix(string(step.Action), "await-") || step.Waits != strings.HasPrefix(step.Text, "waiting") {
				t.Errorf("%s: step %s waits %v: %s", name, step.Action, step.Waits, step.Text)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if actions := Actions(steps); slices.ContainsFunc(actions, func(s Step) bool { return s.Waits }) || len(actions) == 0 {
			t.Errorf("%s: actions %v", name, actions)
		}
	}
}

func TestARefusalNamesTheReason(t *testing.T) {
	for want, change := range map[string]func(*Canary){
		"and 20% of the requests still reach Deployment cart": func(c *Canary) { c.Snapshot.Route.Canary = 20 },
		"has a version that was not released yet": func(c *Canary) {
			c.Snapshot.Status.Serin = &flaggerv1.SerinStatus{Revision: "s1-failed"}
			c.Snapshot.Workload.Target.Revision = "s1-newer"
		},
		"must be fixed first: Canary web already releases it":              func(c *Canary) { c.Snapshot.TargetConflict = "Canary web already releases it" },
		"ConfigMap env changed":                                            func(c *Canary) { c.RestoreTarget.Problem = "ConfigMap env changed" },
		"HTTPRoute cart routes elsewhere":                                  func(c *Canary) { c.HandOver.Problem = "HTTPRoute cart routes elsewhere" },
		"it is being deleted without spec.revertOnDeletion":                func(c *Canary) { c.Snapshot.Deleting, c.Snapshot.Finalizer = true, true },
		"no running controller was found (no Lease): start it; if it runs": func(c *Canary) { c.Controller = explain.Controller{State: explain.NotFound, Message: "no Lease"} },
	} {
		c := idleCanary()
		change(c)
		_, err := c.Next()
		if refused, ok := errors.AsType[*RefusedError](err); !ok || !strings.HasPrefix(err.Error(), "Canary cart in namespace shop cannot be ejected now: ") || !strings.Contains(refused.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	c := idleCanary()
	c.Controller.State, c.ControllerSpecified = explain.NotFound, true
	if _, err := c.Next(); err != nil {
		t.Errorf("a controller whose flags were specified runs: %v", err)
	}
}

func TestARolloutIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Rollout){
		"a release is in progress or was aborted":          func(r *Rollout) { r.Snapshot.Hash = "newer" },
		"its template is that of PodTemplate web":          func(r *Rollout) { r.Object.Spec.WorkloadRef = &argov1.ObjectRef{Kind: "PodTemplate", Name: "web"} },
		"spec.paused is true":                              func(r *Rollout) { r.Snapshot.Spec.Paused = true },
		"exists and was not created for its stable":        func(r *Rollout) { r.Deployment.Foreign = true },
		"another controller acts on it (Argo is running)":  func(r *Rollout) { r.OtherController.Sign = "Argo is running" },
		"spec.strategy: Invalid value: no strategy is set": func(r *Rollout) { r.Snapshot.ValidationError = "spec.strategy: Invalid value: no strategy is set" },
	} {
		r := healthyRollout()
		change(r)
		if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func TestTheStrategyWithoutServicesHasNoOtherFields(t *testing.T) {
	for _, test := range []struct{ strategy, want map[string]any }{
		{map[string]any{"canary": map[string]any{}}, nil},
		{map[string]any{"canary": map[string]any{"stableService": "web", "steps": []any{}}}, map[string]any{"blueGreen": nil, "canary": map[string]any{"stableService": nil, "steps": nil}}},
		{map[string]any{"canary": map[string]any{"stableMetadata": map[string]any{}}}, nil},
		{map[string]any{"canary": map[string]any{"stableMetadata": map[string]any{}, "steps": []any{}}}, map[string]any{"blueGreen": nil, "canary": map[string]any{"steps": nil}}},
		{map[string]any{"blueGreen": map[string]any{"activeService": "web"}}, map[string]any{"blueGreen": nil, "canary": map[string]any{}}},
	} {
		if diff := cmp.Diff(test.want, StrategyWithoutServices(test.strategy)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.strategy, diff)
		}
	}
}
