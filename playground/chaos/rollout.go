//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// The plan in rollout.yaml and shared.yaml.
const (
	measurementCount    = 3
	measurementInterval = 2 * time.Second
)

var (
	rolloutResource     = argov1.SchemeGroupVersion.WithResource("rollouts")
	analysisRunResource = argov1.SchemeGroupVersion.WithResource("analysisruns")
	replicaSetResource  = appsv1.SchemeGroupVersion.WithResource("replicasets")
)

// rolloutAPI are Rollouts whose Services and route belong to the user.
var rolloutAPI = &releaseAPI{
	name: "rollout", manifests: rolloutManifests, kind: argov1.RolloutKind, target: rolloutResource, weights: []int64{20, 60, 100},
	// During the promotion, the index of the current step is that after the last one.
	phases: []string{"first version", "step 0", "step 1", "step 2", "step 4", "step 5"},
	phase: func(object *unstructured.Unstructured) string {
		r, err := convert[argov1.Rollout](object)
		switch st := r.Status; {
		case err != nil:
			return err.Error()
		case st.StableRS == "":
			return "first version"
		case st.Abort || st.CurrentPodHash == st.StableRS || st.CurrentStepIndex == nil:
			return string(st.Phase)
		default:
			return fmt.Sprintf("step %d", *st.CurrentStepIndex)
		}
	},
	checkIdle: func(h *history, name string) error {
		r, err := latestAs[argov1.Rollout](h, argov1.RolloutKind, name)
		if err == nil && r.Status.Phase != argov1.RolloutPhaseHealthy {
			err = fmt.Errorf("%s is %s: %s", name, r.Status.Phase, r.Status.Message)
		}
		return err
	},
	checkEnded: func(h *history, r *release) (bool, error) {
		now, err := latestAs[argov1.Rollout](h, r.kind, r.name)
		if err != nil {
			return false, err
		}
		before, err := convert[argov1.Rollout](r.before)
		if err != nil {
			return false, err
		}
		st := now.Status
		promoted := st.Phase == argov1.RolloutPhaseHealthy && st.StableRS == st.CurrentPodHash && st.StableRS != before.Status.StableRS
		rolledBack := st.Phase == argov1.RolloutPhaseDegraded && st.Abort && st.CurrentPodHash != before.Status.CurrentPodHash
		if st.ObservedGeneration != strconv.FormatInt(now.Generation, 10) || !promoted && !rolledBack {
			return false, fmt.Errorf("generation %s of %d is %s at %s: %s", st.ObservedGeneration, now.Generation, st.Phase, r.phase(h.latest(r.kind, r.name)), st.Message)
		}
		return promoted, checkUsersOnStable(h, r.name)
	},
	checkInvariants: checkRollout,
}

// checkRollout checks a release of a Rollout.
func checkRollout(ctx context.Context, s *stage, r *release) {
	generation := int64(0)
	for _, seen := range s.history.since(r.kind, r.name, r.startedAt) {
		text, _, _ := unstructured.NestedString(seen.object.Object, "status", "observedGeneration")
		observed, err := strconv.ParseInt(text, 10, 64)
		if err != nil || observed < generation || observed > seen.object.GetGeneration() {
			s.violate("I13", "%s: generation %q was observed after %d, of %d", r, text, generation, seen.object.GetGeneration())
		}
		generation = observed
	}
	now, err := latestAs[argov1.Rollout](s.history, r.kind, r.name)
	if err != nil {
		s.violate("I6", "%s: %v", r, err)
		return
	}
	before, err := convert[argov1.Rollout](r.before)
	if err != nil || !r.good && now.Status.StableRS != before.Status.StableRS {
		s.violate("I23", "after %s, revision %s is stable, before it was %s", r, now.Status.StableRS, before.Status.StableRS)
	}
	stable := s.history.latest("ReplicaSet", r.name+"-"+now.Status.StableRS)
	if stable == nil {
		s.violate("I6", "%s: there is no ReplicaSet of the stable revision %s", r, now.Status.StableRS)
	} else if version := imageTag(stable); (version == r.version) != r.good {
		s.violate("I6", "after %s, version %s is stable", r, version)
	}
	var runs []argov1.AnalysisRun
	err = s.retry(ctx, "list AnalysisRuns", func() error {
		list, err := s.cluster.Dynamic.Resource(analysisRunResource).Namespace(s.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: argov1.PodTemplateHashLabel + "=" + now.Status.CurrentPodHash,
		})
		if err != nil {
			return err
		}
		runs = nil
		for i := range list.Items {
			run, err := convert[argov1.AnalysisRun](&list.Items[i])
			if err != nil {
				return err
			}
			if owner := metav1.GetControllerOf(&run); owner != nil && owner.UID == now.UID {
				runs = append(runs, run)
			}
		}
		return nil
	})
	if err != nil {
		return // the run was interrupted
	}
	if len(runs) != 1 {
		s.violate("I22", "%s has %d AnalysisRuns for one step", r, len(runs))
		return
	}
	checkMeasurements(s, r, runs[0])
}

// checkMeasurements checks the measurements that decided about a release.
func checkMeasurements(s *stage, r *release, run argov1.AnalysisRun) {
	phase, successful := run.Status.Phase, 0
	last := time.Time{}
	for _, result := range run.Status.MetricResults {
		for _, m := range result.Measurements {
			if m.Phase == argov1.AnalysisPhaseSuccessful {
				successful++
			}
			// Times have a resolution of one second.
			if m.StartedAt != nil && !last.IsZero() && m.Phase != argov1.AnalysisPhaseError && m.StartedAt.Sub(last) < measurementInterval-time.Second {
				s.violate("I11", "%s measured twice within %s", r, m.StartedAt.Sub(last))
			}
			if m.StartedAt != nil {
				last = m.StartedAt.Time
			}
		}
	}
	switch {
	case r.good && (phase != argov1.AnalysisPhaseSuccessful || successful != measurementCount):
		s.violate("I3", "%s was promoted after an analysis that was %s, with %d successful measurements, want %d", r, phase, successful, measurementCount)
	case !r.good && phase != argov1.AnalysisPhaseFailed:
		s.violate("I4", "%s was rolled back after an analysis that was %s", r, phase)
	}
	if queries := len(s.ledger.of(r.name).queries); !r.served && queries < successful {
		s.violate("I4", "%s has %d successful measurements of %d queries", r, successful, queries)
	}
}
