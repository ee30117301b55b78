package operator

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
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

	// Connection overrides parts of the kubeconfig.
	Connection ConnectionFlags
	// MinAnalysisInterval is the minimum of spec.analysis.interval.
	MinAnalysisInterval time.Duration
	// DrainDelay is the time for which pods without traffic continue to run.
	DrainDelay time.Duration
	// MaxActiveReleases and MaxActiveReleasesPerNamespace limit the concurrent releases; 0 means no limit.
	MaxActiveReleases, MaxActiveReleasesPerNamespace int
	// Shards is the number of shards into which the replicas divide the releases; 0 means that one replica leads.
	Shards int
	// AdoptWhileOtherControllerRuns lets Serin act although a running Flagger or Argo Rollouts may act on the same objects.
	AdoptWhileOtherControllerRuns bool
	// OtherControllerNamespaces are the namespaces in which Serin detects Flagger and Argo Rollouts; empty means all.
	OtherControllerNamespaces []string
	// AllowLoopbackHooks lets users' objects contain addresses on the controller's own host.
	AllowLoopbackHooks bool
	// ProxyResolvesNames lets the proxy of the environment decide which addresses users' host names may resolve to.
	ProxyResolvesNames bool
	// IstioPrimarySecretNamespace is the namespace of the Secret for another cluster with the Istio objects of
	// Rollouts; empty means the namespace of the process.
	IstioPrimarySecretNamespace string
	// AllowPlugins runs the plugins of Argo Rollouts that the administrator has configured. PluginDir contains their files and
	// sockets, PluginTimeout bounds each call, PluginMemory the memory of each process, and PluginUID is their user and group; 0
	// means those of Serin.
	AllowPlugins  bool
	PluginDir     string
	PluginTimeout time.Duration
	PluginMemory  resource.QuantityValue
	PluginUID     int
	// APIs are the APIs to serve: canary, rollout.
	APIs []string
	// Argo are the flags of Argo Rollouts.
	Argo ArgoFlags
	// ProfilingAddress is the address that serves profiles, a loopback address; empty means none.
	ProfilingAddress string
	// Announced are the arguments that the process announces on its Lease; see AnnouncedArguments.
	Announced []string
}

