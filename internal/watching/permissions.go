package watching

import (
	"context"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/peer"
)

// How long an answer about permissions is used. A refusal is asked again soon, because an installation may create its
// Deployment before its bindings.
const (
	permittedFor = time.Minute
	refusedFor   = 10 * time.Second
)

// maxAnswers bounds how many answers are remembered at once.
const maxAnswers = 4096

// Permissions asks the API server what service accounts are permitted. This is the one thing about another controller that
// a user of a namespace cannot make up: a Deployment, a Lease and a service account are theirs to create, but permission to
// write the Canaries of another namespace is not theirs to give.
type Permissions struct {
	// Client creates LocalSubjectAccessReviews; it needs no cache.
	Client client.Client
	Clock  clock.PassiveClock
	// Unasked is called once, with what to do, when the API server refuses to answer; nil: nobody is told.
	Unasked func(message string)

	mu      sync.Mutex
	answers map[question]answer
	// unasked is set once the API server refused to answer, so that it is said once.
	unasked bool
}

type question struct {
	account   peer.Account
	resource  Resource
	namespace string
}

type answer struct {
	permitted bool
	until     time.Time
}

// May implements the type of that name. Where Serin is not permitted to ask, every account counts as permitted: two
// controllers that act on one release do more harm than one that waits.
func (p *Permissions) May(ctx context.Context, account peer.Account, resource Resource, namespace string) (bool, error) {
	q := question{account, resource, namespace}
	now := p.Clock.Now()
	if known, ok := p.known(q, now); ok {
		return known, nil
	}
	review := &authorizationv1.LocalSubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated",
		},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "update", Group: resource.Group, Resource: resource.Name, Subresource: resource.Subresource,
		},
	}}
	review.Namespace = namespace
	err := p.Client.Create(ctx, review)
	switch {
	case apierrors.IsForbidden(err):
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.unasked && p.Unasked != nil {
			p.Unasked("Takes every Deployment that looks like another controller for one, because Serin may not ask what " +
				"service accounts are permitted. Allow create on localsubjectaccessreviews of authorization.k8s.io, or name the namespaces " +
				"of other controllers with -other-controller-namespaces")
		}
		p.unasked = true
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask what service account %s of namespace %s may do: %w", account.Name, account.Namespace, err)
	}
	p.remember(q, review.Status.Allowed, now)
	return review.Status.Allowed, nil
}

func (p *Permissions) known(q question, now time.Time) (permitted, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.answers[q]
	return known.permitted, ok && now.Before(known.until)
}

func (p *Permissions) remember(q question, permitted bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == nil || len(p.answers) >= maxAnswers {
		p.answers = map[question]answer{} // they are cheap to ask again
	}
	until := now.Add(refusedFor)
	if permitted {
		until = now.Add(permittedFor)
	}
	p.answers[q] = answer{permitted, until}
}
