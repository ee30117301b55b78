// Package cluster observes releases with the permissions of the user, once or continuously, and sends the commands of the user to
// the controller.
//
// It writes nothing but commands, the events that record them, the objects that the user creates, those of a demo, and the steps of an
// ejection. It calls no webhook and queries no metrics provider; it calls a chat or service only for a test message. It must not know terminals, nor how a release is described, which is the task of
// package explain.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
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
	// Discovery returns the kinds of the cluster.
	Discovery discovery.DiscoveryInterfaceWithContext
	// API sends requests to the API server that Client cannot send; nil: none are sent.
	API *APIServer
	// ControllerFlags are the arguments of the controller that the user specified; nil: the arguments in its Deployment, or else
	// the defaults.
	ControllerFlags []string
}

// Scheme returns a scheme with the types that this package reads and writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := operator.Scheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, authenticationv1.AddToScheme, autoscalingv2.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("create the scheme: %w", err)
		}
	}
	return scheme, nil
}

// The rate limits of the requests of one command, equal to those of kubectl.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
)

// Connect creates a session from a kubeconfig. It requests only the kinds that the cluster serves.
func Connect(config *rest.Config, clk clock.WithTicker) (*Session, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	config.UserAgent = "serin-cli"
	config.WarningHandler = rest.NoWarnings{} // warnings are meant for the authors of objects
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, describeError("connect to "+config.Host, err, explain.KindCanary)
	}
	api, err := newAPIServer(config)
	if err != nil {
		return nil, describeError("connect to "+config.Host, err, explain.KindCanary)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, describeError("connect to "+config.Host, err, explain.KindCanary)
	}
	return &Session{Client: c, Clock: clk, Discovery: kinds, API: api}, nil
}

// Name is the name of a release in an argument.
type Name struct {
	// Kind is the kind of the release; empty: any.
	Kind explain.Kind
	Name string
}

// Selection selects releases.
type Selection struct {
	// Namespace is the namespace of the releases; empty: all namespaces.
	Namespace string
	// Kinds are the kinds of the releases; empty: all kinds.
	Kinds []explain.Kind
	// Names are the names of the releases in the namespace; empty: all releases.
	Names []Name
	// Labels selects releases by their labels; nil: all releases.
	Labels labels.Selector
}

// kinds contains all kinds of releases, in the order in which they are read.
var kinds = []explain.Kind{explain.KindCanary, explain.KindRollout}

// kindsOrDefault returns the kinds of the selection, or all kinds if it has none.
func (s Selection) kindsOrDefault() []explain.Kind {
	if len(s.Kinds) > 0 {
		return s.Kinds
	}
	return kinds
}

func (s Selection) matches(key explain.Key, set labels.Set) bool {
	named := func(n Name) bool { return n.Name == key.Name && (n.Kind == "" || n.Kind == key.Kind) }
	return (s.Namespace == "" || key.Namespace == s.Namespace) && slices.Contains(s.kindsOrDefault(), key.Kind) &&
		(len(s.Names) == 0 || slices.ContainsFunc(s.Names, named)) &&
		(s.Labels == nil || s.Labels.Matches(set))
}

// selectedObjects contains the selected objects, and messages about those that could not be read.
type selectedObjects struct {
	objects []client.Object
	// kinds are the kinds that could be read.
	kinds  []explain.Kind
	unread []string
}

// keyOf returns the key of the release that an object defines. AnalysisRuns and Experiments have the kind of the releases whose
// controller acts on them.
func keyOf(object client.Object) explain.Key {
	kind := explain.KindCanary
	switch object.(type) {
	case *argov1.Rollout, *argov1.AnalysisRun, *argov1.Experiment:
		kind = explain.KindRollout
	}
	return explain.Key{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// readObjects reads the selected objects. It reads objects with names one by one, which requires fewer permissions. A kind that
// the cluster does not know, or that the user has no permission to list, is no error if the other kind can be read.
func (s *Session) readObjects(ctx context.Context, sel Selection) (selectedObjects, error) {
	if len(sel.Names) == 0 {
		return s.listObjects(ctx, sel)
	}
	var out selectedObjects
	for _, name := range sel.Names {
		object, err := s.getObject(ctx, sel.Namespace, name)
		if err != nil {
			return selectedObjects{}, err
		}
		out.objects = append(out.objects, object)
		if kind := keyOf(object).Kind; !slices.Contains(out.kinds, kind) {
			out.kinds = append(out.kinds, kind)
		}
	}
	return out, nil
}

func (s *Session) listObjects(ctx context.Context, sel Selection) (selectedObjects, error) {
	var out selectedObjects
	var failures []error
	options := []client.ListOption{client.InNamespace(sel.Namespace)}
	if sel.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: sel.Labels})
	}
	for _, kind := range sel.kindsOrDefault() {
		list := newObjectList(kind)
		err := s.Client.List(ctx, list, options...)
		switch {
		case err != nil && !isUnknownKind(err) && !isForbidden(err):
			return selectedObjects{}, describeError("list "+plural(string(kind))+inNamespace(sel.Namespace), err, kind)
		case err != nil:
			failures = append(failures, describeError("list "+plural(string(kind))+inNamespace(sel.Namespace), err, kind))
			if isForbidden(err) {
				out.unread = append(out.unread, noPermission("read "+plural(string(kind))+inNamespace(sel.Namespace)))
			}
			continue
		}
		out.kinds = append(out.kinds, kind)
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				out.objects = append(out.objects, decodeState(object))
			}
			return nil
		}); err != nil {
			return selectedObjects{}, fmt.Errorf("read the list of %s: %w", plural(string(kind)), err)
		}
	}
	if len(failures) == len(sel.kindsOrDefault()) || len(out.objects) == 0 && len(out.unread) > 0 {
		return selectedObjects{}, mostSevere(failures)
	}
	slices.SortFunc(out.objects, func(a, b client.Object) int { return keyOf(a).Compare(keyOf(b)) })
	return out, nil
}

