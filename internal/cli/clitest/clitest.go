// Package clitest creates observations of releases and fake clusters from the YAML in the test data of the commands.
//
// It must not know the commands, nor how a release is described.
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

// At returns the time of a clock time on Day.
func At(t testing.TB, clock string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, Day+"T"+clock+"Z")
	if err != nil {
		t.Fatalf("read the time %q: %v", clock, err)
	}
	return at
}

// additionalFields are the fields that test data adds to a Canary.
type additionalFields struct {
	State  observedState   `json:"observed"`
	Events []explain.Event `json:"events"`
}

// observedState is the state of the cluster around a Canary.
type observedState struct {
	Target, Primary workloadState
	// Weight is the weight in the live route; nil: the weight in the status.
	Weight *int
	// Mirrored is true if the live route mirrors requests.
	Mirrored bool
	// RouteProblem and TargetProblem are the problems of the route and of the target.
	RouteProblem, TargetProblem string
	// MissingReferences are messages about metric templates that do not exist.
	MissingReferences []string
	// Revision is the revision of the target; empty: the released revision.
	Revision string
	// Assumed is true if the workloads and the route could not be read.
	Assumed bool
	// Unread has one sentence for each kind of object that could not be read.
	Unread []string
	// MinInterval is the minimum analysis interval of the controller, as a duration.
	MinInterval string
	// OtherController is the controller that acts on the release instead of Serin.
	OtherController explain.OtherController
	// PodProblems are the problems of the pods.
	PodProblems []explain.PodProblem
}

// workloadState is the state of the target or of the primary.
type workloadState struct {
	// Desired is the desired number of pods; Available is the number of available pods.
	Desired, Available int32
	// Endpoints is the number of ready endpoints; zero: one for each available pod, negative: none.
	Endpoints int32
	Message   string
	// Missing is true if the workload does not exist.
	Missing bool
}

// ScanObservation parses the input of a datadriven command, and the time in its argument now.
func ScanObservation(t testing.TB, d *datadriven.TestData) (explain.Observation, time.Time) {
	t.Helper()
	var clock string
	d.ScanArgs(t, "now", &clock)
	now := At(t, clock)
	observed, err := ParseObservation(d.Input, now)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return observed, now
}

// ParseObservation parses a Canary in YAML with the additional fields observed and events.
func ParseObservation(text string, now time.Time) (explain.Observation, error) {
	var in additionalFields
	var object flaggerv1.Canary
	for _, target := range []any{&in, &object} {
		if err := yaml.Unmarshal([]byte(text), target); err != nil {
			return nil, fmt.Errorf("read the release: %w", err)
		}
	}
	if object.Namespace == "" {
		object.Namespace = "shop"
	}
	state := in.State
	minInterval := time.Duration(0)
	if state.MinInterval != "" {
		var err error
		if minInterval, err = time.ParseDuration(state.MinInterval); err != nil {
			return nil, fmt.Errorf("read minInterval: %w", err)
		}
	}
	plan := canary.NewPlan(&object, canary.Settings{
		Provider: "istio", MinInterval: minInterval, Drain: 5 * time.Second,
		Features: func(provider string) canary.Features {
			return canary.Features{Known: provider != "nonsense", Weights: true, Matches: true, Mirror: true, WeightedMirror: true, Sticky: true}
		},
	})
	s := canary.Snapshot{
		Now: now, UID: "uid", Generation: object.Generation, Plan: plan, Status: object.Status,
		Deleting: object.DeletionTimestamp != nil, MissingReferences: state.MissingReferences,
		Workload: canary.Workload{Problem: state.TargetProblem, Target: state.Target.canaryState(), Primary: state.Primary.canaryState()},
		Route:    canary.Route{Found: true, Canary: object.Status.CanaryWeight, Mirrored: state.Mirrored, Problem: state.RouteProblem, Confirmation: canary.CannotTell},
	}
	if state.Weight != nil {
		s.Route.Canary = *state.Weight
	}
	s.Workload.Target.FlaggerHash = object.Status.LastAppliedSpec
	if own := object.Status.Serin; own != nil {
		s.Workload.Target.Revision = own.Revision
	} else {
		s.Workload.Target.Revision = "s1-of-" + object.Status.LastAppliedSpec
	}
	if state.Revision != "" {
		s.Workload.Target.Revision, s.Workload.Target.FlaggerHash = state.Revision, "other"
	}
	observed := &explain.Canary{
		SharedObservation: explain.SharedObservation{Unread: state.Unread, Events: in.Events, OtherController: state.OtherController, PodProblems: state.PodProblems},
		Object:            &object, Snapshot: s,
	}
	if state.Assumed {
		observed.Assumed = []release.Part{release.WorkloadPart, release.RoutePart}
	}
	return observed, nil
}

func (c workloadState) canaryState() canary.WorkloadState {
	message := c.Message
	if message == "" && c.Available < c.Desired {
		message = fmt.Sprintf("waiting for rollout to finish: %d of %d updated replicas are available", c.Available, c.Desired)
	}
	return canary.WorkloadState{
		Found: !c.Missing, Replicas: c.Desired, Total: c.Desired, Available: c.Available, Ready: c.Desired > 0 && c.Available == c.Desired, Message: message,
		RequiredPods: c.Desired, Endpoints: release.Endpoints{Ready: max(cmp.Or(c.Endpoints, c.Available), 0)},
	}
}
