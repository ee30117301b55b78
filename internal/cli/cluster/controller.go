package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/watching"
)

// clockSkew is the maximum difference between the clocks of the user and of the cluster.
const clockSkew = time.Minute

// recentWrite is the maximum age of a status write whose writer counts as running.
const recentWrite = 2 * time.Minute

// controllers are the controllers that were found, and the kinds that could not be read.
type controllers struct {
	// flags of the controller that acts on the selected releases, as far as they are known.
	flags flags
	// isGiven is true if the user specified the flags of Serin: then it is assumed to run.
	isGiven bool
	// The Deployments, by what they run.
	serins, flaggers, argos []othercontroller.Controller
	leases                  []coordinationv1.Lease
	unread                  []string
	// may reports the permissions of service accounts, as far as the user can review them; otherwise all count as permitted.
	may watching.UpdatePermission
}

// findControllers finds the controllers of these releases. It never fails: it records what could not be read.
func (s *Session) findControllers(ctx context.Context, objects []client.Object) controllers {
	out := controllers{
		flags: parse(s.ControllerFlags), isGiven: s.ControllerFlags != nil,
		may: (&watching.Permissions{Client: s.Client, Clock: s.Clock}).IsPermitted,
	}
	if err := s.findDeployments(ctx, &out); err != nil {
		out.unread = append(out.unread, "Deployments")
	}
	if !out.flags.known {
		out.flags = out.flagsFor(objects)
	}
	if err := s.readLeases(ctx, &out, objects); err != nil {
		out.unread = append(out.unread, "Leases")
	}
	return out
}

// flagsFor returns the flags of the controller that acts on one of the releases; the defaults if there is none.
func (c *controllers) flagsFor(objects []client.Object) flags {
	for _, all := range [][]othercontroller.Controller{c.serins, c.flaggers} {
		for _, one := range all {
			if one.Ready > 0 && mayServe(one, objects) {
				found := parse(one.Args)
				found.Argo.OwnNamespace = one.Namespace
				return found
			}
		}
	}
	return parse(nil)
}

// mayServe is false for a controller that watches only other namespaces.
func mayServe(c othercontroller.Controller, objects []client.Object) bool {
	return len(objects) == 0 || slices.ContainsFunc(objects, func(object client.Object) bool { return c.WatchesNamespace(object.GetNamespace()) })
}

// page is the number of Deployments in one response.
const page = 500

