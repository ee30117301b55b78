package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/watching"
)

// clockSkew is the maximum difference between the clocks of the user and of the cluster.
const clockSkew = time.Minute

// maxWriteAge is the maximum age of a status write whose writer counts as running.
const maxWriteAge = 2 * time.Minute

// controllers contains the controllers of a cluster, as far as they could be found.
type controllers struct {
	// flags are the flags of the controller that acts on the selected releases, as far as they are known.
	flags flags
	// flagsSpecified is true if the user specified the flags of Serin, which implies that it runs.
	flagsSpecified bool
	// serins, flaggers and argos are the Deployments that run Serin, Flagger and Argo Rollouts.
	serins, flaggers, argos []othercontroller.Controller
	leases                  []coordinationv1.Lease
	// unread contains the kinds that could not be read.
	unread []string
	// isPermitted reviews the permissions of service accounts. If the user has no permission for the review, everything is
	// permitted.
	isPermitted watching.UpdatePermission
}

// findControllers finds the controllers of the releases. It returns no error, but records the kinds that could not be read.
func (s *Session) findControllers(ctx context.Context, objects []client.Object) controllers {
	out := s.newControllers()
	if err := s.findDeployments(ctx, &out); err != nil {
		out.unread = append(out.unread, "Deployments")
	}
	if err := s.readRunning(ctx, &out, objects); err != nil {
		out.unread = append(out.unread, "Leases")
	}
	return out
}

func (s *Session) newControllers() controllers {
	return controllers{
		flags: parseFlags(s.ControllerFlags), flagsSpecified: s.ControllerFlags != nil,
		isPermitted: (&watching.Permissions{Client: s.Client, Clock: s.Clock}).IsPermitted,
	}
}

// readRunning reads the Leases of controllers, and determines the flags of the one that acts on the releases.
func (s *Session) readRunning(ctx context.Context, out *controllers, objects []client.Object) error {
	if !out.flags.known {
		out.flags = out.flagsFor(objects)
	}
	err := s.readLeases(ctx, out, objects)
	if !out.flags.known {
		out.flags = out.announcedFlags(objects, s.Clock.Now())
	}
	return err
}

// readControllersAgain reads the Deployments of known controllers and all Leases. Reading all Deployments of a cluster again would be
// expensive.
func (s *Session) readControllersAgain(ctx context.Context, known controllers, objects []client.Object) (controllers, error) {
	out := s.newControllers()
	if slices.Contains(known.unread, "Deployments") {
		out.unread = append(out.unread, "Deployments")
	}
	for _, one := range slices.Concat(known.serins, known.flaggers, known.argos) {
		var d appsv1.Deployment
		switch err := s.Client.Get(ctx, client.ObjectKey{Namespace: one.Namespace, Name: one.Name}, &d); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return known, err
		default:
			out.addIfController(&d)
		}
	}
	err := s.readRunning(ctx, &out, objects)
	if isForbidden(err) {
		out.unread = append(out.unread, "Leases")
		err = nil
	}
	return out, err
}

// announcedFlags returns the flags that the Serin of one of the objects announces on its Lease; the defaults if there is none. A
// Deployment comes first, because a group of replicas does not announce changed flags while it holds the Lease.
func (c *controllers) announcedFlags(objects []client.Object, now time.Time) flags {
	for i := range c.leases {
		l := &c.leases[i]
		if args := operator.ArgumentsOf(l); args != nil && isHeld(l, now) && holderWatches(l, objects) {
			f := parseFlags(args)
			f.announced = true
			return f
		}
	}
	return parseFlags(nil)
}

// holderWatches reports whether the holder of a Lease may act on one of the objects, or whether there are none. Only a Serin
// announces which namespace it watches.
func holderWatches(l *coordinationv1.Lease, objects []client.Object) bool {
	namespace := parseFlags(operator.ArgumentsOf(l)).Namespace
	return len(objects) == 0 || namespace == "" || slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetNamespace() == namespace })
}

