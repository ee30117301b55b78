package operator

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/workload"
)

// Flags are the settings of the administrator. Names, defaults and meanings of Flagger's flags are unchanged.
type Flags struct {
	Kubeconfig, Master            string
	QPS                           float32
	Burst                         int
	KubeconfigServiceMesh         string
	MetricsServer                 string
	ControlLoopInterval           time.Duration
	LogLevel, LogEncoding         string
	ReplaceGlobals                bool
	Port                          string
	SlackURL, SlackToken          string
	SlackProxyURL                 string
	SlackUser, SlackChannel       string
	MSTeamsURL, MSTeamsProxyURL   string
	EventWebhook                  string
	IncludeLabelPrefix            string
	Threadiness                   int
	Namespace                     string
	MeshProvider                  string
	SelectorLabels                string
	IngressAnnotationsPrefix      string
	IngressClass                  string
	EnableLeaderElection          bool
	LeaderElectionNamespace       string
	EnableConfigTracking          bool
	ClusterName                   string
	NoCrossNamespaceRefs, Version bool

	// MinAnalysisInterval is the minimum of spec.analysis.interval.
	MinAnalysisInterval time.Duration
	// DrainDelay is how long pods without traffic continue to run.
	DrainDelay time.Duration
	// MaxActiveReleases and MaxMovingPerNamespace limit the concurrent releases; 0: no limit.
	MaxActiveReleases, MaxActiveReleasesPerNamespace int
	// AdoptWhileOtherControllerRuns lets Serin act although a running Flagger or Argo Rollouts may act on the same objects.
	AdoptWhileOtherControllerRuns bool
	// OtherControllerNamespaces are the namespaces in which Serin looks for Flagger and Argo Rollouts; empty: all.
	OtherControllerNamespaces []string
	// AllowLoopbackHooks lets users' objects contain addresses on the controller's own host.
	AllowLoopbackHooks bool
	// ProxyResolvesNames lets the proxy of the environment decide which addresses users' host names may resolve to.
	ProxyResolvesNames bool
	// IstioPrimarySecretNamespace is the namespace of the Secret for another cluster with the Istio objects of
	// Rollouts; empty: the namespace of the process.
	IstioPrimarySecretNamespace string
	// APIs are the APIs to serve: canary, rollout.
	APIs []string
	// Argo are the flags of Argo Rollouts.
	Argo ArgoFlags
	// ProfilingAddress serves profiles; it must be a loopback address. Empty: profiles are not served.
	ProfilingAddress string
}

