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

	"github.com/serin-dev/serin/internal/othercontroller"
)

// How long an answer about permissions is used. A refusal is asked again soon, because an installation may create its
// Deployment before its bindings.
const (
	permittedTTL = time.Minute
	refusedTTL   = 10 * time.Second
)

// maxCachedAnswers bounds how many answers are remembered at once.
const maxCachedAnswers = 4096

// Permissions asks the API server what service accounts are permitted. This is the one thing about another controller that
// a user of a namespace cannot make up: a Deployment, a Lease and a service account are theirs to create, but permission to
// write the Canaries of another namespace is not theirs to give.
type Permissions struct {
	// Client creates LocalSubjectAccessReviews; it needs no cache.
	Client client.Client
	Clock  clock.PassiveClock
	// ReportUnavailable is called once, with what to do, when the API server refuses to answer; nil: nobody is told.
	ReportUnavailable func(message string)

	mu      sync.Mutex
	answers map[accessQuestion]accessAnswer
	// unavailable is set once the API server refused to answer, so that it is said once.
	unavailable bool
}

type accessQuestion struct {
	account   othercontroller.Account
	resource  Resource
	namespace string
}

type accessAnswer struct {
	permitted bool
	until     time.Time
}

// IsPermitted implements the type of that name. Where Serin is not permitted to ask, every account counts as permitted: two
// controllers that act on one release do more harm than one that waits.
func (p *Permissions) IsPermitted(ctx context.Context, account othercontroller.Account, resource Resource, namespace string) (bool, error) {
	q := accessQuestion{account, resource, namespace}
	now := p.Clock.Now()
	if known, ok := p.cachedAnswer(q, now); ok {
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
		if !p.unavailable && p.ReportUnavailable != nil {
			p.ReportUnavailable("Takes every Deployment that looks like another controller for one, because Serin may not ask what " +
				"service accounts are permitted. Allow create on localsubjectaccessreviews of authorization.k8s.io, or name the namespaces " +
				"of other controllers with -other-controller-namespaces")
		}
		p.unavailable = true
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask what service account %s of namespace %s may do: %w", account.Name, account.Namespace, err)
	}
	p.storeAnswer(q, review.Status.Allowed, now)
	return review.Status.Allowed, nil
}

func (p *Permissions) cachedAnswer(q accessQuestion, now time.Time) (permitted, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.answers[q]
	return known.permitted, ok && now.Before(known.until)
}

func (p *Permissions) storeAnswer(q accessQuestion, permitted bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == nil || len(p.answers) >= maxCachedAnswers {
		p.answers = map[accessQuestion]accessAnswer{} // they are cheap to ask again
	}
	until := now.Add(refusedTTL)
	if permitted {
		until = now.Add(permittedTTL)
	}
	p.answers[q] = accessAnswer{permitted, until}
}
