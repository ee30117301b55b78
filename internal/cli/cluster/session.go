// Package cluster observes releases with the permissions of the user, once or continuously, and passes the user's orders to the
// controller.
//
// It writes only orders, calls no webhook and queries no metrics provider. It must not know terminals, nor how a release is
// described: package explain does.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/outbound"
)

// The errors that callers distinguish.
var (
	// ErrNotFound: there is no such release, or the cluster does not know the kind.
	ErrNotFound = errors.New("not found")
	// ErrUnreachable: the cluster does not respond, or denies access to the releases.
	ErrUnreachable = errors.New("cluster unreachable or forbidden")
)

// Session is the connection of one user to one cluster.
type Session struct {
	// Client reads from the API server, with the permissions of the user.
	Client client.WithWatch
	Clock  clock.WithTicker
	// ControllerFlags are the arguments of the controller, if the user specifies them. Nil: those of its Deployment, else the
	// defaults.
	ControllerFlags []string
}

// Scheme contains the types that are read.
func Scheme() (*runtime.Scheme, error) {
	scheme := operator.Scheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("create the scheme: %w", err)
	}
	return scheme, nil
}

// Limits of the requests of one command, equal to those of kubectl.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
)

// Connect creates a session from a kubeconfig. It requests only the kinds that the cluster serves.
func Connect(config *rest.Config, clk clock.WithTicker) (*Session, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	config.UserAgent = "serin-cli"
	config.WarningHandler = rest.NoWarnings{} // warnings concern the writers of objects
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, explained("connect to "+config.Host, err, explain.KindCanary)
	}
	return &Session{Client: c, Clock: clk}, nil
}

// Name of a release.
type Name struct {
	// Kind; empty: any.
	Kind explain.Kind
	Name string
}

// Selection selects releases.
type Selection struct {
	// Namespace; empty: all.
	Namespace string
	// Kinds; none: all.
	Kinds []explain.Kind
	// Names of releases in that namespace; none: all of them.
	Names []Name
	// Labels that a release must have; nil: any.
	Labels labels.Selector
}

// kinds of release, in the order in which they are read.
var kinds = []explain.Kind{explain.KindCanary, explain.KindRollout}

// wanted are the kinds of the selection.
func (s Selection) wanted() []explain.Kind {
	if len(s.Kinds) > 0 {
		return s.Kinds
	}
	return kinds
}

func (s Selection) takes(key explain.Key, of labels.Set) bool {
	named := func(n Name) bool { return n.Name == key.Name && (n.Kind == "" || n.Kind == key.Kind) }
	return (s.Namespace == "" || key.Namespace == s.Namespace) && slices.Contains(s.wanted(), key.Kind) &&
		(len(s.Names) == 0 || slices.ContainsFunc(s.Names, named)) &&
		(s.Labels == nil || s.Labels.Matches(of))
}

// found are the selected objects, and what could not be read.
type found struct {
	objects []client.Object
	// kinds that could be read.
	kinds  []explain.Kind
	unread []string
}

// keyOf is the key of the release of an object.
func keyOf(object client.Object) explain.Key {
	kind := explain.KindCanary
	if _, is := object.(*argov1.Rollout); is {
		kind = explain.KindRollout
	}
	return explain.Key{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// objects reads the selected objects, those with names individually, which requires fewer permissions. A kind that the cluster does
// not know, or that the user has no permission to list, is no error while the other can be read.
func (s *Session) objects(ctx context.Context, sel Selection) (found, error) {
	if len(sel.Names) == 0 {
		return s.listed(ctx, sel)
	}
	var out found
	for _, name := range sel.Names {
		object, err := s.named(ctx, sel.Namespace, name)
		if err != nil {
			return found{}, err
		}
		out.objects = append(out.objects, object)
		if kind := keyOf(object).Kind; !slices.Contains(out.kinds, kind) {
			out.kinds = append(out.kinds, kind)
		}
	}
	return out, nil
}

func (s *Session) listed(ctx context.Context, sel Selection) (found, error) {
	var out found
	var failures []error
	options := []client.ListOption{client.InNamespace(sel.Namespace)}
	if sel.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: sel.Labels})
	}
	for _, kind := range sel.wanted() {
		list := listOf(kind)
		err := s.Client.List(ctx, list, options...)
		switch {
		case err != nil && !unknown(err) && !forbidden(err):
			return found{}, explained("list "+plural(string(kind))+inNamespace(sel.Namespace), err, kind)
		case err != nil:
			failures = append(failures, explained("list "+plural(string(kind))+inNamespace(sel.Namespace), err, kind))
			if forbidden(err) {
				out.unread = append(out.unread, noPermission("read "+plural(string(kind))+inNamespace(sel.Namespace)))
			}
			continue
		}
		out.kinds = append(out.kinds, kind)
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			if object, is := item.(client.Object); is {
				out.objects = append(out.objects, decoded(object))
			}
			return nil
		}); err != nil {
			return found{}, fmt.Errorf("read the list of %s: %w", plural(string(kind)), err)
		}
	}
	if len(failures) == len(sel.wanted()) || len(out.objects) == 0 && len(out.unread) > 0 {
		return found{}, severest(failures)
	}
	slices.SortFunc(out.objects, func(a, b client.Object) int { return keyOf(a).Compare(keyOf(b)) })
	return out, nil
}

