package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/check"
	"github.com/serin-dev/serin/internal/cli/demo"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
)

// Demo is the state of a demo in a namespace.
type Demo struct {
	Namespace string
	// NamespaceExists is false if the namespace must be created; IsNamespaceOwn is true if the demo created it.
	NamespaceExists, IsNamespaceOwn bool
	// own are the objects that the demo created; foreign are those that it did not, as kind and name. unread describes what could not
	// be read.
	own             []metav1.PartialObjectMetadata
	foreign, unread []string
	// remaining is the number of objects that exist because of the demo, and uids are their UIDs.
	remaining int
	uids      map[types.UID]bool
}

// Kind returns the kind of the release of the demo; empty: there is none.
func (d Demo) Kind() explain.Kind {
	for i := range d.own {
		if kind := explain.Kind(d.own[i].Kind); slices.Contains(kinds, kind) {
			return kind
		}
	}
	return ""
}

// IsEmpty reports whether nothing of the demo exists.
func (d Demo) IsEmpty() bool { return len(d.own) == 0 && !d.IsNamespaceOwn }

// InspectDemo reads what a demo needs or has created in a namespace. Errors: ErrUnreachable.
func (s *Session) InspectDemo(ctx context.Context, namespace string) (Demo, error) {
	return s.inspectDemo(ctx, namespace, map[types.UID]bool{})
}

// inspectDemo reads what exists in a namespace. uids are the UIDs of objects that existed because of the demo.
func (s *Session) inspectDemo(ctx context.Context, namespace string, uids map[types.UID]bool) (Demo, error) {
	out := Demo{Namespace: namespace, NamespaceExists: true, uids: uids}
	var object corev1.Namespace
	switch err := s.Client.Get(ctx, client.ObjectKey{Name: namespace}, &object); {
	case apierrors.IsNotFound(err):
		return Demo{Namespace: namespace}, nil
	case isForbidden(err): // it is assumed to exist, because a user with permissions in one namespace cannot read it
	case err != nil:
		return Demo{}, describeError("get Namespace "+namespace, err, explain.KindCanary)
	case object.DeletionTimestamp != nil:
		return Demo{}, failure{ErrRefused, nil, "Namespace " + namespace + " is being deleted: wait until it is gone, or use another one"}
	default:
		out.IsNamespaceOwn = demo.IsOwn(&object)
	}
	var all []metav1.PartialObjectMetadata
	for _, kind := range demo.Kinds() {
		items, err := s.listMetadata(ctx, kind.GroupVersionKind, namespace)
		switch {
		case kind.IsOptional && isUnknownKind(err):
			continue
		case err != nil:
			return Demo{}, describeError("list "+plural(kind.Kind)+inNamespace(namespace), err, explain.KindCanary)
		}
		for _, item := range items {
			all = append(all, item)
			if demo.IsOwn(&item) && len(item.OwnerReferences) == 0 {
				out.own = append(out.own, item)
			}
		}
	}
	own, foreign := demo.Separate(all, uids)
	out.remaining, out.foreign = len(own), foreign
	return out, nil
}

// listMetadata lists the objects of a kind in a namespace, without their content.
func (s *Session) listMetadata(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := s.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
	}
	return list.Items, nil
}

// inspectOthers reads the objects of all kinds, because the deletion of a namespace deletes them too. It replaces foreign and unread,
// and adds to uids.
func (s *Session) inspectOthers(ctx context.Context, d *Demo) error {
	kinds, unread := s.namespacedKinds(ctx)
	var all []metav1.PartialObjectMetadata
	for _, kind := range kinds {
		items, err := s.listMetadata(ctx, kind, d.Namespace)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err) || isUnknownKind(err): // its definition was deleted, and its objects with it
		case err != nil:
			unread = append(unread, plural(kind.Kind)+" ("+apiName(kind.GroupVersion())+"): "+err.Error())
		default:
			all = append(all, items...)
		}
	}
	all = slices.DeleteFunc(all, func(o metav1.PartialObjectMetadata) bool {
		return o.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}) && strings.HasPrefix(o.Name, operator.LeaseName(""))
	})
	_, d.foreign = demo.Separate(all, d.uids)
	d.unread = unread
	return nil
}

// apiName returns the group of an API, or its version if the group has no name.
func apiName(api schema.GroupVersion) string { return cmp.Or(api.Group, api.Version) }

