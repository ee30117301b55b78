package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/outbound"
)

// Installation is one Serin in the cluster, as its Deployment shows it, or else its Lease.
type Installation struct {
	// Source is the object that shows it, such as: Deployment serin.serin-system.
	Source string
	// Image of the container; empty: a Lease does not name it.
	Image string
	// Ready is the number of ready pods.
	Ready int32
	// Flags are the flags that differ from their defaults, as arguments.
	Flags []string
	// Limit is the maximum number of releases in progress, and NamespaceLimit that of each namespace; 0: no limit.
	Limit, NamespaceLimit int
}

// Installations returns the installations of Serin that the user has permission to see, and the kinds of objects that could not be
// read.
func (s *Session) Installations(ctx context.Context) (found []Installation, unread []string) {
	all := s.findControllers(ctx, nil)
	for _, one := range all.serins {
		found = append(found, newInstallation(fmt.Sprintf("Deployment %s.%s", one.Name, one.Namespace), one.Args, s.ControllerFlags))
		found[len(found)-1].Image, found[len(found)-1].Ready = one.Image, one.Ready
	}
	if len(found) > 0 {
		return found, all.unread
	}
	now := s.Clock.Now()
	for i := range all.leases {
		lease := &all.leases[i]
		if args := operator.ArgumentsOf(lease); managerOf(lease.Name) == serinManager && isHeld(lease, now) {
			found = append(found, newInstallation(fmt.Sprintf("Lease %s.%s", lease.Name, lease.Namespace), args, s.ControllerFlags))
		}
	}
	slices.SortFunc(found, func(a, b Installation) int { return cmp.Compare(a.Source, b.Source) })
	return found, all.unread
}

// newInstallation returns an installation with the flags in its arguments. The flags that the user specified have precedence.
func newInstallation(source string, args, specified []string) Installation {
	if specified != nil {
		args = specified
	}
	var f flags
	set := newFlagSet(&f)
	_ = set.Parse(operator.NormalizeArguments(set, args)) // what was parsed until an error is shown
	limits := f.ReleaseLimits()
	return Installation{Source: source, Flags: publicFlags(set), Limit: limits.Cluster, NamespaceLimit: limits.Namespace}
}

// publicFlags returns the flags that differ from their defaults. Texts may contain secrets, except for those that a controller
// announces.
func publicFlags(set *pflag.FlagSet) []string {
	announced := operator.AnnouncedArguments(set)
	var out []string
	set.VisitAll(func(flag *pflag.Flag) {
		value := flag.Value.String()
		if value == flag.DefValue {
			return
		}
		text := "--" + flag.Name + "="
		i := slices.IndexFunc(announced, func(argument string) bool { return strings.HasPrefix(argument, text) })
		switch {
		case i >= 0:
			text = announced[i]
		case flag.Name == "metrics-server":
			text += outbound.Redact(value)
		case slices.Contains([]string{"bool", "int", "duration"}, flag.Value.Type()):
			text += value
		default:
			text += "(set)"
		}
		out = append(out, text)
	})
	return out
}