// Register declares the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "path to a kubeconfig; empty: the one of the pod")
	set.StringVar(&f.Master, "master", "", "URL of the API server, overrides the kubeconfig")
	set.Float32Var(&f.QPS, "kubeconfig-qps", -1, "requests a second to the API server; negative: as many as it takes, since it guards itself by priority and fairness")
	set.IntVar(&f.Burst, "kubeconfig-burst", 250, "requests to the API server at once, where -kubeconfig-qps limits them")
	set.StringVar(&f.KubeconfigServiceMesh, "kubeconfig-service-mesh", "", "path to the kubeconfig of the cluster that has the routes; empty: the same cluster")
	set.StringVar(&f.MetricsServer, "metrics-server", "http://prometheus:9090", "URL of the default Prometheus")
	set.DurationVar(&f.ControlLoopInterval, "control-loop-interval", 10*time.Second, "accepted for compatibility: Serin reacts to events and has no control loop")
	set.StringVar(&f.LogLevel, "log-level", "debug", "debug, info, warn, error")
	set.StringVar(&f.Port, "port", "8080", "port of health and metrics")
	set.StringVar(&f.SlackURL, "slack-url", "", "hook URL of Slack")
	set.StringVar(&f.SlackToken, "slack-token", "", "bearer token of Slack")
	set.StringVar(&f.SlackProxyURL, "slack-proxy-url", "", "proxy on the way to Slack")
	set.StringVar(&f.SlackUser, "slack-user", "flagger", "user name shown in Slack")
	set.StringVar(&f.SlackChannel, "slack-channel", "", "channel in Slack")
	set.StringVar(&f.MSTeamsURL, "msteams-url", "", "hook URL of Microsoft Teams")
	set.StringVar(&f.MSTeamsProxyURL, "msteams-proxy-url", "", "proxy on the way to Microsoft Teams")
	set.StringVar(&f.EventWebhook, "event-webhook", "", "URL that receives every event")
	set.StringVar(&f.IncludeLabelPrefix, "include-label-prefix", "", "comma separated prefixes of labels that go to primaries; * is all")
	set.IntVar(&f.Threadiness, "threadiness", 10, "passes over releases at once")
	set.BoolVar(&f.ReplaceGlobals, "zap-replace-globals", false, "accepted for compatibility")
	set.StringVar(&f.LogEncoding, "zap-encoding", "json", "json or console")
	set.StringVar(&f.Namespace, "namespace", "", "the only namespace that is watched; empty: all")
	set.StringVar(&f.MeshProvider, "mesh-provider", "istio", "provider of Canaries that name none")
	set.StringVar(&f.SelectorLabels, "selector-labels", "app,name,app.kubernetes.io/name", "comma separated labels that tell pods of a target, in order of preference")
	set.StringVar(&f.IngressAnnotationsPrefix, "ingress-annotations-prefix", "nginx.ingress.kubernetes.io", "prefix of the annotations that the provider nginx writes for its controller")
	set.StringVar(&f.IngressClass, "ingress-class", "", "class of the HTTPProxies that the provider contour writes; empty: none is written")
	set.BoolVar(&f.EnableLeaderElection, "enable-leader-election", false, "act only while holding the lease")
	set.StringVar(&f.LeaderElectionNamespace, "leader-election-namespace", "kube-system", "namespace of the lease; -namespace overrides it")
	set.BoolVar(&f.EnableConfigTracking, "enable-config-tracking", true, "treat ConfigMaps and Secrets as part of a revision")
	set.StringVar(&f.ClusterName, "cluster-name", "", "shown in alerts")
	set.BoolVar(&f.NoCrossNamespaceRefs, "no-cross-namespace-refs", false, "refuse references into other namespaces")
	set.BoolVar(&f.Version, "version", false, "print the version and exit")
	set.DurationVar(&f.MinAnalysisInterval, "min-analysis-interval", 10*time.Second, "floor of spec.analysis.interval")
	set.DurationVar(&f.DrainDelay, "drain-delay", 5*time.Second, "how long pods that lost their traffic keep running")
	set.IntVar(&f.MaxActiveReleases, "max-moving", 0, "releases, Canaries and Rollouts together, that may move at once; the others wait for their turn; 0: no limit")
	set.IntVar(&f.MaxActiveReleasesPerNamespace, "max-moving-per-namespace", 0, "releases of one namespace, Canaries and Rollouts together, that may move at once; 0: no limit")
	set.BoolVar(&f.AdoptWhileOtherControllerRuns, "adopt-while-peer-runs", false, "act although a Flagger or an Argo Rollouts runs that may act on the same objects: only where a person has split them between the two")
	set.StringSliceVar(&f.OtherControllerNamespaces, "other-controller-namespaces", nil, "only namespaces in which a Flagger or an Argo Rollouts is looked for, by its Deployment or its Lease; empty: all, and a Deployment counts if its service account may write the releases in question")
	set.BoolVar(&f.AllowLoopbackHooks, "allow-loopback-hooks", false, "let Canaries and MetricTemplates name addresses on this host, for tests")
	set.BoolVar(&f.ProxyResolvesNames, "proxy-resolves-names", false, "with a proxy in the environment: do not resolve names before it is asked for them, because it refuses internal addresses itself")
	set.StringVar(&f.IstioPrimarySecretNamespace, "istio-primary-secret-namespace", "", "namespace of the Secret that leads to another cluster with the Istio objects of Rollouts; empty: the controller's own")
	set.StringSliceVar(&f.APIs, "apis", []string{apiCanary, apiRollout}, "APIs to serve, of canary and rollout; one whose definitions are not installed is served as soon as they are")
	set.StringVar(&f.ProfilingAddress, "profiling-address", "", "loopback address that serves profiles; empty: none")
	f.registerArgo(set)
}