// namespacedKinds returns the kinds whose objects are deleted together with their namespace, and a message for each kind that cannot be
// listed. Kubernetes deletes no objects of an API without deletions, such as metrics.
func (s *Session) namespacedKinds(ctx context.Context) (kinds []schema.GroupVersionKind, unread []string) {
	lists, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, s.Discovery)
	if failed := (&discovery.ErrGroupDiscoveryFailed{}); errors.As(err, &failed) {
		for api, cause := range failed.Groups {
			unread = append(unread, "the kinds of "+apiName(api)+": "+cause.Error())
		}
		slices.Sort(unread)
	} else if err != nil {
		return nil, []string{"the kinds of the cluster: " + err.Error()}
	}
	for _, list := range lists {
		api, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			unread = append(unread, "the kinds of "+list.GroupVersion+": "+err.Error())
			continue
		}
		for _, resource := range list.APIResources {
			switch {
			case strings.Contains(resource.Name, "/"), !slices.Contains(resource.Verbs, "delete"): // a subresource, or nothing that is deleted
			case slices.Contains(resource.Verbs, "list"):
				kinds = append(kinds, api.WithKind(resource.Kind))
			default:
				unread = append(unread, plural(resource.Kind)+" ("+apiName(api)+"): the API has no list of them")
			}
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind))
	})
	return kinds, unread
}

// CheckDemo checks whether the demo can run: the definitions, a Serin that acts on the namespace, the permissions of the user, and
// that the namespace contains no objects of others. Errors: ErrRefused, ErrNotFound, ErrUnreachable.
func (s *Session) CheckDemo(ctx context.Context, found Demo, objects []*unstructured.Unstructured, kind explain.Kind) error {
	if !found.IsNamespaceOwn && len(found.foreign) > 0 {
		return failure{ErrRefused, nil, fmt.Sprintf("namespace %s contains %s, which the demo did not create: use a namespace that is empty or does not exist",
			found.Namespace, shorten(found.foreign))}
	}
	if own := found.Kind(); own != "" && own != kind {
		return failure{ErrRefused, nil, fmt.Sprintf("the demo in namespace %s is a %s: use --kind %s, or delete it with --delete",
			found.Namespace, own, strings.ToLower(string(own)))}
	}
	if err := s.checkDemoController(ctx, found.Namespace, kind); err != nil {
		return err
	}
	return s.checkDemoAccess(ctx, found, objects)
}

// shorten lists the first elements.
func shorten(all []string) string {
	const shown = 3
	return shortenTo(shown, all)
}

func shortenTo(shown int, all []string) string {
	if len(all) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
	}
	return strings.Join(all, ", ")
}

// checkDemoController checks that the definitions are installed, and that a Serin and no other controller acts on a release.
func (s *Session) checkDemoController(ctx context.Context, namespace string, kind explain.Kind) error {
	var object client.Object = &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: demo.Name}}
	if kind == explain.KindRollout {
		object = &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: demo.Name}}
	}
	if err := s.Client.List(ctx, newObjectList(kind), client.InNamespace(namespace)); err != nil {
		return describeError("list "+plural(string(kind))+inNamespace(namespace), err, kind)
	}
	found := s.findControllers(ctx, []client.Object{object})
	now := s.Clock.Now()
	if !found.flagsSpecified && !found.hasSerin(object, now) && len(found.unread) == 0 {
		return failure{ErrNotFound, nil, fmt.Sprintf("no Serin that acts on %s in namespace %s is running: install it, see docs/install.md, or find out what is missing with: serin check",
			plural(string(kind)), namespace)}
	}
	if other := found.otherControllerFor(ctx, object, nil, now); other.Sign != "" {
		return failure{ErrRefused, nil, fmt.Sprintf("another controller acts on %s (%s), so Serin does not: use the other --kind, or see serin check", plural(string(kind)), other.Sign)}
	}
	return nil
}

