package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/nginx"
)

// resumed is a pocket with one pod, whose cart a person has just let go from a pause to the next weight.
func resumed(t *testing.T) *pocket {
	t.Helper()
	p := newPocket(t, routedObjects...)
	p.reconciler.Routers = traffic.RolloutRenderers{Nginx: nginx.NewRollout()}
	p.edit(func(object *argov1.Rollout) {
		c := object.Spec.Strategy.Canary
		pause := argov1.CanaryStep{Pause: &argov1.RolloutPause{}}
		c.TrafficRouting.Istio, c.TrafficRouting.ManagedRoutes = nil, nil
		c.Steps = []argov1.CanaryStep{{SetWeight: new(int32(10))}, pause, {SetWeight: new(int32(20))}, pause}
		object.Spec.Replicas = new(int32(1))
	})
	p.settle()
	p.edit(image("cart:2"))
	p.settle()
	p.until("RolloutPaused")
	object := p.rollout()
	if object.Status.CurrentStepIndex == nil || *object.Status.CurrentStepIndex != 1 {
		t.Fatalf("phase %s: %s, at step %v", object.Status.Phase, object.Status.Message, object.Status.CurrentStepIndex)
	}
	object.Status.PauseConditions = nil
	if err := p.client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told, p.writes = nil, nil
	return p
}

func (p *pocket) at(step, weight int32) {
	p.Helper()
	status := p.rollout().Status
	if *status.CurrentStepIndex != step || status.Canary.Weights.Canary.Weight != weight {
		p.Errorf("it is at step %d with weight %d, and should be at step %d with weight %d", *status.CurrentStepIndex, status.Canary.Weights.Canary.Weight, step, weight)
	}
}

// reasons are those of the events that were told.
func (p *pocket) reasons() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var reasons []string
	for _, text := range p.told {
		reasons = append(reasons, strings.SplitN(text, ":", 2)[0])
	}
	return reasons
}

func TestAPauseAndTheWeightBehindItAreToldInTheirOrder(t *testing.T) {
	p := resumed(t)
	if _, err := p.pass(); err != nil {
		t.Fatal(err)
	}
	p.at(3, 20)
	p.until("RolloutPaused")
	if want := []string{"patch Unstructured cart-cart-canary", "patch status Rollout cart"}; !slices.Equal(p.writes, want) {
		t.Errorf("it wrote %q, and should write %q", p.writes, want)
	}
	if got, want := p.reasons(), []string{"RolloutStepCompleted", "PatchingCanaryIngress", "TrafficWeightUpdated", "RolloutStepCompleted", "RolloutPaused"}; !slices.Equal(got, want) {
		t.Errorf("told %q, and should tell %q", got, want)
	}
}

// A route that cannot be written keeps no pause going that is over: the status says at which step the route is missing.
func TestAPauseEndsAlthoughTheRouteBehindItFails(t *testing.T) {
	p := resumed(t)
	p.refuse = func(_ string, object client.Object) error {
		if object.GetName() == "cart-cart-canary" {
			return apierrors.NewForbidden(schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, object.GetName(), errAway)
		}
		return nil
	}
	if _, err := p.pass(); err != nil {
		t.Fatal(err)
	}
	p.at(2, 10)
	if status := p.rollout().Status; len(status.PauseConditions) > 0 || status.Phase != argov1.RolloutPhaseProgressing {
		t.Errorf("phase %s (%s)", status.Phase, status.Message)
	}
	if _, err := p.pass(); err == nil {
		t.Error("what failed is not tried again")
	}
	p.at(2, 10)
	p.refuse = nil
	p.settle()
	p.at(3, 20)
}

// What has happened is told although the status could not be written, and what is only said there is told once.
func TestARouteIsToldAlthoughTheStatusBehindItFails(t *testing.T) {
	p := resumed(t)
	p.refuse = func(verb string, _ client.Object) error {
		if verb == "patch status" {
			return errAway
		}
		return nil
	}
	if _, err := p.pass(); err == nil {
		t.Error("what failed is not tried again")
	}
	p.refuse = nil
	p.settle()
	p.at(3, 20)
	p.until("RolloutPaused")
	if got, want := p.reasons(), []string{"PatchingCanaryIngress", "RolloutStepCompleted", "TrafficWeightUpdated", "RolloutStepCompleted", "RolloutPaused"}; !slices.Equal(got, want) {
		t.Errorf("told %q, and should tell %q", got, want)
	}
}

func TestAPauseBeginsWhenItsWeightIsThere(t *testing.T) {
	p := resumed(t)
	p.refuse = func(_ string, object client.Object) error {
		if object.GetName() == "cart-cart-canary" {
			p.clock.Step(3 * time.Second) // is how long the request takes
		}
		return nil
	}
	if _, err := p.pass(); err != nil {
		t.Fatal(err)
	}
	p.at(3, 20)
	if began := p.rollout().Status.Serin.PausedAt; !began.Time.Equal(p.clock.Now()) {
		t.Errorf("the pause began at %s, and the weight was there at %s", began, p.clock.Now())
	}
}
