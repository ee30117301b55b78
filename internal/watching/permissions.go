package watching

import (
	"context"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/othercontroller"
)

// The times for which an answer about permissions is cached. A refusal expires soon, because an installation may create its
// Deployment before its role bindings.
const (
	permittedTTL = time.Minute
	refusedTTL   = 10 * time.Second
)

// maxCachedAnswers bounds the number of cached answers; beyond it, the least recently used one is dropped.
const maxCachedAnswers = 4096

// Permissions queries the permissions of service accounts from the API server. They are the only evidence of another controller
// that a user of a namespace cannot forge: such a user can create a Deployment, a Lease and a service account, but cannot grant
// the permission to write the Canaries of another namespace.
type Permissions struct {
	// Client creates LocalSubjectAccessReviews; it needs no cache.
	Client client.Client
	Clock  clock.PassiveClock
	// ReportUnavailable is called once, with a message for the administrator, when the API server refuses to answer; may be nil.
	ReportUnavailable func(message string)

	mu sync.Mutex
	// answers contains an accessAnswer for each accessQuery; nil: none yet.
	answers *lru.Cache
	// unavailable is set when the API server has refused to answer, so that it is reported once.
	unavailable bool
}

type accessQuery struct {
	account   othercontroller.Account
	resource  Resource
	namespace string
}

type accessAnswer struct {
	permitted bool
	until     time.Time
}

// IsPermitted is an UpdatePermission. If Serin lacks the permission for the query, every account counts as permitted: two
// controllers that act on one release do more harm than one that waits.
func (p *Permissions) IsPermitted(ctx context.Context, account othercontroller.Account, resource Resource, namespace string) (bool, error) {
	q := accessQuery{account, resource, namespace}
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
			p.ReportUnavailable("Treats every Deployment that looks like another controller as one, because Serin lacks the permission " +
				"to query the permissions of service accounts. Allow create on localsubjectaccessreviews of authorization.k8s.io, or set " +
				"the namespaces of other controllers with -other-controller-namespaces")
		}
		p.unavailable = true
		return true, nil
	case err != nil:
		return false, fmt.Errorf("query the permissions of service account %s of namespace %s: %w", account.Name, account.Namespace, err)
	}
	p.storeAnswer(q, review.Status.Allowed, now)
	return review.Status.Allowed, nil
}

func (p *Permissions) cachedAnswer(q accessQuery, now time.Time) (permitted, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == nil {
		return false, false
	}
	cached, _ := p.answers.Get(q)
	known, ok := cached.(accessAnswer)
	return known.permitted, ok && now.Before(known.until)
}

func (p *Permissions) storeAnswer(q accessQuery, permitted bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == nil {
		p.answers = lru.New(maxCachedAnswers)
	}
	until := now.Add(refusedTTL)
	if permitted {
		until = now.Add(permittedTTL)
	}
	p.answers.Add(q, accessAnswer{permitted, until})
}
