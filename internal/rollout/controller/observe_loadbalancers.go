package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// askAgain is how long after an answer that something is not so yet the same is asked again.
const askAgain = 10 * time.Second

// textUnasked is why a release waits while the first answer is out.
const textUnasked = "it is being asked"

// observeLoadBalancers has those outside the cluster asked what only they know, and takes what they said. It waits for no answer: that
// brings the release back.
func (o *Observer) observeLoadBalancers(_ context.Context, s *seen) error {
	if o.Outside == nil {
		if o.Beside {
			s.recalls()
		}
		return nil
	}
	s.snapshot.Router.ExternalLoadBalancer = true
	asking := queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID}
	question, due := s.question()
	if !due {
		o.memory.hears(s.key(), "", s.snapshot.Now, nil)
		o.Outside.Submit(asking, nil)
		return nil
	}
	probe, err := probeOf(question)
	if err != nil {
		return fmt.Errorf("name what is asked about Rollout %s: %w", s.key(), err)
	}
	last := o.memory.hears(s.key(), probe.ID, s.snapshot.Now, o.Outside.Answers(asking))
	o.Outside.Submit(asking, last.next(probe, s.snapshot.Now))
	s.hears(last.answer)
	return nil
}

// recalls takes what was answered from what the status says is waited for.
func (s *seen) recalls() {
	snapshot := s.snapshot
	snapshot.Spec = s.spec
	if weighed, backings := rollout.ExternalConfirmations(snapshot); !weighed && len(backings) == 0 {
		return
	}
	weights := s.object.Status.Canary.Weights
	unverified := weights != nil && weights.Verified != nil && !*weights.Verified
	for _, gate := range shownGates(s.object.Status) {
		if (gate.Name == "weight" && unverified || gate.Name == "targets") && gate.Verdict == string(release.Wait) {
			_, reason, _ := strings.Cut(gate.Message, ": ")
			s.snapshot.Router.Confirmed, s.snapshot.Router.UnconfirmedReason = new(false), reason
		}
	}
}

// next is what is to be asked now: what has no answer yet, and, after a while, what was not so.
func (h heard) next(probe release.Query, now time.Time) []release.Query {
	switch {
	case h.answer == nil:
		probe.Since = h.since
	case h.answer.Holds || now.Before(h.at.Add(askAgain)):
		return nil
	default:
		probe.Since = h.at.Add(askAgain)
	}
	return []release.Query{probe}
}

// question is what is asked about a Rollout; false: nothing.
func (s *seen) question() (traffic.Question, bool) {
	snapshot := s.snapshot
	snapshot.Spec = s.spec
	weighed, backings := rollout.ExternalConfirmations(snapshot)
	question := traffic.Question{Namespace: s.object.Namespace}
	if weighed {
		question.Forwards = s.forwards
	}
	for _, b := range backings {
		backing := traffic.Backing{Service: b.Service, Hash: b.Hash}
		for _, rs := range snapshot.ReplicaSets {
			if rs.Hash == b.Hash {
				backing.Pods = rs.Available
			}
		}
		question.Backings = append(question.Backings, backing)
	}
	return question, len(question.Forwards) > 0 || len(question.Backings) > 0
}

// probeOf names a question by what it asks: another weight is another question.
func probeOf(q traffic.Question) (release.Query, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return release.Query{}, err
	}
	sum := sha256.Sum256(text)
	return release.Query{ID: hex.EncodeToString(sum[:]), Request: q}, nil
}

// hears takes an answer into what is known of the release; nil: there is none yet.
func (s *seen) hears(answer *traffic.Answer) {
	router := &s.snapshot.Router
	if answer == nil {
		router.Confirmed, router.UnconfirmedReason = new(false), textUnasked
		return
	}
	router.LoadBalancers = answer.Balancers
	for _, event := range answer.Events {
		s.heard = append(s.heard, release.Event{Type: typeOf(event.Warning), Reason: event.Reason, Message: event.Message, Persistent: true})
	}
	switch {
	case !answer.Holds:
		router.Confirmed, router.UnconfirmedReason = new(false), answer.Reason
	case router.Confirmed == nil:
		router.Confirmed = new(true)
	}
}
