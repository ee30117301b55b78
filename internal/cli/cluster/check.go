package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/config/rbac"
	"github.com/serin-dev/serin/internal/cli/check"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/outbound"
)

// CheckRequest selects what is checked.
type CheckRequest struct {
	// Before is true before the installation of Serin: no controller must run yet, and the user must be able to install one.
	Before bool
	// Namespace is that of the release, and of the permissions of the user.
	Namespace string
	// Release is the release that is checked; nil: none.
	Release *Name
	// Prometheus answers all queries in place of the servers that they name; nil: none does.
	Prometheus *url.URL
}

// Check checks the cluster and a release in it. It changes nothing. It sends the queries of the release to the Prometheus servers
// of the cluster, through the API server. Errors: those of Observe for the release.
func (s *Session) Check(ctx context.Context, request CheckRequest) (check.Report, error) {
	var objects []client.Object
	if request.Release != nil {
		object, err := s.getObject(ctx, request.Namespace, *request.Release)
		if err != nil {
			return check.Report{}, err
		}
		objects = append(objects, object)
	}
	found := s.findControllers(ctx, objects)
	cluster := s.checkCluster(ctx, found.flags)
	if cluster.VersionError != "" && !isReadable(cluster) {
		return check.Report{}, failure{ErrUnreachable, nil, "the cluster does not respond: " + cluster.VersionError}
	}
	section := cluster.Section()
	if result, none := cluster.NoGroup(); none && !request.Before {
		section.Results = append(section.Results, result)
	}
	report := check.Report{Sections: []check.Section{
		section, s.checkControllers(&found, objects).Section(!request.Before), check.AccessSection(s.checkAccess(ctx, request, &found)),
	}}
	for _, object := range objects {
		one, err := s.checkRelease(ctx, object, request, &found)
		if err != nil {
			return check.Report{}, err
		}
		report.Sections = append(report.Sections, one)
	}
	return report, nil
}

// isReadable reports whether the definitions of a group could be read, so that the cluster responds.
func isReadable(c check.Cluster) bool {
	return slices.ContainsFunc(c.Groups, func(g check.Group) bool { return g.Unread == "" || strings.HasPrefix(g.Unread, "no permission") })
}

func (s *Session) checkCluster(ctx context.Context, f flags) check.Cluster {
	out := check.Cluster{}
	if s.API == nil {
		out.VersionError = "the API server was not queried"
	} else if text, err := s.API.readVersion(&http.Client{Transport: s.API.Transport, Timeout: check.Timeout}); err != nil {
		out.VersionError = err.Error()
	} else {
		out.Version = text
	}
	for _, group := range []check.Group{
		{Name: flaggerv1.GroupName, Kind: explain.KindCanary, Needed: slices.Contains(f.APIs, "canary")},
		{Name: argov1.SchemeGroupVersion.Group, Kind: explain.KindRollout, Needed: slices.Contains(f.APIs, "rollout")},
	} {
		out.Groups = append(out.Groups, s.checkGroup(ctx, group))
	}
	return out
}

// checkGroup reads the definitions of an API group.
func (s *Session) checkGroup(ctx context.Context, group check.Group) check.Group {
	files, err := crd.Files(group.Name)
	if err != nil {
		group.Unread = err.Error()
		return group
	}
	group.All = len(files)
	for file := range files {
		_, plural, _ := strings.Cut(strings.TrimSuffix(file, ".yaml"), "_")
		name := plural + "." + group.Name
		definition := &metav1.PartialObjectMetadata{}
		definition.SetGroupVersionKind(definitionKind)
		switch err := s.Client.Get(ctx, client.ObjectKey{Name: name}, definition); {
		case isForbidden(err):
			group.Unread = "no permission to read CustomResourceDefinitions"
			return group
		case apierrors.IsNotFound(err):
			group.Missing = append(group.Missing, name)
		case err != nil:
			group.Unread = err.Error()
			return group
		}
	}
	slices.Sort(group.Missing)
	name, version := "canaries."+flaggerv1.GroupName, flaggerv1.SchemeGroupVersion.Version
	if group.Kind == explain.KindRollout {
		name, version = "rollouts."+argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version
	}
	if group.Prunes, err = s.prunesStatus(ctx, name, version); err != nil {
		group.Unread = err.Error()
	}
	return group
}