// Register declares the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "path to a kubeconfig; empty: the in-cluster configuration")
	set.StringVar(&f.Master, "master", "", "URL of the API server, overrides the kubeconfig")
	set.Float32Var(&f.QPS, "kubeconfig-qps", -1, "maximum requests per second to the API server; negative: no limit, because the API server protects itself by priority and fairness")
	set.IntVar(&f.Burst, "kubeconfig-burst", 250, "maximum burst of requests to the API server, if -kubeconfig-qps limits them")
	set.StringVar(&f.KubeconfigServiceMesh, "kubeconfig-service-mesh", "", "path to the kubeconfig of the cluster with the routes; empty: the same cluster")
	set.StringVar(&f.MetricsServer, "metrics-server", "http://prometheus:9090", "URL of the default Prometheus")
	set.DurationVar(&f.ControlLoopInterval, "control-loop-interval", 10*time.Second, "accepted for compatibility: Serin reacts to events and has no control loop")
	set.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn, error")
	set.StringVar(&f.Port, "port", "8080", "port for health and metrics")
	set.StringVar(&f.SlackURL, "slack-url", "", "webhook URL of Slack")
	set.StringVar(&f.SlackToken, "slack-token", "", "bearer token of Slack")
	set.StringVar(&f.SlackProxyURL, "slack-proxy-url", "", "proxy for requests to Slack")
	set.StringVar(&f.SlackUser, "slack-user", "flagger", "user name shown in Slack")
	set.StringVar(&f.SlackChannel, "slack-channel", "", "channel in Slack")
	set.StringVar(&f.MSTeamsURL, "msteams-url", "", "webhook URL of Microsoft Teams")
	set.StringVar(&f.MSTeamsProxyURL, "msteams-proxy-url", "", "proxy for requests to Microsoft Teams")
	set.StringVar(&f.EventWebhook, "event-webhook", "", "URL that receives every event")
	set.StringVar(&f.IncludeLabelPrefix, "include-label-prefix", "", "comma-separated prefixes of the labels that are copied to primaries; * means all")
	set.IntVar(&f.Threadiness, "threadiness", 10, "number of concurrent reconciliations of Canaries")
	set.BoolVar(&f.ReplaceGlobals, "zap-replace-globals", false, "accepted for compatibility: there is one logger")
	set.StringVar(&f.LogEncoding, "zap-encoding", "json", "json or console")
	set.StringVar(&f.Namespace, "namespace", "", "the only namespace to watch; empty: all")
	set.StringVar(&f.MeshProvider, "mesh-provider", "istio", "provider of Canaries without spec.provider")
	set.StringVar(&f.SelectorLabels, "selector-labels", "app,name,app.kubernetes.io/name", "comma-separated labels that select the pods of a target, in order of preference")
	set.StringVar(&f.IngressAnnotationsPrefix, "ingress-annotations-prefix", "nginx.ingress.kubernetes.io", "prefix of the annotations that the provider nginx writes")
	set.StringVar(&f.IngressClass, "ingress-class", "", "class of the HTTPProxies that the provider contour writes; empty: no class")
	set.BoolVar(&f.EnableLeaderElection, "enable-leader-election", false, "act only while holding the lease")
	set.StringVar(&f.LeaderElectionNamespace, "leader-election-namespace", defaultLeaseNamespace, "namespace of the lease; -namespace overrides it")
	set.BoolVar(&f.EnableConfigTracking, "enable-config-tracking", true, "treat ConfigMaps and Secrets as part of a revision")
	set.StringVar(&f.ClusterName, "cluster-name", "", "shown in alerts")
	set.BoolVar(&f.NoCrossNamespaceRefs, "no-cross-namespace-refs", false, "refuse references into other namespaces")
	set.BoolVar(&f.Version, "version", false, "print the version and exit")
	set.DurationVar(&f.MinAnalysisInterval, "min-analysis-interval", 10*time.Second, "minimum of spec.analysis.interval")
	set.DurationVar(&f.DrainDelay, "drain-delay", 5*time.Second, "time for which pods continue to run after their traffic was removed")
	set.IntVar(&f.MaxActiveReleases, "max-moving", 0, "maximum number of releases in progress, Canaries and Rollouts together; further releases wait in a queue; 0: no limit")
	set.IntVar(&f.MaxActiveReleasesPerNamespace, "max-moving-per-namespace", 0, "maximum number of releases in progress per namespace, Canaries and Rollouts together; 0: no limit")
	set.IntVar(&f.Shards, "shards", 0, "number of shards that the replicas divide among them, more than there will be replicas; all releases of a namespace belong to one shard; 0: one replica acts, see -enable-leader-election")
	set.BoolVar(&f.AdoptWhileOtherControllerRuns, "adopt-while-peer-runs", false, "act although a running Flagger or Argo Rollouts may act on the same objects: use it only after dividing the objects between the two")
	set.StringSliceVar(&f.OtherControllerNamespaces, "other-controller-namespaces", nil, "namespaces in which Flagger and Argo Rollouts are detected, by their Deployments and Leases; empty: all, and a Deployment counts if its service account may write the releases in question")
	set.BoolVar(&f.AllowLoopbackHooks, "allow-loopback-hooks", false, "permit addresses of this host in Canaries and MetricTemplates, for tests")
	set.BoolVar(&f.ProxyResolvesNames, "proxy-resolves-names", false, "with a proxy in the environment: let it resolve host names, because it refuses internal addresses itself")
	set.StringVar(&f.IstioPrimarySecretNamespace, "istio-primary-secret-namespace", "", "namespace of the Secret for another cluster with the Istio objects of Rollouts; empty: the controller's own namespace")
	set.StringSliceVar(&f.APIs, "apis", []string{apiCanary, apiRollout}, "APIs to serve: canary, rollout; an API whose CRDs are not installed is served as soon as they are")
	f.registerPlugins(set)
	set.StringVar(&f.ProfilingAddress, "profiling-address", "", "loopback address that serves profiles; empty: off")
	f.registerArgo(set)
}

