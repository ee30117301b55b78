package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
	rolloutcontroller "github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// flags contains the flags of a controller.
type flags struct {
	operator.Flags
	// known is false if the flags are only the defaults.
	known bool
	// announced is true if they are those of a Lease, which do not include addresses: -metrics-server is unknown.
	announced bool
}

// CheckFlags returns the first error in arguments of a controller that a user specified.
func CheckFlags(args []string) error {
	var f flags
	set := newFlagSet(&f)
	set.ParseErrorsAllowlist.UnknownFlags = false
	if err := set.Parse(operator.NormalizeArguments(set, args)); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	f.Kubeconfig = "" // a path in the file system of the controller
	return f.Validate()
}

// parseFlags parses the arguments of a controller. It ignores unknown flags, because a newer controller may have more.
func parseFlags(args []string) flags {
	var f flags
	set := newFlagSet(&f)
	f.known = set.Parse(operator.NormalizeArguments(set, args)) == nil && args != nil
	return f
}

// newFlagSet returns the flags of a controller, which set the fields of f.
func newFlagSet(f *flags) *pflag.FlagSet {
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	set.Usage = func() {}
	f.Register(set)
	return set
}

// SettingsFor returns the settings for Canaries and the routers of a controller with these arguments. It reads no cluster.
func SettingsFor(args []string) (canary.Settings, traffic.Registry) {
	f := parseFlags(args)
	settings, _ := f.settingsFor(&flaggerv1.Canary{})
	return settings, f.Routers()
}

// settingsFor returns the settings for one Canary. If the flags are unknown, it derives some of them from the status.
func (f flags) settingsFor(object *flaggerv1.Canary) (canary.Settings, workload.Options) {
	provider, _ := traffic.Normalize(f.MeshProvider)
	settings := canary.Settings{
		Provider: provider, MinInterval: f.MinAnalysisInterval, Drain: f.DrainDelay, NoCrossNamespace: f.NoCrossNamespaceRefs,
	}
	options := f.WorkloadOptions()
	if f.known {
		return settings, options
	}
	status := object.Status
	if status.TrackedConfigs == nil && status.LastAppliedSpec != "" {
		options.ConfigTracking = false // with tracking there is at least an empty list
	}
	if own := status.Serin; own != nil {
		if shape, ok := canary.ParseRunShape(own.Shape); ok {
			settings.Provider = shape.Provider
		}
		if hasWindowBelow(object, settings.MinInterval) {
			settings.MinInterval = 0
		}
	}
	return settings, options
}

// concurrencyLimits returns the limits of concurrent releases. If the flags are unknown, it derives them from the message of the
// gate turn in the status of a release.
func (f flags) concurrencyLimits(turnMessage string) release.ConcurrencyLimits {
	_, rest, found := strings.Cut(turnMessage, " of at most ")
	if f.known || !found {
		return f.ReleaseLimits()
	}
	number, _, _ := strings.Cut(rest, " ")
	limit, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return f.ReleaseLimits()
	case strings.HasSuffix(turnMessage, "in this namespace"):
		return release.ConcurrencyLimits{Namespace: limit}
	default:
		return release.ConcurrencyLimits{Cluster: limit}
	}
}

// canaryTurnMessage returns the message of the gate turn in the status of a Canary; empty: there is none.
func canaryTurnMessage(object *flaggerv1.Canary) string {
	if object.Status.Serin == nil {
		return ""
	}
	for _, g := range object.Status.Serin.Gates {
		if g.Name == "turn" {
			return g.Message
		}
	}
	return ""
}

// rolloutTurnMessage returns the message of the gate turn in the status of a Rollout; empty: there is none.
func rolloutTurnMessage(object *argov1.Rollout) string {
	if object.Status.Serin == nil {
		return ""
	}
	for _, g := range object.Status.Serin.Gates {
		if g.Name == "turn" {
			return g.Message
		}
	}
	return ""
}

// newQueue creates the queue of the releases that a controller serves.
func newQueue(limits release.ConcurrencyLimits, f flags, r *cachedReader) *queue.Queue {
	q := queue.New(limits, f.Namespace)
	if slices.Contains(f.APIs, "canary") {
		q.Register(controller.QueueKind(r, true))
	}
	if slices.Contains(f.APIs, "rollout") {
		q.Register(rolloutcontroller.QueueKind(r, true))
	}
	return q
}

// hasWindowBelow reports whether the status has a window with the interval of the Canary although the minimum interval is longer.
// Then the controller has a lower minimum.
func hasWindowBelow(object *flaggerv1.Canary, minInterval time.Duration) bool {
	plan := canary.NewPlan(object, canary.Settings{Features: func(string) canary.Features { return canary.Features{} }})
	if plan.Interval >= minInterval {
		return false
	}
	return slices.ContainsFunc(object.Status.Serin.Gates, func(g flaggerv1.GateStatus) bool {
		switch {
		case g.Name != "window":
			return false
		case g.Until != nil && object.Status.Serin.Window != nil:
			return g.Until.Sub(object.Status.Serin.Window.Start.Time).Round(time.Second) == plan.Interval.Round(time.Second)
		default:
			return g.Message == fmt.Sprintf("observed for %s", plan.Interval)
		}
	})
}