// checkControllers describes the controllers that were found.
func (s *Session) checkControllers(found *controllers, objects []client.Object) check.Controller {
	own := *found
	own.flaggers, own.argos = nil, nil
	own.leases = slices.DeleteFunc(slices.Clone(found.leases), func(l coordinationv1.Lease) bool { return managerOf(l.Name) != serinManager })
	if manager, _ := lastStatusWriter(objects); manager != serinManager {
		objects = nil // the status was written by another controller
	}
	out := check.Controller{
		Summary: own.summary(objects, s.Clock.Now()), FlagsKnown: found.flags.known,
		Provider: found.flags.MeshProvider,
	}
	if !found.flags.announced {
		out.MetricsServer = outbound.Redact(found.flags.MetricsServer)
	}
	for kind, all := range map[explain.Kind][]othercontroller.Controller{explain.KindCanary: found.flaggers, explain.KindRollout: found.argos} {
		for _, one := range all {
			out.Others = append(out.Others, check.Other{Kind: kind, Namespace: one.Namespace, Name: one.Name, Ready: one.Ready})
		}
	}
	slices.SortFunc(out.Others, func(a, b check.Other) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// access is a request whose permission is reviewed.
type access struct{ group, resource, subresource, verb string }

func (a access) String() string {
	text := a.resource
	if a.group != "" {
		text += "." + a.group
	}
	if a.subresource != "" {
		text += "/" + a.subresource
	}
	return a.verb + " " + text
}

func (a access) attributes(namespace string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: a.verb, Group: a.group, Resource: a.resource, Subresource: a.subresource}
}

// userAccess is what the commands for releases need.
func userAccess() []access {
	var out []access
	for _, verb := range []string{"get", "list", "watch", "patch"} {
		out = append(out, access{flaggerv1.GroupName, "canaries", "", verb}, access{argov1.SchemeGroupVersion.Group, "rollouts", "", verb})
	}
	return append(out, access{argov1.SchemeGroupVersion.Group, "rollouts", "status", "patch"}, access{"", "events", "", "list"}, access{"", "events", "", "create"},
		access{"", "pods", "", "list"}, access{"apps", "replicasets", "", "list"}, access{"", "services", "proxy", "get"})
}

// installAccess is what the installation of Serin needs.
func installAccess() []access {
	return []access{
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "create"},
		{"rbac.authorization.k8s.io", "clusterroles", "", "create"},
		{"rbac.authorization.k8s.io", "clusterrolebindings", "", "create"},
		{"", "namespaces", "", "create"},
		{"", "serviceaccounts", "", "create"},
		{"apps", "deployments", "", "create"},
	}
}

// coreGroups are the API groups that every installation needs; the others belong to traffic providers.
var coreGroups = []string{"", "apps", "discovery.k8s.io", "autoscaling", flaggerv1.GroupName, argov1.SchemeGroupVersion.Group}

// controllerAccess is what the controller needs whatever the traffic provider is.
func controllerAccess(apis []string) ([]access, error) {
	rules, err := rbac.Always()
	if err != nil {
		return nil, err
	}
	for _, api := range apis {
		more, err := rbac.ForAPI(api)
		if err != nil {
			return nil, err
		}
		rules = append(rules, more...)
	}
	var out []access
	for _, rule := range rules {
		if len(rule.ResourceNames) == 0 {
			out = append(out, accessOf(rule)...)
		}
	}
	return out, nil
}

// accessOf returns the requests that a rule permits, if they concern the core groups.
func accessOf(rule rbacv1.PolicyRule) []access {
	var out []access
	for _, group := range rule.APIGroups {
		if !slices.Contains(coreGroups, group) {
			continue
		}
		for _, text := range rule.Resources {
			resource, subresource, _ := strings.Cut(text, "/")
			for _, verb := range rule.Verbs {
				out = append(out, access{group, resource, subresource, verb})
			}
		}
	}
	return out
}