// registerPlugins declares the flags for plugins of Argo Rollouts.
func (f *Flags) registerPlugins(set *pflag.FlagSet) {
	f.PluginMemory.Quantity = resource.MustParse("512Mi")
	set.BoolVar(&f.AllowPlugins, "allow-plugins", false, "run the plugins of Argo Rollouts in the ConfigMap argo-rollouts-config: programs of third parties, with the network and, unless -plugin-uid is set, the files of this process")
	set.StringVar(&f.PluginDir, "plugin-dir", filepath.Join(os.TempDir(), "serin-plugins"), "directory for downloaded plugins and their sockets")
	set.DurationVar(&f.PluginTimeout, "plugin-timeout", time.Minute, "maximum duration of one call of a plugin")
	set.Var(&f.PluginMemory, "plugin-memory", "maximum writable memory of each plugin; 0: no limit")
	set.IntVar(&f.PluginUID, "plugin-uid", 0, "user and group of the plugins; requires that this process runs as root; 0: those of this process")
}

// pluginStartTimeout is the time that a plugin has to start, and then to initialize.
const pluginStartTimeout = 30 * time.Second

// validatePlugins returns a message for the user about the first invalid flag for plugins and its fix.
func (f *Flags) validatePlugins() error {
	switch {
	case !f.AllowPlugins:
		return nil
	case f.PluginTimeout <= 0 || f.PluginTimeout > maxPluginTimeout:
		return fmt.Errorf("-plugin-timeout is %s: set it to a duration of more than 0 and at most %s", f.PluginTimeout, maxPluginTimeout)
	case f.PluginMemory.Sign() < 0:
		return fmt.Errorf("-plugin-memory is %s: set it to a size such as 512Mi, or to 0 for no limit", f.PluginMemory.String())
	case f.PluginUID < 0 || f.PluginUID > math.MaxInt32:
		return fmt.Errorf("-plugin-uid is %d: set it to the ID of a user, or to 0 for that of this process", f.PluginUID)
	case !filepath.IsAbs(f.PluginDir):
		return fmt.Errorf("-plugin-dir is %q: set it to an absolute path", f.PluginDir)
	default:
		return nil
	}
}

// maxPluginTimeout is the maximum of -plugin-timeout: an abort waits for a call in progress.
const maxPluginTimeout = 10 * time.Minute

// FromEnvironment overrides flags with the documented environment variables, so that secrets need not be part of a command
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

// Validate returns a message for the user about the first invalid flag and its fix.
func (f *Flags) Validate() error {
	switch {
	case f.DrainDelay < 0:
		return fmt.Errorf("-drain-delay is %s: a delay cannot be negative", f.DrainDelay)
	case f.MinAnalysisInterval < 0:
		return fmt.Errorf("-min-analysis-interval is %s: an interval cannot be negative", f.MinAnalysisInterval)
	case f.MaxActiveReleases < 0:
		return fmt.Errorf("-max-moving is %d: set it to the maximum number of releases in progress, or 0 for no limit", f.MaxActiveReleases)
	case f.MaxActiveReleasesPerNamespace < 0:
		return fmt.Errorf("-max-moving-per-namespace is %d: set it to the maximum number of releases in progress per namespace, or 0 for no limit", f.MaxActiveReleasesPerNamespace)
	case f.Shards < 0 || f.Shards == 1 || f.Shards > maxShards:
		return fmt.Errorf("-shards is %d: set it to a number from 2 to %d, or to 0 if one replica shall act", f.Shards, maxShards)
	case f.Kubeconfig != "" && !canStat(f.Kubeconfig):
		return fmt.Errorf("-kubeconfig is %s, which cannot be read: correct the path", f.Kubeconfig)
	}
	if _, known := traffic.Normalize(f.MeshProvider); !known && f.MeshProvider != "" {
		return fmt.Errorf("-mesh-provider is %q, which is not a known provider: set it to one of %s", f.MeshProvider, strings.Join(traffic.ProviderNames(), ", "))
	}
	for _, name := range f.APIs {
		if name != apiCanary && name != apiRollout {
			return fmt.Errorf("-apis contains %q: set it to %s, %s, or both", name, apiCanary, apiRollout)
		}
	}
	if len(f.APIs) == 0 {
		return fmt.Errorf("-apis is empty, so nothing would be served: set it to %s, %s, or both", apiCanary, apiRollout)
	}
	if err := f.validatePlugins(); err != nil {
		return err
	}
	return f.validateArgo()
}

func canStat(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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
