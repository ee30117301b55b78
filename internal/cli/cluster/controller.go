package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/peer"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// flags are how the controller was started.
type flags struct {
	operator.Flags
	// known is false where they are the defaults because nobody told.
	known bool
}

// parse reads the arguments of a controller. What it does not know is left out: a newer controller may have more.
func parse(args []string) flags {
	var f flags
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	set.Usage = func() {}
	f.Register(set)
	f.known = set.Parse(operator.Normalise(set, args)) == nil && args != nil
	return f
}

// of are the settings for one Canary. Where nobody told the flags, the status shows some of them.
func (f flags) of(object *flaggerv1.Canary) (canary.Settings, workload.Options) {
	provider, _ := traffic.Normalize(f.MeshProvider)
	settings := canary.Settings{
		Provider: provider, MinInterval: f.MinAnalysisInterval, Drain: f.DrainDelay, NoCrossNamespace: f.NoCrossNamespaceRefs,
	}
	options := f.Workload()
	if f.known {
		return settings, options
	}
	status := object.Status
	if status.TrackedConfigs == nil && status.LastAppliedSpec != "" {
		options.ConfigTracking = false // with tracking there is at least an empty list
	}
	if own := status.Serin; own != nil {
		if shape := strings.Split(own.Shape, "/"); len(shape) == 4 {
			settings.Provider = shape[1]
		}
		if observedBelow(object, settings.MinInterval) {
			settings.MinInterval = 0
		}
	}
	return settings, options
}

// limits are how many releases may move at once. Where nobody told the flags, a wait in the status tells what it waits for.
func (f flags) limits(object *flaggerv1.Canary) release.Limits {
	if f.known || object.Status.Serin == nil {
		return f.Limits()
	}
	i := slices.IndexFunc(object.Status.Serin.Gates, func(g flaggerv1.GateStatus) bool { return g.Name == "turn" })
	if i < 0 {
		return f.Limits()
	}
	gate := object.Status.Serin.Gates[i]
	limit, err := strconv.Atoi(gate.Limit)
	switch {
	case err != nil:
		return f.Limits()
	case strings.HasSuffix(gate.Message, "in this namespace"):
		return release.Limits{Namespace: limit}
	default:
		return release.Limits{Cluster: limit}
	}
}

// observedBelow is true when a window was observed for the interval that the Canary asks for, although the floor would
// have made it longer.
func observedBelow(object *flaggerv1.Canary, floor time.Duration) bool {
	plan := canary.NewPlan(object, canary.Settings{Features: func(string) canary.Features { return canary.Features{} }})
	if plan.Window >= floor {
		return false
	}
	return slices.ContainsFunc(object.Status.Serin.Gates, func(g flaggerv1.GateStatus) bool {
		switch {
		case g.Name != "window":
			return false
		case g.Until != nil && object.Status.Serin.Window != nil:
			return g.Until.Sub(object.Status.Serin.Window.Start.Time).Round(time.Second) == plan.Window.Round(time.Second)
		default:
			return g.Message == fmt.Sprintf("observed for %s", plan.Window)
		}
	})
}

// The signs of a controller.
var leases = [...]string{"serin", peer.Lease}

// slack is by how much the clocks of a person and of a cluster may differ.
const slack = time.Minute

// recent is how long ago a status may have been written for its writer to be taken for alive.
const recent = 2 * time.Minute

// findController looks for signs of a controller that acts on these Canaries, and for its flags. It never fails: what
// cannot be read is said.
func (s *Session) findController(ctx context.Context, canaries []flaggerv1.Canary) (explain.Controller, flags) {
	now := s.Clock.Now()
	f := parse(s.ControllerFlags)
	var unread []string
	deployed, args, err := s.deployed(ctx, canaries)
	if err != nil {
		unread = append(unread, "Deployments")
	}
	if args != nil && !f.known {
		f = parse(args)
	}
	lease, err := s.leased(ctx, now)
	if err != nil {
		unread = append(unread, "Leases")
	}
	by, wrote := writer(canaries)
	last := "no status has been written by one"
	if !wrote.IsZero() {
		last = fmt.Sprintf("%s wrote a status last at %s", by, wrote.UTC().Format(time.RFC3339))
	}
	switch {
	case lease != "":
		return explain.Controller{State: explain.Running, Message: lease}, f
	case deployed != "":
		return explain.Controller{State: explain.Running, Message: deployed}, f
	case wroteRecently(wrote, now):
		return explain.Controller{State: explain.Active, Message: last}, f
	case len(unread) > 0:
		return explain.Controller{
			State: explain.Unknown, Message: strings.Join(unread, " and ") + " of all namespaces may not be read; " + last,
		}, f
	default:
		return explain.Controller{
			State: explain.NotFound, Message: "no Lease " + strings.Join(leases[:], " or ") + " is held, no Deployment of such an image has ready pods, and " + last,
		}, f
	}
}

func wroteRecently(wrote, now time.Time) bool { return !wrote.IsZero() && now.Sub(wrote) < recent }

// writer is who wrote the status of one of the Canaries last, and when.
func writer(canaries []flaggerv1.Canary) (by string, at time.Time) {
	for i := range canaries {
		for _, entry := range canaries[i].ManagedFields {
			if entry.Subresource != "status" || entry.Time == nil || !ours(entry.Manager) {
				continue
			}
			if entry.Time.After(at) {
				by, at = entry.Manager, entry.Time.Time
			}
		}
	}
	return by, at
}

func ours(name string) bool { return name == "serin" || name == "flagger" }

// leased is a lease that is held, in a sentence.
func (s *Session) leased(ctx context.Context, now time.Time) (string, error) {
	for _, name := range leases {
		var list coordinationv1.LeaseList
		if err := s.Client.List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
			return "", err
		}
		for i := range list.Items {
			l := &list.Items[i]
			if now.Before(peer.HeldUntil(l).Add(slack)) {
				return fmt.Sprintf("Lease %s.%s is held by %s", l.Name, l.Namespace, *l.Spec.HolderIdentity), nil
			}
		}
	}
	return "", nil
}

// page is how many Deployments are read at once.
const page = 500

// deployed is a Deployment of a controller with ready pods, in a sentence, and its arguments. Those with the label of
// the charts are looked at first: in a large cluster all others are many.
func (s *Session) deployed(ctx context.Context, canaries []flaggerv1.Canary) (string, []string, error) {
	for _, options := range [][]client.ListOption{
		{client.MatchingLabels{"app.kubernetes.io/name": "serin"}},
		{client.MatchingLabels{"app.kubernetes.io/name": "flagger"}},
		{client.Limit(page)},
	} {
		next := ""
		for {
			var list appsv1.DeploymentList
			if err := s.Client.List(ctx, &list, append(options, client.Continue(next))...); err != nil {
				return "", nil, err
			}
			for i := range list.Items {
				d := &list.Items[i]
				if c, ok := runs(d); ok && c.Ready > 0 && concerns(c, canaries) {
					return fmt.Sprintf("Deployment %s.%s has %d ready pods", d.Name, d.Namespace, c.Ready), c.Args, nil
				}
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	return "", nil, nil
}

// runs is the controller that a Deployment runs.
func runs(d *appsv1.Deployment) (peer.Controller, bool) {
	if c, ok := peer.Serin(d); ok {
		return c, true
	}
	return peer.Flagger(d)
}

// concerns is false for a controller that watches another namespace only.
func concerns(c peer.Controller, canaries []flaggerv1.Canary) bool {
	return len(canaries) == 0 || slices.ContainsFunc(canaries, func(of flaggerv1.Canary) bool { return c.Watches(of.Namespace) })
}