// decoded puts the state of a Canary into its field, wherever it is stored.
func decoded(object client.Object) client.Object {
	if c, ok := object.(*flaggerv1.Canary); ok {
		c.Status = flaggerv1.DecodeState(c.Status)
	}
	return object
}

// listOf is an empty list of a kind.
func listOf(kind explain.Kind) client.ObjectList {
	if kind == explain.KindRollout {
		return &argov1.RolloutList{}
	}
	return &flaggerv1.CanaryList{}
}

// ErrAmbiguous is the error of a name without a kind: there is a release of either kind with that name.
var ErrAmbiguous = errors.New("ambiguous")

// named reads an object by its name.
func (s *Session) named(ctx context.Context, namespace string, name Name) (client.Object, error) {
	wanted := kinds
	if name.Kind != "" {
		wanted = []explain.Kind{name.Kind}
	}
	var there []client.Object
	var failures []error
	for _, kind := range wanted {
		var object client.Object = &flaggerv1.Canary{}
		if kind == explain.KindRollout {
			object = &argov1.Rollout{}
		}
		err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, object)
		switch {
		case err == nil:
			there = append(there, decoded(object))
		case !unknown(err) && !forbidden(err) && !apierrors.IsNotFound(err):
			return nil, explained("get "+string(kind)+" "+name.Name+inNamespace(namespace), err, kind)
		default:
			failures = append(failures, explained("get "+string(kind)+" "+name.Name+inNamespace(namespace), err, kind))
		}
	}
	switch {
	case len(there) > 1:
		return nil, failure{ErrAmbiguous, nil, fmt.Sprintf("%s%s is a Canary and a Rollout: use canary/%s or rollout/%s", name.Name, inNamespace(namespace), name.Name, name.Name)}
	case len(there) == 1:
		return there[0], nil
	case len(failures) == 1:
		return nil, failures[0]
	case !slices.ContainsFunc(failures, func(err error) bool { return !errors.Is(err, ErrNotFound) }):
		return nil, failure{ErrNotFound, errors.Join(failures...), fmt.Sprintf("get %s%s: no Canary and no Rollout has that name: list all with: serin get -A", name.Name, inNamespace(namespace))}
	default:
		return nil, severest(failures)
	}
}

// severest is the most important failure: denied access before a missing kind.
func severest(failures []error) error {
	i := slices.IndexFunc(failures, func(err error) bool { return !errors.Is(err, ErrNotFound) })
	if i >= 0 {
		return failures[i]
	}
	if len(failures) > 1 {
		return failure{ErrNotFound, errors.Join(failures...), "this cluster has neither the kind Canary of flagger.app nor the kind Rollout of argoproj.io: install the definitions with: serin crds | kubectl apply --server-side -f -; --group argoproj.io selects those of Rollouts"}
	}
	return failures[0]
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return " in all namespaces"
	}
	return " in namespace " + namespace
}

// explained is an error of the API machinery as a message, of a kind that callers can distinguish.
func explained(what string, err error, kind explain.Kind) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	err = outbound.RedactError(err)
	switch {
	case unknown(err):
		return failure{ErrNotFound, err, what + ": " + uninstalled(kind)}
	case apierrors.IsNotFound(err):
		return failure{ErrNotFound, err, what + ": not found: list all with: serin get -A"}
	case forbidden(err):
		return failure{ErrUnreachable, err, what + ": access denied: " + err.Error()}
	default:
		return failure{ErrUnreachable, err, what + ": " + err.Error()}
	}
}

// unknown reports whether the cluster does not know a kind.
func unknown(err error) bool { return meta.IsNoMatchError(err) || runtime.IsNotRegisteredError(err) }

func uninstalled(kind explain.Kind) string {
	if kind == explain.KindRollout {
		return "this cluster does not have the kind Rollout of argoproj.io: install the definitions with: serin crds --group argoproj.io | kubectl apply --server-side -f -"
	}
	return "this cluster does not have the kind Canary of flagger.app: install the definitions with: serin crds | kubectl apply --server-side -f -"
}

// forbidden reports whether the user has no permission, or is not authenticated.
func forbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// failure is a message with its kind and its cause.
type failure struct {
	kind, cause error
	text        string
}

func (f failure) Error() string { return f.text }
func (f failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}
