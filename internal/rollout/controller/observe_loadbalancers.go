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

// askAgain is the interval between a negative answer and the next query.
const askAgain = 10 * time.Second

// textUnasked is the reason for which a release waits until the first answer arrives.
const textUnasked = "waiting for its first answer"

// observeLoadBalancers submits a query about load balancers outside the cluster, and uses the last answer. It does not wait for the
// answer, which requeues the release.
func (o *Observer) observeLoadBalancers(_ context.Context, s *seen) error {
	if o.Queries == nil {
		if o.Beside {
			s.recallAnswer()
		}
		return nil
	}
	s.snapshot.Router.ExternalLoadBalancer = true
	asking := queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID}
	question, due := s.question()
	if !due {
		o.memory.recordAnswer(s.key(), "", s.snapshot.Now, nil)
		o.Queries.Submit(asking, nil)
		return nil
	}
	query, err := queryOf(question)
	if err != nil {
		return fmt.Errorf("encode the query about Rollout %s: %w", s.key(), err)
	}
	last := o.memory.recordAnswer(s.key(), query.ID, s.snapshot.Now, o.Queries.Answers(asking))
	o.Queries.Submit(asking, last.next(query, s.snapshot.Now))
	s.useAnswer(last.answer)
	return nil
}

// recallAnswer takes the last answer from the gates in the status.
func (s *seen) recallAnswer() {
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

// next returns the query if it has no answer yet or if, some time ago, the answer was negative.
func (a externalAnswer) next(query release.Query, now time.Time) []release.Query {
	switch {
	case a.answer == nil:
		query.Since = a.since
	case a.answer.Holds || now.Before(a.at.Add(askAgain)):
		return nil
	default:
		query.Since = a.at.Add(askAgain)
	}
	return []release.Query{query}
}

// question returns what a query about a Rollout asks; false: there is no query.
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

// queryOf returns a query whose ID is derived from its question: another weight is another query.
func queryOf(q traffic.Question) (release.Query, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return release.Query{}, err
	}
	sum := sha256.Sum256(text)
	return release.Query{ID: hex.EncodeToString(sum[:]), Request: q}, nil
}

// useAnswer adds an answer to the snapshot; nil: there is none yet.
func (s *seen) useAnswer(answer *traffic.Answer) {
	router := &s.snapshot.Router
	if answer == nil {
		router.Confirmed, router.UnconfirmedReason = new(false), textUnasked
		return
	}
	router.LoadBalancers = answer.Balancers
	for _, event := range answer.Events {
		s.balancerEvents = append(s.balancerEvents, release.Event{Type: typeOf(event.Warning), Reason: event.Reason, Message: event.Message, Persistent: true})
	}
	switch {
	case !answer.Holds:
		router.Confirmed, router.UnconfirmedReason = new(false), answer.Reason
	case router.Confirmed == nil:
		router.Confirmed = new(true)
	}
}
