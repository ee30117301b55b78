//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// The plan in canary.yaml.
const (
	canaryWindow    = 2 * time.Second
	canaryThreshold = 3
)

var (
	canaryResource     = flaggerv1.SchemeGroupVersion.WithResource("canaries")
	deploymentResource = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// canaryAPI are Deployments with a Canary.
var canaryAPI = &releaseAPI{
	name: "canary", manifests: canaryManifests, kind: flaggerv1.CanaryKind, target: deploymentResource, weights: []int64{20, 40, 60},
	phases: []string{"Initializing", "Progressing", "Promoting", "Finalising"},
	phase: func(object *unstructured.Unstructured) string {
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return phase
	},
	checkIdle: func(h *history, name string) error {
		c, err := latestAs[flaggerv1.Canary](h, flaggerv1.CanaryKind, name)
		if err == nil && c.Status.Phase != flaggerv1.CanaryPhaseInitialized {
			err = fmt.Errorf("%s is %s", name, c.Status.Phase)
		}
		return err
	},
	checkEnded: func(h *history, r *release) (bool, error) {
		c, err := latestAs[flaggerv1.Canary](h, r.kind, r.name)
		if err != nil {
			return false, err
		}
		before, err := convert[flaggerv1.Canary](r.before)
		if err != nil {
			return false, err
		}
		st := c.Status
		succeeded := st.Phase == flaggerv1.CanaryPhaseSucceeded
		if st.LastAppliedSpec == before.Status.LastAppliedSpec || !succeeded && st.Phase != flaggerv1.CanaryPhaseFailed {
			return false, fmt.Errorf("phase %s, weight %d, failed checks %d, waits for %s", st.Phase, st.CanaryWeight, st.FailedChecks, describeGates(st.Serin))
		}
		if succeeded != (st.LastPromotedSpec == st.LastAppliedSpec) {
			return false, fmt.Errorf("phase %s, promoted spec %s, applied spec %s", st.Phase, st.LastPromotedSpec, st.LastAppliedSpec)
		}
		return succeeded, checkUsersOnStable(h, r.name)
	},
	checkInvariants: checkCanary,
}

// describeGates returns the gates that are not open.
func describeGates(st *flaggerv1.SerinStatus) string {
	if st == nil {
		return "nothing"
	}
	var closed []string
	for _, g := range st.Gates {
		if g.Verdict != "pass" {
			closed = append(closed, g.Name+": "+g.Message)
		}
	}
	return strings.Join(closed, "; ")
}

// checkCanary checks a release of a Canary.
func checkCanary(_ context.Context, s *stage, r *release) {
	var windows []flaggerv1.AnalysisWindow
	observedWeights := map[int]bool{}
	failed := 0
	for _, seen := range s.history.since(r.kind, r.name, r.startedAt) {
		c, err := convert[flaggerv1.Canary](seen.object)
		if err != nil {
			s.violate("I13", "%s: %v", r, err)
			return
		}
		if c.Status.Serin == nil || c.Status.Phase != flaggerv1.CanaryPhaseProgressing || c.Status.Serin.Window == nil {
			continue
		}
		failed = max(failed, c.Status.FailedChecks)
		w := *c.Status.Serin.Window
		if n := len(windows); n == 0 || !windows[n-1].Start.Equal(&w.Start) {
			windows = append(windows, w)
			observedWeights[c.Status.CanaryWeight] = true
			if n > 0 && w.Start.Sub(windows[n-1].Start.Time) < canaryWindow && !windows[n-1].Unobserved {
				s.violate("I4", "%s: a window took %s, want at least %s", r, w.Start.Sub(windows[n-1].Start.Time), canaryWindow)
			}
		}
	}
	answered := s.ledger.of(r.name)
	switch {
	case r.good && failed > 0:
		s.violate("I4", "%s has %d failed checks", r, failed)
	case r.good && len(answered.queries) < len(r.weights):
		s.violate("I3", "%s was promoted after %d queries, want at least %d", r, len(answered.queries), len(r.weights))
	case !r.good && failed > canaryThreshold:
		s.violate("I4", "%s has %d failed checks at a threshold of %d", r, failed, canaryThreshold)
	case !r.good && !r.served && len(answered.queries) < canaryThreshold:
		s.violate("I4", "%s was rolled back after %d queries, want at least %d", r, len(answered.queries), canaryThreshold)
	}
	if !r.good && (observedWeights[int(r.weights[1])] || observedWeights[int(r.weights[2])]) {
		s.violate("I3", "%s passed its first step: weights %v", r, observedWeights)
	}
	// A repeated call has the same key.
	if len(answered.accepted) != 1 {
		s.violate("I11", "%s called its webhook with %d different keys, want one", r, len(answered.accepted))
	}
	now, err := latestAs[flaggerv1.Canary](s.history, r.kind, r.name)
	before, beforeErr := convert[flaggerv1.Canary](r.before)
	if err != nil || beforeErr != nil || !r.good && now.Status.LastPromotedSpec != before.Status.LastPromotedSpec {
		s.violate("I23", "after %s, the promoted spec is %s, before it was %s", r, now.Status.LastPromotedSpec, before.Status.LastPromotedSpec)
	}
	checkPrimary(s, r)
}

// checkPrimary checks that the primary changed only by the promotion, to the version that was analysed.
func checkPrimary(s *stage, r *release) {
	versions := []string{}
	for _, seen := range s.history.since("Deployment", r.name+"-primary", r.startedAt) {
		if version := imageTag(seen.object); len(versions) == 0 || versions[len(versions)-1] != version {
			versions = append(versions, version)
		}
	}
	last := versions[len(versions)-1]
	switch {
	case r.good && last != r.version:
		s.violate("I6", "after %s, the primary has version %s", r, last)
	case r.good && len(versions) > 2, !r.good && len(versions) != 1:
		s.violate("I6", "during %s, the primary had the versions %v", r, versions)
	}
}

// imageTag returns the version in the template of an object.
func imageTag(object *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return ""
	}
	image, _, _ := unstructured.NestedString(containers[0].(map[string]any), "image")
	return image[strings.LastIndex(image, ":")+1:]
}