// checkAccess reviews the permissions of the user and of the controller.
func (s *Session) checkAccess(ctx context.Context, request CheckRequest, found *controllers) []check.Access {
	user := check.Access{Subject: "you, in namespace " + request.Namespace, Fix: "bind the ClusterRole edit of the cluster, which includes them, see docs/install.md"}
	required, namespace := userAccess(), request.Namespace
	if request.Before {
		user = check.Access{Subject: "you, for the installation", Required: true, Fix: "an administrator of the cluster must install Serin"}
		required, namespace = installAccess(), ""
	}
	out := []check.Access{s.review(ctx, user, required, ownReview(namespace))}
	for _, serin := range found.serins {
		f := parseFlags(serin.Args)
		account := check.Access{
			Subject: "service account " + serin.ServiceAccount + "." + serin.Namespace, Required: true, Fix: "apply the roles of the installation again, see docs/install.md",
		}
		required, err := controllerAccess(f.APIs)
		if err != nil {
			account.Unread = err.Error()
			out = append(out, account)
			continue
		}
		out = append(out, s.review(ctx, account, required, func(a access) (client.Object, func() bool) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + serin.Namespace + ":" + serin.ServiceAccount,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + serin.Namespace, "system:authenticated"},
				ResourceAttributes: a.attributes(f.Namespace),
			}}
			return review, func() bool { return review.Status.Allowed }
		}))
	}
	return out
}

// ownReview creates reviews of the requests of the user in a namespace.
func ownReview(namespace string) func(access) (client.Object, func() bool) {
	return func(a access) (client.Object, func() bool) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a.attributes(namespace)}}
		return review, func() bool { return review.Status.Allowed }
	}
}

// review reviews the requests of one subject concurrently.
func (s *Session) review(ctx context.Context, of check.Access, required []access, newReview func(access) (client.Object, func() bool)) check.Access {
	of.All = len(required)
	denied := make([]bool, len(required))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for i, one := range required {
		group.Go(func() error {
			review, isAllowed := newReview(one)
			if err := s.Client.Create(ctx, review); err != nil {
				return err
			}
			denied[i] = !isAllowed()
			return nil
		})
	}
	switch err := group.Wait(); {
	case isForbidden(err):
		of.Unread = "no permission to review access"
		return of
	case err != nil:
		of.Unread = err.Error()
		return of
	}
	for i, one := range required {
		if denied[i] {
			of.Denied = append(of.Denied, one.String())
		}
	}
	return of
}

// checkRelease observes a release and sends its queries.
func (s *Session) checkRelease(ctx context.Context, object client.Object, request CheckRequest, found *controllers) (check.Section, error) {
	reader, err := newCachedReader(ctx, s.Client)
	if err != nil {
		return check.Section{}, err
	}
	events, _ := s.events(ctx, Selection{Namespace: object.GetNamespace(), Names: []Name{{Kind: keyOf(object).Kind, Name: object.GetName()}}})
	other := found.otherControllerFor(ctx, object, oldestFirst(events[keyOf(object)], object.GetUID()), s.Clock.Now())
	switch object := object.(type) {
	case *flaggerv1.Canary:
		observed, err := s.observeCanary(ctx, reader, object, found.flags)
		if err != nil {
			return check.Section{}, err
		}
		plan := observed.Snapshot.Plan
		return check.Canary{
			Object: object, Snapshot: observed.Snapshot, Invalid: plan.ValidationErrors, Unread: observed.Unread, Assumed: observed.Assumed, Other: other.Sign,
			Measured: s.measureCanary(ctx, observed, request, found.flags), Webhooks: s.resolveWebhooks(ctx, object, found.flags),
			Disruption: s.disruptionOf(ctx, object), Parents: s.parentsOf(ctx, routeRefs(found.flags.Routers(), object, plan.Provider)),
		}.Section(), nil
	case *argov1.Rollout:
		observed, err := s.observeRollout(ctx, reader, object, found.flags)
		if err != nil {
			return check.Section{}, err
		}
		measured, problems := s.measureRollout(ctx, reader, observed, request, found.flags)
		return check.Rollout{
			Object: object, Snapshot: observed.Snapshot, Routers: observed.Routers, Unread: observed.Unread, Assumed: observed.Assumed, Other: other.Sign,
			Measured: measured, TemplateProblems: problems, Autoscalers: s.autoscalersIn(ctx, object.Namespace), Budgets: s.budgetsOfRevisions(ctx, observed),
			Parents: s.parentsOf(ctx, rolloutRouteRefs(found.flags.Routers(), object)),
		}.Section(), nil
	default:
		return check.Section{}, errors.New("not a release") // there is no other kind
	}
}

