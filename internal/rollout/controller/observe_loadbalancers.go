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

// negativeAnswerRetry is the interval between a negative answer and the next query.
const negativeAnswerRetry = 10 * time.Second

// textFirstAnswerPending is the reason for which a release waits until the first answer arrives.
const textFirstAnswerPending = "waiting for its first answer"

// observeLoadBalancers submits a query about load balancers outside the cluster, and uses the last answer. It does not wait for
// the answer, which requeues the release.
func (o *Observer) observeLoadBalancers(_ context.Context, s *observation) error {
	if o.Queries == nil {
		if o.AnswersFromStatus {
			s.useStoredAnswer()
		}
		return nil
	}
	s.snapshot.Route.ExternalLoadBalancer = true
	key := queryrunner.Key{NamespacedName: s.key(), UID: s.object.UID}
	request, due := s.externalRequest()
	if !due {
		o.memory.recordAnswer(s.key(), "", s.snapshot.Now, nil)
		return o.Queries.Submit(key, nil)
	}
	query, err := newQuery(request)
	if err != nil {
		return fmt.Errorf("encode the query about Rollout %s: %w", s.key(), err)
	}
	last := o.memory.recordAnswer(s.key(), query.ID, s.snapshot.Now, o.Queries.Answers(key))
	s.useAnswer(last.answer)
	return o.Queries.Submit(key, last.dueQueries(query, s.snapshot.Now))
}

// useStoredAnswer takes the last answer from the gates in the status.
func (s *observation) useStoredAnswer() {
	snapshot := s.snapshot
	snapshot.Spec = s.spec
	if checkWeights, targets := rollout.ExternalConfirmations(snapshot); !checkWeights && len(targets) == 0 {
		return
	}
	weights := s.object.Status.Canary.Weights
	unverified := weights != nil && weights.Verified != nil && !*weights.Verified
	for _, gate := range shownGates(s.object.Status) {
		if (gate.Name == rollout.GateRouteConfirmed && unverified || gate.Name == rollout.GateTargets) && gate.Verdict == string(release.Wait) {
			_, reason, _ := strings.Cut(gate.Message, ": ")
			s.snapshot.Route.Confirmed, s.snapshot.Route.UnconfirmedReason = new(false), reason
		}
	}
}

// dueQueries returns the query if it has no answer yet, or if its answer was negative and negativeAnswerRetry has passed.
func (a externalAnswer) dueQueries(query release.Query, now time.Time) []release.Query {
	switch {
	case a.answer == nil:
		query.Since = a.since
	case a.answer.Verified || now.Before(a.at.Add(negativeAnswerRetry)):
		return nil
	default:
		query.Since = a.at.Add(negativeAnswerRetry)
	}
	return []release.Query{query}
}

// externalRequest returns the request of the query about a Rollout; false: there is no query.
func (s *observation) externalRequest() (traffic.LoadBalancerQuery, bool) {
	snapshot := s.snapshot
	snapshot.Spec = s.spec
	checkWeights, targets := rollout.ExternalConfirmations(snapshot)
	request := traffic.LoadBalancerQuery{Namespace: s.object.Namespace}
	if checkWeights {
		request.Forwards = s.forwards
	}
	for _, b := range targets {
		target := traffic.BackendTarget{Service: b.Service, Hash: b.Hash}
		for _, rs := range snapshot.ReplicaSets {
			if rs.Hash == b.Hash {
				target.Pods = rs.Available
			}
		}
		request.Targets = append(request.Targets, target)
	}
	return request, len(request.Forwards) > 0 || len(request.Targets) > 0
}

// newQuery returns a query whose ID is derived from its request: another weight is another query.
func newQuery(request traffic.LoadBalancerQuery) (release.Query, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return release.Query{}, err
	}
	sum := sha256.Sum256(text)
	return release.Query{ID: hex.EncodeToString(sum[:]), Request: request}, nil
}

// useAnswer adds an answer to the snapshot; nil: there is none yet.
func (s *observation) useAnswer(answer *traffic.LoadBalancerAnswer) {
	route := &s.snapshot.Route
	if answer == nil {
		route.Confirmed, route.UnconfirmedReason = new(false), textFirstAnswerPending
		return
	}
	route.LoadBalancers = answer.Balancers
	for _, event := range answer.Events {
		s.loadBalancerEvents = append(s.loadBalancerEvents, release.Event{Type: eventType(event.Warning), Reason: event.Reason, Message: event.Message, Persistent: true})
	}
	switch {
	case !answer.Verified:
		route.Confirmed, route.UnconfirmedReason = new(false), answer.Reason
	case route.Confirmed == nil:
		route.Confirmed = new(true)
	}
}

func eventType(warning bool) release.EventType {
	if warning {
		return release.Warning
	}
	return release.Normal
}
