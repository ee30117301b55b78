// Package cluster looks at releases with the rights of the person who asks, once or for as long as they watch, and
// carries their orders to the controller.
//
// It writes nothing but orders, and asks no webhook and no metrics provider. It must not know terminals, and it explains
// nothing: package explain does.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/outbound"
)

// What a caller may want to tell apart.
var (
	// ErrNotFound: there is no such release, or the cluster does not know the kind.
	ErrNotFound = errors.New("not found")
	// ErrUnreachable: the cluster does not answer, or forbids what nothing can be said without.
	ErrUnreachable = errors.New("cluster unreachable or forbidden")
)

// Session is one person's connection to one cluster.
type Session struct {
	// Client reads live, with the person's rights.
	Client client.WithWatch
	Clock  clock.WithTicker
	// ControllerFlags are the arguments that the controller was started with, where the person gives them because the
	// cluster does not tell. Nil: found out, else the defaults.
	ControllerFlags []string
}

// Scheme knows what is read.
func Scheme() (*runtime.Scheme, error) {
	scheme := operator.Scheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make the scheme: %w", err)
	}
	return scheme, nil
}

// Bounds of the requests of one person, those of kubectl.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
)

// Connect makes a session of a kubeconfig. Nothing is asked yet but what the cluster serves.
func Connect(config *rest.Config, clk clock.WithTicker) (*Session, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	config.UserAgent = "serin-cli"
	config.WarningHandler = rest.NoWarnings{} // what the API server warns of concerns whoever writes
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, explained("connect to "+config.Host, err)
	}
	return &Session{Client: c, Clock: clk}, nil
}

// Selection says which releases are looked at.
type Selection struct {
	// Namespace; empty: all.
	Namespace string
	// Names of Canaries in that namespace; none: all of them.
	Names []string
	// Labels that a Canary must have; nil: any.
	Labels labels.Selector
}

func (s Selection) takes(c *flaggerv1.Canary) bool {
	return (s.Namespace == "" || c.Namespace == s.Namespace) &&
		(len(s.Names) == 0 || slices.Contains(s.Names, c.Name)) &&
		(s.Labels == nil || s.Labels.Matches(labels.Set(c.Labels)))
}

// canaries reads the selected ones. Those that are named are read by name, which needs fewer rights.
func (s *Session) canaries(ctx context.Context, sel Selection) ([]flaggerv1.Canary, error) {
	if len(sel.Names) == 0 {
		var list flaggerv1.CanaryList
		options := []client.ListOption{client.InNamespace(sel.Namespace)}
		if sel.Labels != nil {
			options = append(options, client.MatchingLabelsSelector{Selector: sel.Labels})
		}
		if err := s.Client.List(ctx, &list, options...); err != nil {
			return nil, explained("list Canaries"+inNamespace(sel.Namespace), err)
		}
		sorted(list.Items)
		return list.Items, nil
	}
	var out []flaggerv1.Canary
	for _, name := range sel.Names {
		var c flaggerv1.Canary
		if err := s.Client.Get(ctx, types.NamespacedName{Namespace: sel.Namespace, Name: name}, &c); err != nil {
			return nil, explained("get Canary "+name+inNamespace(sel.Namespace), err)
		}
		out = append(out, c)
	}
	return out, nil
}

func sorted(canaries []flaggerv1.Canary) {
	slices.SortFunc(canaries, func(a, b flaggerv1.Canary) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return " of all namespaces"
	}
	return " of namespace " + namespace
}

// explained is an error of the API machinery as a sentence, of a kind that callers can tell apart.
func explained(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	err = outbound.RedactError(err)
	switch {
	case meta.IsNoMatchError(err), runtime.IsNotRegisteredError(err):
		return failure{ErrNotFound, err, what + ": this cluster does not know the kind Canary of flagger.app: install the definitions with: serin crds | kubectl apply --server-side -f -"}
	case apierrors.IsNotFound(err):
		return failure{ErrNotFound, err, what + ": there is none: list what there is with: serin get -A"}
	case forbidden(err):
		return failure{ErrUnreachable, err, what + ": the cluster forbids it: " + err.Error()}
	default:
		return failure{ErrUnreachable, err, what + ": " + err.Error()}
	}
}

// forbidden is true for what the person may not do, whoever they are.
func forbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// failure is a sentence with its kind and its cause.
type failure struct {
	kind, cause error
	text        string
}

func (f failure) Error() string   { return f.text }
func (f failure) Unwrap() []error { return []error{f.kind, f.cause} }