// resolveWebhooks looks up the Services that the webhooks of a Canary name. It sends no request to them.
func (s *Session) resolveWebhooks(ctx context.Context, object *flaggerv1.Canary, f flags) []check.Webhook {
	if object.Spec.Analysis == nil {
		return nil
	}
	var out []check.Webhook
	for _, hook := range object.Spec.Analysis.Webhooks {
		one := check.Webhook{Name: hook.Name}
		address, err := url.Parse(hook.URL)
		if err != nil || address.Hostname() == "" {
			one.Problem = "its url is not valid"
			out = append(out, one)
			continue
		}
		one.Host = address.Hostname()
		service, ok, err := parseServiceHost(one.Host, f.Argo.OwnNamespace)
		switch {
		case err != nil:
			one.NotResolved = err.Error()
		case !ok:
			one.NotResolved = one.Host + " is not a Service of the cluster"
		default:
			err := s.Client.Get(ctx, client.ObjectKey{Namespace: service.namespace, Name: service.name}, &corev1.Service{})
			switch {
			case apierrors.IsNotFound(err):
				one.Problem = fmt.Sprintf("Service %s does not exist, unless %s is a host outside of the cluster", service, one.Host)
			case err != nil:
				one.NotResolved = noPermission("read Service " + service.String())
			}
		}
		out = append(out, one)
	}
	return out
}

// disruptionOf finds the PodDisruptionBudgets of the two workloads of a Canary.
func (s *Session) disruptionOf(ctx context.Context, object *flaggerv1.Canary) check.Disruption {
	if object.Spec.TargetRef.Kind != "Deployment" {
		return check.Disruption{Unread: "it applies to Deployments"}
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := s.Client.List(ctx, &budgets, client.InNamespace(object.Namespace)); err != nil {
		return check.Disruption{Unread: "the PodDisruptionBudgets cannot be read"}
	}
	target := object.Spec.TargetRef.Name
	return check.Disruption{OfTarget: s.budgetsOf(ctx, budgets.Items, object.Namespace, target), OfPrimary: s.budgetsOf(ctx, budgets.Items, object.Namespace, target+"-primary")}
}

// budgetsOfRevisions finds the PodDisruptionBudgets of the pods of a Rollout.
func (s *Session) budgetsOfRevisions(ctx context.Context, observed *explain.Rollout) check.RevisionBudgets {
	object := observed.Object
	var budgets policyv1.PodDisruptionBudgetList
	if err := s.Client.List(ctx, &budgets, client.InNamespace(object.Namespace)); err != nil {
		return check.RevisionBudgets{Unread: "the PodDisruptionBudgets cannot be read"}
	}
	all := observed.Snapshot.Spec.Template.Labels
	if len(all) == 0 { // the workload cannot be read
		return check.RevisionBudgets{Unread: "the labels of the pods are unknown"}
	}
	stable := labels.Merge(all, labels.Set{argov1.PodTemplateHashLabel: object.Status.StableRS})
	if c := object.Spec.Strategy.Canary; c != nil && c.StableMetadata != nil {
		stable = labels.Merge(stable, c.StableMetadata.Labels)
	}
	return check.RevisionBudgets{OfAll: budgetsSelecting(budgets.Items, all), OfStable: budgetsSelecting(budgets.Items, stable)}
}

// budgetsOf returns the names of the budgets that select the pods of a Deployment.
func (s *Session) budgetsOf(ctx context.Context, budgets []policyv1.PodDisruptionBudget, namespace, name string) []string {
	var deployment appsv1.Deployment
	if s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &deployment) != nil {
		return nil // another check reports it
	}
	return budgetsSelecting(budgets, deployment.Spec.Template.Labels)
}

// budgetsSelecting returns the names of the budgets that select pods with labels.
func budgetsSelecting(budgets []policyv1.PodDisruptionBudget, pods labels.Set) []string {
	var out []string
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err == nil && selector.Matches(pods) {
			out = append(out, "PodDisruptionBudget "+budgets[i].Name)
		}
	}
	return out
}