// findDeployments finds the Deployments of controllers. They are recognized by image or flags, so all Deployments are read.
func (s *Session) findDeployments(ctx context.Context, out *controllers) error {
	next := ""
	for {
		var list appsv1.DeploymentList
		if err := s.Client.List(ctx, &list, client.InNamespace(out.flags.Namespace), client.Limit(page), client.Continue(next)); err != nil {
			return err
		}
		for i := range list.Items {
			out.add(&list.Items[i])
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// add adds a Deployment that runs a controller.
func (c *controllers) add(d *appsv1.Deployment) {
	if found, ok := othercontroller.DetectSerin(d); ok {
		c.serins = append(c.serins, found)
	} else if found, ok := othercontroller.DetectFlagger(d); ok {
		c.flaggers = append(c.flaggers, found)
	} else if found, ok := othercontroller.DetectArgoRollouts(d); ok {
		c.argos = append(c.argos, found)
	}
}

// readLeases reads the leases of controllers.
func (s *Session) readLeases(ctx context.Context, out *controllers, objects []client.Object) error {
	names := []string{othercontroller.FlaggerLeaseName}
	for _, id := range instances(objects) {
		names = append(names, operator.LeaseName(id), othercontroller.ArgoLeaseName(id))
	}
	if own := operator.LeaseName(out.flags.Argo.InstanceID); !slices.Contains(names, own) {
		names = append(names, own)
	}
	for _, name := range names {
		var list coordinationv1.LeaseList
		if err := s.Client.List(ctx, &list, client.InNamespace(out.flags.Namespace), client.MatchingFields{"metadata.name": name}); err != nil {
			return err
		}
		out.leases = append(out.leases, list.Items...)
	}
	return nil
}

// instances are the instance IDs of objects; empty for those without one.
func instances(objects []client.Object) []string {
	ids := []string{""}
	for _, object := range objects {
		if id := instanceOf(object); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// instanceOf is the instance ID of an object.
func instanceOf(object client.Object) string { return object.GetLabels()[argov1.InstanceIDLabel] }

// leasesNamed are the leases of one controller.
func (c *controllers) leasesNamed(name string) []coordinationv1.Lease {
	return slices.DeleteFunc(slices.Clone(c.leases), func(l coordinationv1.Lease) bool { return l.Name != name })
}

// serves reports whether a Serin acts on a release, by its flags.
func serves(c othercontroller.Controller, object client.Object) bool {
	f := parse(c.Args)
	api := "canary"
	if keyOf(object).Kind == explain.KindRollout {
		api = "rollout"
	}
	return c.WatchesNamespace(object.GetNamespace()) && slices.Contains(f.APIs, api) && (api == "canary" || f.Argo.InstanceID == instanceOf(object))
}

// otherControllerOf returns the other controller that acts on a release, so that Serin does not. It is detected in the same way as
// by Serin. Without a running Serin, there is none.
func (c *controllers) otherControllerOf(ctx context.Context, object client.Object, events []explain.Event, now time.Time) explain.OtherController {
	reported := otherControllerInEvents(events)
	if c.flags.AdoptWhileOtherControllerRuns || !c.isGiven && reported == "" && !c.hasSerin(object, now) {
		return explain.OtherController{}
	}
	scope := othercontroller.Scope{Namespaces: c.flags.OtherControllerNamespaces}
	others, resource, acting := c.flaggers, watching.CanaryStatus, func(of []othercontroller.Controller) []othercontroller.Candidate {
		return scope.FlaggerSigns(object.GetNamespace(), of, c.leasesNamed(othercontroller.FlaggerLeaseName), now)
	}
	if keyOf(object).Kind == explain.KindRollout {
		others, resource = c.argos, watching.RolloutStatus
		acting = func(of []othercontroller.Controller) []othercontroller.Candidate {
			return scope.ArgoRolloutsSigns(object.GetNamespace(), instanceOf(object), of, c.leases, now)
		}
	}
	sign, err := watching.FirstCounting(ctx, scope, acting(others), c.may, resource, object.GetNamespace())
	if err != nil || sign.Text == "" && len(c.unread) > 0 {
		sign.Text = reported // by Serin, which has the permissions
	}
	out := explain.OtherController{Sign: sign.Text, Until: sign.Until}
	for _, one := range others {
		mine := acting([]othercontroller.Controller{one})
		if out.Sign != "" && slices.ContainsFunc(mine, func(c othercontroller.Candidate) bool { return c.Sign == othercontroller.Sign{Text: out.Sign} }) {
			out.Stop = fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=0", one.Namespace, one.Name)
		}
	}
	return out
}

// otherControllerInEvents is the sign of another controller in the last event of a release; empty: there is none.
func otherControllerInEvents(events []explain.Event) string {
	if len(events) == 0 {
		return ""
	}
	_, text, _ := strings.Cut(events[len(events)-1].Message, " (")
	sign, _, is := strings.Cut(text, "), so Serin does not")
	if !is {
		return ""
	}
	return sign
}

// hasSerin reports whether a Serin that acts on the release has ready pods, or holds its lease.
func (c *controllers) hasSerin(object client.Object, now time.Time) bool {
	return slices.ContainsFunc(c.serins, func(s othercontroller.Controller) bool { return s.Ready > 0 && serves(s, object) }) ||
		slices.ContainsFunc(c.leasesNamed(operator.LeaseName(c.instance(object))), func(l coordinationv1.Lease) bool { return isHeld(&l, now) })
}

func isHeld(l *coordinationv1.Lease, now time.Time) bool {
	return now.Before(othercontroller.LeaseHeldUntil(l, now).Add(clockSkew))
}

// objectOf is the object of a release.
func objectOf(observed explain.Observation) client.Object {
	if rollout, is := observed.(*explain.Rollout); is {
		return rollout.Object
	}
	return observed.(*explain.Canary).Object //nolint:forcetypeassert // there are no more kinds
}

// summary is whether a controller acts on these releases; for both kinds, the worse of the two results.
func (c *controllers) summary(objects []client.Object, now time.Time) explain.Controller {
	var out explain.Controller
	for _, kind := range kinds {
		of := slices.DeleteFunc(slices.Clone(objects), func(o client.Object) bool { return keyOf(o).Kind != kind })
		if len(of) == 0 && (len(objects) > 0 || kind == explain.KindRollout) {
			continue
		}
		found := c.acting(kind, of, now)
		if out.State != "" && found.State != out.State {
			found.Message = "for " + plural(string(kind)) + ": " + found.Message
		}
		if out.State == "" || worse(found.State, out.State) {
			out = found
		}
	}
	return out
}

func worse(a, b explain.ControllerState) bool {
	order := []explain.ControllerState{explain.Running, explain.Active, explain.Unknown, explain.NotFound}
	return slices.Index(order, a) > slices.Index(order, b)
}

// acting is whether a controller acts on releases of a kind.
func (c *controllers) acting(kind explain.Kind, objects []client.Object, now time.Time) explain.Controller {
	by, wrote := writer(objects)
	last := "no controller has written a status"
	if !wrote.IsZero() {
		last = fmt.Sprintf("%s last wrote a status at %s", by, wrote.UTC().Format(time.RFC3339))
	}
	names := c.leaseNames(kind, objects)
	lease := slices.IndexFunc(c.leases, func(l coordinationv1.Lease) bool { return slices.Contains(names, l.Name) && isHeld(&l, now) })
	deployed := c.readyController(kind, objects)
	switch {
	case lease >= 0:
		l := c.leases[lease]
		return explain.Controller{State: explain.Running, Message: fmt.Sprintf("Lease %s.%s is held by %s", l.Name, l.Namespace, *l.Spec.HolderIdentity)}
	case deployed != nil:
		return explain.Controller{State: explain.Running, Message: fmt.Sprintf("Deployment %s.%s has %d ready pods", deployed.Name, deployed.Namespace, deployed.Ready)}
	case wroteRecently(wrote, now):
		return explain.Controller{State: explain.Active, Message: last}
	case len(c.unread) > 0:
		return explain.Controller{State: explain.Unknown, Message: "no permission to read " + strings.Join(c.unread, " and ") + inNamespace(c.flags.Namespace) + "; " + last}
	default:
		return explain.Controller{
			State: explain.NotFound, Message: "no Lease " + strings.Join(names, " or ") + " is held, no Deployment with such an image has ready pods, and " + last,
		}
	}
}

// leaseNames are the names of the leases of the controllers of a kind.
func (c *controllers) leaseNames(kind explain.Kind, objects []client.Object) []string {
	if kind == explain.KindCanary {
		return []string{operator.LeaseName(c.flags.Argo.InstanceID), othercontroller.FlaggerLeaseName}
	}
	var names []string
	for _, id := range instances(objects) {
		names = append(names, operator.LeaseName(id), othercontroller.ArgoLeaseName(id))
	}
	return names
}

// instance is the instance ID of the Serin that serves an object. Canaries have none.
func (c *controllers) instance(object client.Object) string {
	if keyOf(object).Kind == explain.KindRollout {
		return instanceOf(object)
	}
	return c.flags.Argo.InstanceID
}

// readyController is a controller of a kind with ready pods that acts on one of the releases; nil: there is none.
func (c *controllers) readyController(kind explain.Kind, objects []client.Object) *othercontroller.Controller {
	others := c.flaggers
	if kind == explain.KindRollout {
		others = c.argos
	}
	for _, one := range c.serins {
		if one.Ready > 0 && (len(objects) == 0 || slices.ContainsFunc(objects, func(o client.Object) bool { return serves(one, o) })) {
			return &one
		}
	}
	for _, one := range others {
		acts := func(o client.Object) bool {
			if kind == explain.KindRollout {
				return one.ServesInstance(o.GetNamespace(), instanceOf(o))
			}
			return one.WatchesNamespace(o.GetNamespace())
		}
		if one.Ready > 0 && (len(objects) == 0 || slices.ContainsFunc(objects, acts)) {
			return &one
		}
	}
	return nil
}

func wroteRecently(wrote, now time.Time) bool { return !wrote.IsZero() && now.Sub(wrote) < recentWrite }

// writers are the field managers of controllers.
var writers = []string{"serin", "flagger", "rollouts-controller"}

// writer is the controller that last wrote the status of one of the releases, and the time of that.
func writer(objects []client.Object) (by string, at time.Time) {
	for _, object := range objects {
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource != "status" || entry.Time == nil || !slices.Contains(writers, entry.Manager) {
				continue
			}
			if entry.Time.After(at) {
				by, at = entry.Manager, entry.Time.Time
			}
		}
	}
	return by, at
}