// checkDemoAccess reviews the permissions to create, follow and delete the objects.
func (s *Session) checkDemoAccess(ctx context.Context, found Demo, objects []*unstructured.Unstructured) error {
	var required []access
	if !found.NamespaceExists {
		required = append(required, access{"", "namespaces", "", "create"}, access{"", "namespaces", "", "delete"})
	}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := s.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return describeError("find the kind "+kind.Kind, err, explain.Kind(kind.Kind))
		}
		verbs := []string{"create", "delete"}
		if object.GetName() == demo.Name {
			verbs = append(verbs, "get", "list", "watch", "patch")
		}
		for _, verb := range verbs {
			if one := (access{kind.Group, mapping.Resource.Resource, "", verb}); !slices.Contains(required, one) {
				required = append(required, one)
			}
		}
	}
	reviewed := s.review(ctx, check.Access{}, required, ownReview(found.Namespace))
	switch {
	case reviewed.Unread != "":
		return failure{ErrUnreachable, nil, "review your permissions" + inNamespace(found.Namespace) + ": " + reviewed.Unread}
	case len(reviewed.Denied) > 0:
		return failure{ErrUnreachable, nil, fmt.Sprintf("you lack permissions in namespace %s: %s: an administrator can bind the ClusterRole admin, which includes them in an existing namespace",
			found.Namespace, strings.Join(reviewed.Denied, ", "))}
	}
	return nil
}

// CreateDemo creates the objects that do not exist yet, and calls report with each.
func (s *Session) CreateDemo(ctx context.Context, found Demo, objects []*unstructured.Unstructured, report func(object string)) error {
	if !found.NamespaceExists {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: found.Namespace, Labels: demo.Labels()}}
		if err := s.Client.Create(ctx, namespace); err != nil {
			return describeError("create Namespace "+found.Namespace, err, explain.KindCanary)
		}
		report("Namespace " + found.Namespace)
	}
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetName()
		if slices.ContainsFunc(found.own, func(o metav1.PartialObjectMetadata) bool {
			return o.Kind == object.GetKind() && o.Name == object.GetName()
		}) {
			continue
		}
		err := s.Client.Create(ctx, object)
		switch {
		case apierrors.IsAlreadyExists(err):
			return failure{ErrRefused, err, fmt.Sprintf("%s%s exists, and the demo did not create it: use another namespace", name, inNamespace(found.Namespace))}
		case err != nil:
			return describeError("create "+name+inNamespace(found.Namespace), err, explain.KindCanary)
		}
		report(name)
	}
	return nil
}

// demoWorkload returns an object with the kind and the name of the workload of a demo.
func demoWorkload(kind explain.Kind, namespace string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if kind == explain.KindRollout {
		object.SetGroupVersionKind(argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind))
	}
	object.SetNamespace(namespace)
	object.SetName(demo.Name)
	return object
}

// ReleaseDemo releases the version that next chooses, given the version that the workload has. Errors: ErrUnreachable, ErrRefused.
func (s *Session) ReleaseDemo(ctx context.Context, kind explain.Kind, namespace string, next func(demo.Version) demo.Version) (demo.Version, error) {
	workload := demoWorkload(kind, namespace)
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(workload), workload); err != nil {
		return demo.Version{}, describeError("get "+workload.GetKind()+" "+demo.Name+inNamespace(namespace), err, kind)
	}
	current, err := demo.VersionOf(workload)
	if err != nil {
		return demo.Version{}, failure{ErrRefused, err, err.Error()}
	}
	version := next(current)
	patch, err := version.Patch()
	if err != nil {
		return demo.Version{}, fmt.Errorf("release %s: %w", version, err)
	}
	if err := s.Client.Patch(ctx, workload, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return demo.Version{}, describeError("patch "+workload.GetKind()+" "+demo.Name+inNamespace(namespace), err, kind)
	}
	return version, nil
}

// deletionInterval is the interval at which DeleteDemo reads what remains.
const deletionInterval = time.Second

