package check

import (
	"fmt"
	"strings"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// Cluster contains what was found about the API server and its definitions.
type Cluster struct {
	// Version is the version of the API server; empty: unknown, for the reason in VersionError.
	Version, VersionError string
	// Groups are the two API groups of releases.
	Groups []Group
}

// Group is one API group of releases in the cluster.
type Group struct {
	// Name is the API group, Kind the kind of its releases.
	Name string
	Kind explain.Kind
	// Needed is true if the controller acts on these releases.
	Needed bool
	// Missing are the definitions of the group that are not installed.
	Missing []string
	// All is the number of definitions of the group.
	All int
	// Prunes is true if the installed definition drops the fields that Serin adds to the status.
	Prunes bool
	// Unread is the reason why the definitions could not be read; empty: they were.
	Unread string
}

// Section returns the checks of the cluster.
func (c Cluster) Section() Section {
	out := Section{Name: "cluster"}
	if c.Version == "" {
		out.Results = append(out.Results, skipped("api-server", "the version is unknown: "+c.VersionError, ""))
	} else {
		out.Results = append(out.Results, passed("api-server", "Kubernetes "+c.Version))
	}
	for _, group := range c.Groups {
		out.Results = append(out.Results, group.results()...)
	}
	return out
}

func (g Group) results() []Result {
	install := "serin crds --group " + g.Name + " | kubectl apply --server-side -f -"
	name := "definitions"
	switch {
	case g.Unread != "":
		return []Result{skipped(name, fmt.Sprintf("those of %s: %s", g.Name, g.Unread), "")}
	case len(g.Missing) == g.All && !g.Needed:
		return []Result{skipped(name, fmt.Sprintf("those of %s are not installed, and the controller does not act on them", g.Name), "")}
	case len(g.Missing) == g.All:
		return []Result{skipped(name, fmt.Sprintf("those of %s are not installed; they are required for a %s", g.Name, g.Kind), install)}
	case len(g.Missing) > 0:
		return []Result{failed(name, "not installed: "+strings.Join(g.Missing, ", "), install)}
	case g.Prunes:
		return []Result{warning(name, fmt.Sprintf("the definition of a %s drops the fields that Serin adds to the status, such as gates and history", g.Kind), install)}
	default:
		return []Result{passed(name, fmt.Sprintf("%s of %s", countOf(g.All, "definition"), g.Name))}
	}
}

// NoGroup returns a failed result if a cluster has the definitions of neither API group.
func (c Cluster) NoGroup() (Result, bool) {
	for _, group := range c.Groups {
		if group.Unread != "" || len(group.Missing) < group.All {
			return Result{}, false
		}
	}
	return failed("definitions", "the cluster has the definitions of no API group", "serin crds | kubectl apply --server-side -f -"), true
}

// Other is another controller of Canaries or Rollouts in the cluster.
type Other struct {
	// Kind of its releases, and the Deployment that runs it.
	Kind            explain.Kind
	Namespace, Name string
	// Ready is the number of its ready pods.
	Ready int32
}

// Controller contains what was found about the controllers.
type Controller struct {
	// Summary reports whether a Serin runs.
	Summary explain.Controller
	// Others are the other controllers.
	Others []Other
	// FlagsKnown is false if Provider and MetricsServer are only the defaults.
	FlagsKnown bool
	// Provider is the default traffic provider, MetricsServer the address of the default Prometheus; empty: the controller runs outside
	// of the cluster and does not announce it.
	Provider, MetricsServer string
}

// Section returns the checks of the controller. expected is true if one must run.
func (c Controller) Section(expected bool) Section {
	out := Section{Name: "controller"}
	switch {
	case c.Summary.State == explain.Running, c.Summary.State == explain.Active:
		out.Results = append(out.Results, passed("running", c.Summary.Message))
	case c.Summary.State == explain.Unknown:
		out.Results = append(out.Results, skipped("running", c.Summary.Message, ""))
	case expected:
		out.Results = append(out.Results, failed("running", c.Summary.Message, "install Serin, see docs/install.md, or scale its Deployment up"))
	default:
		out.Results = append(out.Results, skipped("running", "no controller runs yet", ""))
	}
	switch {
	case c.FlagsKnown && c.MetricsServer == "":
		out.Results = append(out.Results, passed("flags", fmt.Sprintf("-mesh-provider %s; -metrics-server is not known", c.Provider)))
	case c.FlagsKnown:
		out.Results = append(out.Results, passed("flags", fmt.Sprintf("-mesh-provider %s, -metrics-server %s", c.Provider, c.MetricsServer)))
	case expected:
		out.Results = append(out.Results, skipped("flags", "unknown, so the defaults are assumed", "use --controller-flags"))
	}
	var active []string
	for _, other := range c.Others {
		if other.Ready == 0 {
			continue
		}
		active = append(active, other.Name)
		out.Results = append(out.Results, warning("other-controllers",
			fmt.Sprintf("Deployment %s.%s acts on each %s in its namespaces; Serin does not act on them while it runs", other.Name, other.Namespace, other.Kind),
			fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=0, see serin migrate", other.Namespace, other.Name)))
	}
	if len(active) == 0 {
		out.Results = append(out.Results, passed("other-controllers", "neither Flagger nor Argo Rollouts has ready pods"))
	}
	return out
}

// Access is the access of one subject.
type Access struct {
	// Subject is whose access was reviewed, in the form "you" or "service account serin.serin-system".
	Subject string
	// Denied are the missing permissions, such as "patch canaries.flagger.app", of All reviewed ones.
	Denied []string
	All    int
	// Unread is the reason why the access is unknown; empty: it is known.
	Unread string
	// Required is true if nothing works without the access; otherwise some commands do not.
	Required bool
	// Fix describes how to grant it.
	Fix string
}

// AccessSection returns the checks of permissions.
func AccessSection(reviewed []Access) Section {
	out := Section{Name: "permissions"}
	for _, a := range reviewed {
		switch {
		case a.Unread != "":
			out.Results = append(out.Results, skipped("access", a.Subject+": "+a.Unread, ""))
		case len(a.Denied) == 0:
			out.Results = append(out.Results, passed("access", fmt.Sprintf("%s: %s granted", a.Subject, countOf(a.All, "permission"))))
		case a.Required:
			out.Results = append(out.Results, failed("access", a.Subject+": missing: "+strings.Join(a.Denied, ", "), a.Fix))
		default:
			out.Results = append(out.Results, warning("access", a.Subject+": missing: "+strings.Join(a.Denied, ", "), a.Fix))
		}
	}
	return out
}
