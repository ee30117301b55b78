// Package clitest creates observations of releases and fake clusters from texts in the test data of commands.
//
// It must not know commands, nor how a release is described.
package clitest

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// Day is the date of all times of day in tests.
const Day = "2026-01-02"

// At returns the time for a time of day.
func At(t testing.TB, clock string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, Day+"T"+clock+"Z")
	if err != nil {
		t.Fatalf("read the time %q: %v", clock, err)
	}
	return at
}

// input has the additional fields of a Canary in the text of a command.
type input struct {
	World  world           `json:"world"`
	Events []explain.Event `json:"events"`
}

type world struct {
	Target, Primary copyOf
	// Route is the live weight; nil: the weight in the status.
	Route *int
	// Mirrored route.
	Mirrored bool
	// Problem of the route, of the target.
	RouteProblem, Problem string
	// Revision of the target; empty: the released one.
	Revision string
	// Assumed workload and route.
	Assumed bool
	Unread  []string
	Floor   string
	// OtherController acts on the release instead of Serin.
	OtherController explain.OtherController
}

type copyOf struct {
	Want, Have int32
	// Reached is the number of published endpoints; zero: as many as there are pods, negative: none.
	Reached int32
	Message string
}

// Seen reads the input of a command, and the time in its argument now.
func Seen(t testing.TB, d *datadriven.TestData) (explain.Observation, time.Time) {
	t.Helper()
	var clock string
	d.ScanArgs(t, "now", &clock)
	now := At(t, clock)
	seen, err := Parse(d.Input, now)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return seen, now
}

// Parse reads a Canary in YAML with the additional fields world and events.
func Parse(text string, now time.Time) (explain.Observation, error) {
	var in input
	var object flaggerv1.Canary
	for _, into := range []any{&in, &object} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			return nil, fmt.Errorf("read the release: %w", err)
		}
	}
	if object.Namespace == "" {
		object.Namespace = "shop"
	}
	w := in.World
	floor := time.Duration(0)
	if w.Floor != "" {
		var err error
		if floor, err = time.ParseDuration(w.Floor); err != nil {
			return nil, fmt.Errorf("read the floor: %w", err)
		}
	}
	plan := canary.NewPlan(&object, canary.Settings{
		Provider: "istio", MinInterval: floor, Drain: 5 * time.Second,
		Features: func(provider string) canary.Features {
			return canary.Features{Known: provider != "nonsense", Weights: true, Matches: true, Mirror: true, WeightedMirror: true, Sticky: true}
		},
	})
	s := canary.Snapshot{
		Now: now, UID: "uid", Generation: object.Generation, Plan: plan, Status: object.Status,
		Deleting: object.DeletionTimestamp != nil,
		Workload: canary.Workload{Problem: w.Problem, Target: w.Target.copy(), Primary: w.Primary.copy()},
		Route:    canary.Route{Found: true, Canary: object.Status.CanaryWeight, Mirrored: w.Mirrored, Problem: w.RouteProblem, Confirmation: canary.CannotTell},
	}
	if w.Route != nil {
		s.Route.Canary = *w.Route
	}
	s.Workload.Target.FlaggerHash = object.Status.LastAppliedSpec
	if own := object.Status.Serin; own != nil {
		s.Workload.Target.Revision = own.Revision
	} else {
		s.Workload.Target.Revision = "s1-of-" + object.Status.LastAppliedSpec
	}
	if w.Revision != "" {
		s.Workload.Target.Revision, s.Workload.Target.FlaggerHash = w.Revision, "other"
	}
	seen := &explain.Canary{
		Context: explain.Context{Unread: w.Unread, Events: in.Events, OtherController: w.OtherController},
		Object:  &object, Snapshot: s,
	}
	if w.Assumed {
		seen.Assumed = []release.Part{release.WorkloadPart, release.RoutePart}
	}
	return seen, nil
}

func (c copyOf) copy() canary.WorkloadState {
	message := c.Message
	if message == "" && c.Have < c.Want {
		message = fmt.Sprintf("waiting for rollout to finish: %d of %d updated replicas are available", c.Have, c.Want)
	}
	return canary.WorkloadState{
		Found: true, Replicas: c.Want, Total: c.Want, Available: c.Have, Ready: c.Want > 0 && c.Have == c.Want, Message: message,
		RequiredPods: c.Want, Endpoints: release.Endpoints{Ready: max(cmp.Or(c.Reached, c.Have), 0)},
	}
}