// decodeState sets the field for Serin's state of a Canary, which is stored in a condition if the definition of Canaries has no
// such field.
func decodeState(object client.Object) client.Object {
	if c, ok := object.(*flaggerv1.Canary); ok {
		c.Status = flaggerv1.DecodeState(c.Status)
	}
	return object
}

// newObjectList returns an empty list of a kind.
func newObjectList(kind explain.Kind) client.ObjectList {
	if kind == explain.KindRollout {
		return &argov1.RolloutList{}
	}
	return &flaggerv1.CanaryList{}
}

// ErrAmbiguous is the error of a name without a kind that both a Canary and a Rollout have.
var ErrAmbiguous = errors.New("ambiguous")

// getObject reads an object by its name.
func (s *Session) getObject(ctx context.Context, namespace string, name Name) (client.Object, error) {
	candidates := kinds
	if name.Kind != "" {
		candidates = []explain.Kind{name.Kind}
	}
	var existing []client.Object
	var failures []error
	notFound := 0
	for _, kind := range candidates {
		var object client.Object = &flaggerv1.Canary{}
		if kind == explain.KindRollout {
			object = &argov1.Rollout{}
		}
		err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, object)
		switch {
		case err == nil:
			existing = append(existing, decodeState(object))
		case !isUnknownKind(err) && !isForbidden(err) && !apierrors.IsNotFound(err):
			return nil, describeError("get "+string(kind)+" "+name.Name+inNamespace(namespace), err, kind)
		default:
			if apierrors.IsNotFound(err) {
				notFound++
			}
			failures = append(failures, describeError("get "+string(kind)+" "+name.Name+inNamespace(namespace), err, kind))
		}
	}
	switch {
	case len(existing) > 1:
		return nil, failure{ErrAmbiguous, nil, fmt.Sprintf("%s%s is a Canary and a Rollout: use canary/%s or rollout/%s", name.Name, inNamespace(namespace), name.Name, name.Name)}
	case len(existing) == 1:
		return existing[0], nil
	case notFound > 0 && !slices.ContainsFunc(failures, func(err error) bool { return !errors.Is(err, ErrNotFound) }):
		return nil, s.notFoundError(ctx, namespace, name, errors.Join(failures...))
	default:
		return nil, mostSevere(failures)
	}
}

// mostSevere returns the most important failure: denied access takes precedence over a missing kind.
func mostSevere(failures []error) error {
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

// describeError converts an error of the API machinery to a message, with an error that callers can distinguish.
func describeError(operation string, err error, kind explain.Kind) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	err = outbound.RedactError(err)
	switch {
	case isUnknownKind(err):
		return failure{ErrNotFound, err, operation + ": " + notInstalledText(kind)}
	case apierrors.IsNotFound(err):
		return failure{ErrNotFound, err, operation + ": not found: list all with: serin get -A"}
	case isForbidden(err):
		return failure{ErrUnreachable, err, operation + ": access denied: " + err.Error()}
	default:
		return failure{ErrUnreachable, err, operation + ": " + err.Error()}
	}
}

// isUnknownKind reports whether the cluster does not know a kind.
func isUnknownKind(err error) bool {
	return meta.IsNoMatchError(err) || runtime.IsNotRegisteredError(err)
}

func notInstalledText(kind explain.Kind) string {
	if kind != explain.KindCanary {
		return "this cluster does not have the kind " + string(kind) + " of argoproj.io: install the definitions with: serin crds --group argoproj.io | kubectl apply --server-side -f -"
	}
	return "this cluster does not have the kind Canary of flagger.app: install the definitions with: serin crds | kubectl apply --server-side -f -"
}

// isForbidden reports whether the user has no permission, or is not authenticated.
func isForbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// failure is an error message with its kind, which is one of the errors above, and its cause.
type failure struct {
	kind, cause error
	message     string
}

func (f failure) Error() string { return f.message }
func (f failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}