// DeleteDemo deletes what the demo has created, and waits until it is gone. It deletes the namespace only if the demo created it and
// nothing else is in it. It calls report with each action. Errors: ErrUnreachable.
func (s *Session) DeleteDemo(ctx context.Context, found Demo, report func(string)) error {
	if found.IsNamespaceOwn {
		// Objects such as Endpoints refer to the demo only as long as it exists.
		if err := s.inspectOthers(ctx, &found); err != nil {
			return err
		}
	}
	own := slices.Clone(found.own)
	slices.SortStableFunc(own, func(a, b metav1.PartialObjectMetadata) int { return deletionRank(a.Kind) - deletionRank(b.Kind) })
	for i := range own {
		o := &own[i]
		err := s.Client.Delete(ctx, o, client.Preconditions{UID: new(o.UID)}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !apierrors.IsNotFound(err) {
			return describeError("delete "+o.Kind+" "+o.Name+inNamespace(found.Namespace), err, explain.KindCanary)
		}
		report("deleted " + o.Kind + " " + o.Name)
	}
	if err := s.waitForDeletion(ctx, found, report); err != nil {
		return err
	}
	if !found.IsNamespaceOwn {
		report("retained Namespace " + found.Namespace + ", which the demo did not create")
		return nil
	}
	return s.deleteDemoNamespace(ctx, found, report)
}

// deleteDemoNamespace deletes the namespace, and waits until it is gone, unless it contains or may contain objects of others.
func (s *Session) deleteDemoNamespace(ctx context.Context, found Demo, report func(string)) error {
	if err := s.inspectOthers(ctx, &found); err != nil {
		return err
	}
	const shown = 20
	if len(found.foreign) > 0 {
		report(fmt.Sprintf("retained Namespace %s, because it contains %s", found.Namespace, shortenTo(shown, found.foreign)))
	}
	if len(found.unread) > 0 {
		report(fmt.Sprintf("retained Namespace %s, because it may contain objects that cannot be listed: %s", found.Namespace, shorten(found.unread)))
	}
	if len(found.foreign)+len(found.unread) > 0 {
		report("Delete the namespace, and everything in it, with: kubectl delete namespace " + found.Namespace)
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: found.Namespace}}
	if err := s.Client.Delete(ctx, namespace); err != nil && !apierrors.IsNotFound(err) {
		return describeError("delete Namespace "+found.Namespace, err, explain.KindCanary)
	}
	report("waiting until Namespace " + found.Namespace + " is gone ...")
	return s.pollDeletion(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, describeError("get Namespace "+found.Namespace, err, explain.KindCanary)
	})
}

// deletionRank orders kinds: a release first, so that Serin does not react to the deletion of its workload.
func deletionRank(kind string) int {
	if slices.Contains(kinds, explain.Kind(kind)) {
		return 0
	}
	return 1
}

// waitForDeletion waits until the objects that controllers created because of the demo are gone too.
func (s *Session) waitForDeletion(ctx context.Context, found Demo, report func(string)) error {
	reported := 0
	return s.pollDeletion(ctx, func() (bool, error) {
		now, err := s.inspectDemo(ctx, found.Namespace, found.uids)
		if now.remaining > 0 && now.remaining != reported {
			report(fmt.Sprintf("waiting until all objects are gone, %d remain ...", now.remaining))
			reported = now.remaining
		}
		return now.remaining == 0, err
	})
}

// pollDeletion calls isGone until it is true or fails.
func (s *Session) pollDeletion(ctx context.Context, isGone func() (bool, error)) error {
	ticker := s.Clock.NewTicker(deletionInterval)
	defer ticker.Stop()
	for {
		if gone, err := isGone(); gone || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

// DemoGateway reads a Gateway, and returns the address of its first HTTP listener. Errors: ErrNotFound, ErrRefused, ErrUnreachable.
func (s *Session) DemoGateway(ctx context.Context, namespace, name string) (demo.Gateway, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Kind: "Gateway"})
	where := "Gateway " + name + inNamespace(namespace)
	var gateway gatewayv1.Gateway
	switch err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); {
	case isUnknownKind(err):
		return demo.Gateway{}, failure{ErrNotFound, err, "this cluster does not have the Gateway API: omit --gateway, or install a gateway controller"}
	case apierrors.IsNotFound(err):
		return demo.Gateway{}, failure{ErrNotFound, err, where + " does not exist: list all with: kubectl get gateways -A"}
	case err != nil:
		return demo.Gateway{}, describeError("get "+where, err, explain.KindCanary)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &gateway); err != nil {
		return demo.Gateway{}, fmt.Errorf("read %s: %w", where, err)
	}
	listener := slices.IndexFunc(gateway.Spec.Listeners, func(l gatewayv1.Listener) bool { return l.Protocol == gatewayv1.HTTPProtocolType })
	switch {
	case listener < 0:
		return demo.Gateway{}, failure{ErrRefused, nil, where + " has no listener with protocol HTTP: use another one"}
	case len(gateway.Status.Addresses) == 0:
		return demo.Gateway{}, failure{ErrRefused, nil, where + " has no address yet: see its status with: kubectl get gateway " + name + " -n " + namespace + " -o yaml"}
	}
	port := strconv.Itoa(int(gateway.Spec.Listeners[listener].Port))
	return demo.Gateway{Namespace: namespace, Name: name, Address: net.JoinHostPort(gateway.Status.Addresses[0].Value, port)}, nil
}