// FromEnvironment lets the documented variables override their flags, so that secrets need not be part of a command
// line.
func (f *Flags) FromEnvironment(lookup func(string) string) {
	for name, target := range map[string]*string{
		"SLACK_URL": &f.SlackURL, "SLACK_TOKEN": &f.SlackToken, "SLACK_PROXY_URL": &f.SlackProxyURL,
		"MSTEAMS_URL": &f.MSTeamsURL, "MSTEAMS_PROXY_URL": &f.MSTeamsProxyURL, "EVENT_WEBHOOK_URL": &f.EventWebhook,
	} {
		if value := lookup(name); value != "" {
			*target = value
		}
	}
	f.resolveDefaults(lookup)
}

// Validate returns an error that says what is wrong with the flags, and how to fix it.
func (f *Flags) Validate() error {
	switch {
	case f.DrainDelay < 0:
		return fmt.Errorf("-drain-delay is %s: a delay cannot be negative", f.DrainDelay)
	case f.MinAnalysisInterval < 0:
		return fmt.Errorf("-min-analysis-interval is %s: an interval cannot be negative", f.MinAnalysisInterval)
	case f.MaxActiveReleases < 0:
		return fmt.Errorf("-max-moving is %d: give the number of releases that may move at once, or 0 for no limit", f.MaxActiveReleases)
	case f.MaxActiveReleasesPerNamespace < 0:
		return fmt.Errorf("-max-moving-per-namespace is %d: give the number of releases of a namespace that may move at once, or 0 for no limit", f.MaxActiveReleasesPerNamespace)
	case f.Kubeconfig != "" && missingKinds(f.Kubeconfig):
		return fmt.Errorf("-kubeconfig names %s, which cannot be read: correct the path", f.Kubeconfig)
	}
	for _, name := range f.APIs {
		if name != apiCanary && name != apiRollout {
			return fmt.Errorf("-apis names %q: give %s, %s, or both", name, apiCanary, apiRollout)
		}
	}
	if len(f.APIs) == 0 {
		return fmt.Errorf("-apis is empty, so nothing would be served: give %s, %s, or both", apiCanary, apiRollout)
	}
	return f.validateArgo()
}

func missingKinds(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}

// NormalizeArguments rewrites long flags with one dash (-namespace, -version=false) to two dashes, as the flag library requires.
// All other arguments are unchanged.
func NormalizeArguments(set *pflag.FlagSet, args []string) []string {
	out := make([]string, 0, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if name, ok := strings.CutPrefix(arg, "-"); ok && !strings.HasPrefix(name, "-") {
			name, _, _ = strings.Cut(name, "=")
			if len(name) > 1 && set.Lookup(name) != nil {
				arg = "-" + arg
			}
		}
		out = append(out, arg)
	}
	return out
}

// userAddressPolicy returns the policy for addresses in users' objects.
func (f *Flags) userAddressPolicy() outbound.Policy {
	return outbound.Policy{AllowLoopback: f.AllowLoopbackHooks, ProxyResolves: f.ProxyResolvesNames}
}

// trustedAddressPolicy returns the policy for addresses on the command line or in the environment: the administrator may run a
// server next to Serin.
func trustedAddressPolicy() outbound.Policy {
	return outbound.Policy{AllowLoopback: true, ProxyResolves: true}
}

// ReleaseLimits returns the limits of concurrent releases.
func (f *Flags) ReleaseLimits() release.ConcurrencyLimits {
	return release.ConcurrencyLimits{Cluster: f.MaxActiveReleases, Namespace: f.MaxActiveReleasesPerNamespace}
}

// WorkloadOptions returns the options of package workload.
func (f *Flags) WorkloadOptions() workload.Options {
	return workload.Options{SelectorLabels: splitList(f.SelectorLabels), IncludePrefixes: splitList(f.IncludeLabelPrefix), ConfigTracking: f.EnableConfigTracking}
}

func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
