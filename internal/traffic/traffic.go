package traffic

import (
	"errors"
	"fmt"

	"github.com/serin-dev/serin/internal/release"
)

// Confirmation is whether a router serves the route that was read.
type Confirmation string

// The confirmations.
const (
	ConfirmedYes Confirmation = "yes"
	ConfirmedNo  Confirmation = "no"
	// CannotTell is returned for routers that do not report, or have not reported yet: do not wait for them.
	CannotTell Confirmation = "cannot-tell"
)

// Observed is the route that objects describe.
type Observed struct {
	// Found is false where there is no route of this release: its object is missing, or is the user's and names
	// neither of the two Services.
	Found bool
	// Route has the canary's weight, the mirror of a Canary, and the experiments of a Rollout, as they were read. Everything
	// else is defined by the spec.
	Route release.Route
	// Matched is true if the weight of a Canary applies only to the matching requests of an A/B test. It has no meaning without a
	// weight.
	Matched bool
	// Confirmed refers to Route: a caller that waits for a weight compares the weight first, as the cache may be outdated.
	Confirmed Confirmation
	// Reason why the route is not confirmed, for users; empty unless Confirmed is ConfirmedNo.
	Reason string
	// Unreported is a Gateway of the route about which no controller has reported; nil: there is none.
	Unreported *UnreportedParent
	// ManagedRoutes are the names of the existing managed routes of a Rollout, whatever they contain.
	ManagedRoutes []string
	// CanaryHash and StableHash are the revisions that both sides of a Rollout's route select as subsets; empty where
	// Services select them.
	CanaryHash, StableHash string
	// Forwards are the shares that only the load balancers can confirm; nil if they are not queried.
	Forwards []Forward
}

// HasOtherMatches reports whether the weight of a Canary's route applies to other requests than intended: to matching requests
// instead of all, or the reverse. Such a route must not be written with its weight: all users would be routed to the canary.
func (o Observed) HasOtherMatches(matched bool) bool {
	return o.Route.Canary > 0 && o.Matched != matched
}

// Errors that callers distinguish. The text of an error that wraps one of them is a complete message for the user.
var (
	// ErrUnsupported: the provider cannot do what the route needs. The user must change the Canary or Rollout.
	ErrUnsupported = errors.New("not supported by the provider")
	// ErrInvalid: the spec of the release does not define a route. The user must change it, or the objects that it names.
	ErrInvalid = errors.New("invalid route")
	// ErrCrossNamespace: the route includes an object in another namespace, which the administrator has forbidden. It is an
	// ErrInvalid.
	ErrCrossNamespace = fmt.Errorf("object in another namespace: %w", ErrInvalid)
	// ErrNotOwned: an object of the required name has another owner.
	ErrNotOwned = errors.New("object has another owner")
	// ErrNotInstalled: the cluster does not know a kind that the provider needs.
	ErrNotInstalled = errors.New("kind not installed")
	// ErrUnreachable: the objects are in another cluster, which does not respond. The release waits until it does.
	ErrUnreachable = errors.New("the cluster of the route does not respond")
	// ErrUnreadable: the objects describe no route, for example because both weights are 0. Rendering the route corrects them.
	ErrUnreadable = errors.New("route not readable")
	// ErrRouteChanged: the objects have changed since the decision. The caller must decide again.
	ErrRouteChanged = errors.New("the route has changed since the decision")
	// ErrNoOriginal: an adopted object has no record of its original state.
	ErrNoOriginal = errors.New("original not known")
)

// Refuse returns an error whose text is a complete message for the user, and for which errors.Is reports the kind.
func Refuse(kind error, format string, args ...any) error {
	return &refusal{kind: kind, message: fmt.Sprintf(format, args...)}
}

// refusal does not include the text of its kind: a message begins with the problem.
type refusal struct {
	kind    error
	message string
}

func (e *refusal) Error() string { return e.message }
func (e *refusal) Unwrap() error { return e.kind }

// Weight parses a weight in an object. name is the name of its destination, for the error.
func Weight(name, value any) (int, error) {
	weight, err := Number(value)
	if err != nil || weight < 0 {
		return 0, fmt.Errorf("the weight of %v is %v, which is not a non-negative number", name, value)
	}
	return int(weight), nil
}

// SideWeights are the weights of the two sides in a list of destinations, by the names that nameOf returns for them. Other
// destinations are ignored.
func (t Target) SideWeights(destinations []map[string]any, nameOf func(map[string]any) string) (map[string]int, error) {
	weights := map[string]int{}
	for _, destination := range destinations {
		name := nameOf(destination)
		if name != t.StableService && name != t.CanaryService {
			continue
		}
		weight, err := Weight(name, destination["weight"])
		if err != nil {
			return nil, err
		}
		weights[name] = weight
	}
	return weights, nil
}

// ObserveShare returns the route of an object with these weights, by the names of the two sides in it. It is unconfirmed. A
// route whose weights are both 0 serves no requests, and is an error.
func ObserveShare(ref Ref, weights map[string]int, stable, canary string) (Observed, error) {
	out := Observed{Confirmed: CannotTell}
	if weights[stable]+weights[canary] == 0 {
		return out, fmt.Errorf("read %s: the weights of %s and %s are both 0: set at least one of them", ref, stable, canary)
	}
	out.Found, out.Route.Canary = true, Share(weights[stable], weights[canary])
	return out, nil
}

// Share is the canary's share, in percent, of two weights of any total. It is exact if they add up to 100, and never 0 or
// 100 if both sides receive requests.
func Share(stable, canary int) int {
	total := stable + canary
	switch {
	case canary <= 0 || total <= 0:
		return 0
	case stable <= 0:
		return release.Total
	default:
		return min(max((canary*release.Total+total/2)/total, 1), release.Total-1)
	}
}