// flagsFor returns the flags of the controller that acts on one of the releases; the defaults if there is none.
func (c *controllers) flagsFor(objects []client.Object) flags {
	for _, all := range [][]othercontroller.Controller{c.serins, c.flaggers} {
		for _, one := range all {
			if one.Ready > 0 && watchesAnyOf(one, objects) {
				found := parseFlags(one.Args)
				found.Argo.OwnNamespace = one.Namespace
				return found
			}
		}
	}
	return parseFlags(nil)
}

// watchesAnyOf reports whether a controller watches the namespace of one of the objects, or whether there are none.
func watchesAnyOf(c othercontroller.Controller, objects []client.Object) bool {
	return len(objects) == 0 || slices.ContainsFunc(objects, func(object client.Object) bool { return c.WatchesNamespace(object.GetNamespace()) })
}

// pageSize is the number of Deployments in one response.
const pageSize = 500

// findDeployments finds the Deployments of controllers. It reads all Deployments, because their images and flags identify them.
func (s *Session) findDeployments(ctx context.Context, out *controllers) error {
	next := ""
	for {
		var list appsv1.DeploymentList
		if err := s.Client.List(ctx, &list, client.InNamespace(out.flags.Namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		for i := range list.Items {
			out.addIfController(&list.Items[i])
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// addIfController adds a Deployment if it runs a controller.
func (c *controllers) addIfController(d *appsv1.Deployment) {
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
	for _, id := range instanceIDs(objects) {
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

// instanceIDs returns the instance IDs of objects, and the empty one.
func instanceIDs(objects []client.Object) []string {
	ids := []string{""}
	for _, object := range objects {
		if id := instanceID(object); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// instanceID returns the instance ID of an object; empty: it has none.
func instanceID(object client.Object) string { return object.GetLabels()[argov1.InstanceIDLabel] }

// leasesByName returns the leases with a name, from all namespaces.
func (c *controllers) leasesByName(name string) []coordinationv1.Lease {
	return slices.DeleteFunc(slices.Clone(c.leases), func(l coordinationv1.Lease) bool { return l.Name != name })
}

// serinServes reports whether a Serin acts on a release according to its flags.
func serinServes(c othercontroller.Controller, object client.Object) bool {
	f := parseFlags(c.Args)
	api := "canary"
	if keyOf(object).Kind == explain.KindRollout {
		api = "rollout"
	}
	return c.WatchesNamespace(object.GetNamespace()) && slices.Contains(f.APIs, api) && (api == "canary" || f.Argo.InstanceID == instanceID(object))
}

// otherControllerFor returns the other controller that acts on a release instead of Serin. It detects that controller as Serin
// does. If no Serin runs, it returns none.
func (c *controllers) otherControllerFor(ctx context.Context, object client.Object, events []explain.Event, now time.Time) explain.OtherController {
	reported := otherControllerInEvents(events)
	if c.flags.AdoptWhileOtherControllerRuns || !c.flagsSpecified && reported == "" && !c.hasSerin(object, now) {
		return explain.OtherController{}
	}
	scope := othercontroller.Scope{Namespaces: c.flags.OtherControllerNamespaces}
	others, resource, findSigns := c.flaggers, watching.CanaryStatus, func(of []othercontroller.Controller) []othercontroller.Candidate {
		return scope.FlaggerSigns(object.GetNamespace(), of, c.leasesByName(othercontroller.FlaggerLeaseName), now)
	}
	if keyOf(object).Kind == explain.KindRollout {
		others, resource = c.argos, watching.RolloutStatus
		findSigns = func(of []othercontroller.Controller) []othercontroller.Candidate {
			return scope.ArgoRolloutsSigns(object.GetNamespace(), instanceID(object), of, c.leases, now)
		}
	}
	sign, err := watching.FirstCounting(ctx, scope, findSigns(others), c.isPermitted, resource, object.GetNamespace())
	if err != nil || sign.Text == "" && len(c.unread) > 0 {
		sign.Text = reported // by Serin, which has the permissions
	}
	out := explain.OtherController{Sign: sign.Text, Until: sign.Until}
	for _, one := range others {
		own := findSigns([]othercontroller.Controller{one})
		if out.Sign != "" && slices.ContainsFunc(own, func(c othercontroller.Candidate) bool { return c.Sign == othercontroller.Sign{Text: out.Sign} }) {
			out.StopCommand = fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=0", one.Namespace, one.Name)
		}
	}
	return out
}

// otherControllerInEvents returns the sign of another controller that the last event of a release contains, except for commands of
// users; empty: it contains none.
func otherControllerInEvents(events []explain.Event) string {
	last := len(events) - 1
	for last >= 0 && events[last].ByUser {
		last--
	}
	if last < 0 {
		return ""
	}
	_, text, _ := strings.Cut(events[last].Message, " (")
	sign, _, ok := strings.Cut(text, "), so Serin does not")
	if !ok {
		return ""
	}
	return sign
}

// hasSerin reports whether a Serin that acts on the release has ready pods, or holds its lease.
func (c *controllers) hasSerin(object client.Object, now time.Time) bool {
	return slices.ContainsFunc(c.serins, func(s othercontroller.Controller) bool { return s.Ready > 0 && serinServes(s, object) }) ||
		slices.ContainsFunc(c.leasesByName(operator.LeaseName(c.serinInstanceID(object))), func(l coordinationv1.Lease) bool {
			return isHeld(&l, now) && holderWatches(&l, []client.Object{object})
		})
}

func isHeld(l *coordinationv1.Lease, now time.Time) bool {
	return now.Before(othercontroller.LeaseHeldUntil(l, now).Add(clockSkew))
}

// objectOf returns the object that defines a release.
func objectOf(observed explain.Observation) client.Object {
	if rollout, ok := observed.(*explain.Rollout); ok {
		return rollout.Object
	}
	return observed.(*explain.Canary).Object //nolint:forcetypeassert // there are no other kinds
}

// summary reports whether a controller acts on the releases. For releases of both kinds, it returns the worse of the two results.
func (c *controllers) summary(objects []client.Object, now time.Time) explain.Controller {
	var out explain.Controller
	for _, kind := range kinds {
		ofKind := slices.DeleteFunc(slices.Clone(objects), func(o client.Object) bool { return keyOf(o).Kind != kind })
		if len(ofKind) == 0 && (len(objects) > 0 || kind == explain.KindRollout) {
			continue
		}
		found := c.summaryFor(kind, ofKind, now)
		if out.State != "" && found.State != out.State {
			found.Message = "for " + plural(string(kind)) + ": " + found.Message
		}
		if out.State == "" || isWorse(found.State, out.State) {
			out = found
		}
	}
	return out
}

func isWorse(a, b explain.ControllerState) bool {
	fromBest := []explain.ControllerState{explain.Running, explain.Active, explain.Unknown, explain.NotFound}
	return slices.Index(fromBest, a) > slices.Index(fromBest, b)
}

// summaryFor reports whether a controller acts on releases of a kind.
func (c *controllers) summaryFor(kind explain.Kind, objects []client.Object, now time.Time) explain.Controller {
	manager, writtenAt := lastStatusWriter(objects)
	lastWrite := "no controller has written a status"
	if !writtenAt.IsZero() {
		lastWrite = fmt.Sprintf("%s last wrote a status at %s", manager, writtenAt.UTC().Format(time.RFC3339))
	}
	names := c.leaseNames(kind, objects)
	lease := slices.IndexFunc(c.leases, func(l coordinationv1.Lease) bool {
		return slices.Contains(names, l.Name) && isHeld(&l, now) && holderWatches(&l, objects)
	})
	deployed := c.readyController(kind, objects)
	switch {
	case lease >= 0:
		l := c.leases[lease]
		return explain.Controller{State: explain.Running, Message: fmt.Sprintf("Lease %s.%s is held by %s", l.Name, l.Namespace, *l.Spec.HolderIdentity)}
	case deployed != nil:
		return explain.Controller{State: explain.Running, Message: fmt.Sprintf("Deployment %s.%s has ready pods (%d)", deployed.Name, deployed.Namespace, deployed.Ready)}
	case isRecentWrite(writtenAt, now) && !c.hasEndedSince(manager, names, writtenAt):
		return explain.Controller{State: explain.Active, Message: lastWrite}
	case len(c.unread) > 0:
		return explain.Controller{State: explain.Unknown, Message: "no permission to read " + strings.Join(c.unread, " and ") + inNamespace(c.flags.Namespace) + "; " + lastWrite}
	default:
		return explain.Controller{
			State: explain.NotFound, Message: "no Lease " + strings.Join(names, " or ") + " is held, no Deployment with such an image has ready pods, and " + lastWrite,
		}
	}
}

// hasEndedSince reports whether the controller that wrote a status held its lease afterwards, and holds it no longer. One that
// writes without a lease, next to an old lease, has not ended.
func (c *controllers) hasEndedSince(manager string, leaseNames []string, writtenAt time.Time) bool {
	return slices.ContainsFunc(c.leases, func(l coordinationv1.Lease) bool {
		return slices.Contains(leaseNames, l.Name) && managerOf(l.Name) == manager && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(writtenAt)
	})
}

// serinManager is the field manager of Serin.
const serinManager = "serin"

// managerOf returns the field manager of the controllers that hold a lease.
func managerOf(leaseName string) string {
	switch {
	case leaseName == othercontroller.FlaggerLeaseName:
		return "flagger"
	case strings.HasPrefix(leaseName, othercontroller.ArgoLeaseName("")):
		return "rollouts-controller"
	default:
		return serinManager
	}
}

// leaseNames returns the names of the leases of the controllers that act on a kind.
func (c *controllers) leaseNames(kind explain.Kind, objects []client.Object) []string {
	if kind == explain.KindCanary {
		return []string{operator.LeaseName(c.flags.Argo.InstanceID), othercontroller.FlaggerLeaseName}
	}
	var names []string
	for _, id := range instanceIDs(objects) {
		names = append(names, operator.LeaseName(id), othercontroller.ArgoLeaseName(id))
	}
	return names
}

// serinInstanceID returns the instance ID of the Serin that acts on an object. Canaries have no instance ID, so every Serin acts
// on them.
func (c *controllers) serinInstanceID(object client.Object) string {
	if keyOf(object).Kind == explain.KindRollout {
		return instanceID(object)
	}
	return c.flags.Argo.InstanceID
}

// readyController returns a controller with ready pods that acts on one of the releases of a kind; nil: there is none.
func (c *controllers) readyController(kind explain.Kind, objects []client.Object) *othercontroller.Controller {
	others := c.flaggers
	if kind == explain.KindRollout {
		others = c.argos
	}
	for _, one := range c.serins {
		if one.Ready > 0 && (len(objects) == 0 || slices.ContainsFunc(objects, func(o client.Object) bool { return serinServes(one, o) })) {
			return &one
		}
	}
	for _, one := range others {
		acts := func(o client.Object) bool {
			if kind == explain.KindRollout {
				return one.ServesInstance(o.GetNamespace(), instanceID(o))
			}
			return one.WatchesNamespace(o.GetNamespace())
		}
		if one.Ready > 0 && (len(objects) == 0 || slices.ContainsFunc(objects, acts)) {
			return &one
		}
	}
	return nil
}

func isRecentWrite(writtenAt, now time.Time) bool {
	return !writtenAt.IsZero() && now.Sub(writtenAt) < maxWriteAge
}

// controllerManagers are the names that controllers have as field managers.
var controllerManagers = []string{serinManager, "flagger", "rollouts-controller"}

// lastStatusWriter returns the controller that last wrote the status of one of the releases, and the time of that write.
func lastStatusWriter(objects []client.Object) (manager string, at time.Time) {
	for _, object := range objects {
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource != "status" || entry.Time == nil || !slices.Contains(controllerManagers, entry.Manager) {
				continue
			}
			if entry.Time.After(at) {
				manager, at = entry.Manager, entry.Time.Time
			}
		}
	}
	return manager, at
}
