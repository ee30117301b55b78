//go:build linux

package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// canaryWeightOf returns the weight of the canary in a route, and an error if the weights of a rule do not add up to 100.
func canaryWeightOf(route *unstructured.Unstructured, canary string) (weight int64, err error) {
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	for _, rule := range rules {
		sum := int64(0)
		references, _, _ := unstructured.NestedSlice(rule.(map[string]any), "backendRefs")
		for _, reference := range references {
			backend := reference.(map[string]any)
			own, found := backend["weight"].(int64)
			if !found {
				own = 1 // the default of the API
			}
			if own < 0 {
				return 0, fmt.Errorf("a weight is %d", own)
			}
			if sum += own; backend["name"] == canary {
				weight = own
			}
		}
		if len(references) > 1 && sum != 100 {
			return weight, fmt.Errorf("weights add up to %d: %v", sum, references)
		}
	}
	return weight, nil
}

// checkUsersOnStable returns nil if the route sends no request to the canary.
func checkUsersOnStable(h *history, name string) error {
	route := h.latest("HTTPRoute", name)
	if route == nil {
		return errUnobserved
	}
	weight, err := canaryWeightOf(route, name+"-canary")
	if err == nil && weight != 0 {
		err = fmt.Errorf("the release has ended, the weight of the canary is %d", weight)
	}
	return err
}

// checkWeights checks the weights of a release: they are planned, rise step by step, and fall to 0 only.
func checkWeights(s *stage, r *release) {
	last := int64(0)
	for i, seen := range s.history.since("HTTPRoute", r.name, r.startedAt) {
		weight, err := canaryWeightOf(seen.object, r.name+"-canary")
		switch {
		case err != nil:
			s.violate("I2", "%s: %v", r, err)
		case weight != 0 && !slices.Contains(r.weights, weight):
			s.violate("I2", "%s: weight %d is not one of %v", r, weight, r.weights)
		case i > 0 && weight < last && weight != 0:
			s.violate("I2", "%s: the weight fell from %d to %d", r, last, weight)
		case !r.good && weight > r.weights[0]:
			s.violate("I3", "%s had weight %d, its first step is %d", r, weight, r.weights[0])
		}
		last = weight
	}
}

const (
	// quietPeriod is the time without requests after which nothing is in progress.
	quietPeriod = 5 * time.Second
	// finalRequests is the number of requests that each client sends after the last release.
	finalRequests = 3 * requestRate
)

// checkEnd checks the state after the last release.
func (s *stage) checkEnd(ctx context.Context) error {
	if err := s.checkQuiet(ctx); err != nil {
		return err
	}
	for _, a := range s.apps {
		s.checkUserObjects(a)
		if a.load == nil {
			continue
		}
		before := a.load.Counts().Requests
		if err := s.poll(ctx, "clients send more requests", func() bool { return a.load.Counts().Requests >= before+finalRequests }); err != nil {
			return err
		}
		a.load.Stop()
		s.checkRequests(a)
	}
	for _, r := range s.replicas {
		if err := r.checkPanics(); err != nil {
			s.violate("I20", "%s panicked: %v", r.name, err)
		}
		r.mu.Lock()
		for kind := range r.unconditional {
			s.violate("I12", "a write names no resourceVersion: %s", kind)
		}
		r.mu.Unlock()
	}
	return nil
}

// requestCount is the number of requests of all replicas, except for Leases and watches, which never end.
func (s *stage) requestCount() int {
	total := 0
	for _, r := range s.replicas {
		for kind, n := range r.proxy.Counts() {
			if kind.Resource != "leases" && kind.Verb != "watch" {
				total += n
			}
		}
	}
	return total
}

// checkQuiet waits until nothing is in progress: idle releases cause no requests.
func (s *stage) checkQuiet(ctx context.Context) error {
	count, since := s.requestCount(), s.clock.Now()
	err := s.poll(ctx, "idle releases cause no requests", func() bool {
		if now := s.requestCount(); now != count {
			count, since = now, s.clock.Now()
		}
		return s.clock.Since(since) >= quietPeriod
	})
	if err != nil && ctx.Err() == nil {
		s.violate("I9q", "%v", err)
		return nil
	}
	return err
}

// checkUserObjects checks that objects of the user have changed only where Serin or the releases of this run change them.
func (s *stage) checkUserObjects(a *app) {
	now := s.userObjects(a)
	for key, before := range a.created {
		was, is := unchangedPart(before), unchangedPart(now[key])
		if !reflect.DeepEqual(was, is) {
			s.violate("I8", "%s %s has changed from %v to %v", key.kind, key.name, was, is)
		}
	}
}

// unchangedPart is the part of an object of the user that nothing may change: not the template, which releases change, nor
// replicas, selectors of Services and weights, which Serin changes.
func unchangedPart(object *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(object.DeepCopy().Object, "spec")
	switch object.GetKind() {
	case "Deployment":
		delete(spec, "template")
		delete(spec, "replicas")
	case "Rollout":
		delete(spec, "template")
	case "Service":
		delete(spec, "selector")
	case "HTTPRoute":
		for _, rule := range spec["rules"].([]any) {
			for _, reference := range rule.(map[string]any)["backendRefs"].([]any) {
				delete(reference.(map[string]any), "weight")
			}
		}
	}
	return map[string]any{"spec": spec, "labels": object.GetLabels(), "owner": object.GetAnnotations()["example.com/owner"]}
}

// checkRequests checks that no request was lost, and that only bad versions failed requests.
func (s *stage) checkRequests(a *app) {
	type failure struct {
		version, err string
		status       int
	}
	failures := map[failure][]string{}
	for _, sample := range a.load.Samples() {
		if sample.IsLost() || sample.IsFailed() && !a.badVersions[sample.Version] {
			f := failure{sample.Version, sample.Err, sample.Status}
			failures[f] = append(failures[f], sample.StartedAt.UTC().Format("15:04:05.000"))
		}
	}
	for f, times := range failures {
		s.violate("I1", "%s failed %d requests from %s to %s: version %q, status %d, %s", a.name, len(times), slices.Min(times), slices.Max(times), f.version, f.status, f.err)
	}
}
