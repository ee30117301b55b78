package operator

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/ambassador"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/smi"
	"github.com/serin-dev/serin/internal/traffic/traefik"
)

// ArgoFlags are the flags of Argo Rollouts' controller, in addition to Flagger's. They may have one dash or two.
type ArgoFlags struct {
	InstanceID                               string
	Namespaced                               bool
	RolloutResync                            int
	RolloutThreads                           int
	AnalysisThreads, ExperimentThreads       int
	MetricsPort, HealthzPort                 int
	Controllers                              []string
	LeaseDuration, RenewDeadline, RetryEvery time.Duration
	// The API versions in which routers are written; IstioAPI and SplitAPI without a group.
	IstioAPI, SplitAPI, AmbassadorAPI, TraefikAPI string
	// VerifyTargetGroups verifies the state of load balancers with AWS. TargetGroupTag and TargetGroupBindingAPI are
	// the names that the load balancer controller uses.
	VerifyTargetGroups                    bool
	TargetGroupTag, TargetGroupBindingAPI string
	// SelfServiceNotification lets each namespace configure notifications for its Rollouts, in addition to the
	// configuration in OwnNamespace, the namespace of the process: PodNamespace, which is empty outside of a cluster, or the
	// default of Argo's controller.
	SelfServiceNotification    bool
	OwnNamespace, PodNamespace string
}

// ignoredFlags are flags of Argo Rollouts without an effect in Serin, with their defaults and the reason.
var ignoredFlags = map[string]struct{ value, why string }{
	"kloglevel": {"0", "there is one log"}, "service-threads": {"10", "Services have no workers of their own"},
	"ingress-threads": {"10", "routes have no workers of their own"}, "ephemeral-metadata-threads": {"10", "pods have no workers of their own"},
	"ephemeral-metadata-update-pod-retries": {"3", "a reconciliation is retried until it succeeds"},
	"appmesh-crd-version":                   {"v1beta2", "v1beta2 is the only version"}, "traefik-api-group": {"traefik.io", "the value of -traefik-api-version contains it"},
	"ingress-api-version": {"", "the only version is networking.k8s.io/v1"},
	"alb-ingress-classes": {"alb", "Ingresses are found by their names"}, "nginx-ingress-classes": {"nginx", "Ingresses are found by their names"},
}

// registerArgo declares the flags.
func (f *Flags) registerArgo(set *pflag.FlagSet) {
	f.registerConnection(set)
	a := &f.Argo
	set.StringVar(&a.InstanceID, "instance-id", "", "serve Rollouts and related objects with this instance ID in their label; empty: those without the label")
	set.BoolVar(&a.Namespaced, "namespaced", false, "watch only the controller's own namespace, like -namespace with its name")
	set.IntVar(&a.RolloutResync, "rollout-resync", 900, "interval in seconds at which a Rollout is reconciled for changes that no watch reports, such as a ReplicaSet as its workloadRef")
	set.IntVar(&a.RolloutThreads, "rollout-threads", 10, "number of concurrent reconciliations of Rollouts")
	set.IntVar(&a.AnalysisThreads, "analysis-threads", 30, "number of concurrent reconciliations of AnalysisRuns")
	set.IntVar(&a.ExperimentThreads, "experiment-threads", 10, "number of concurrent reconciliations of Experiments")
	for _, name := range []string{"metricsPort", "metricsport"} {
		set.IntVar(&a.MetricsPort, name, 0, "additional port for metrics; 0: none")
	}
	set.IntVar(&a.HealthzPort, "healthzPort", 0, "additional port for health checks; 0: none")
	set.StringSliceVar(&a.Controllers, "controllers", nil, "run only these controllers of the Rollout API: analysis; empty: all")
	set.StringVar(&a.IstioAPI, "istio-api-version", istio.DefaultRolloutVersion, "API version of the objects of the router istio")
	set.StringVar(&a.SplitAPI, "traffic-split-api-version", string(smi.V1Alpha1), "API version of the objects of the router smi: v1alpha1, v1alpha2 or v1alpha3")
	set.StringVar(&a.AmbassadorAPI, "ambassador-api-version", ambassador.DefaultAPI, "API group and version of the objects of the router ambassador")
	set.StringVar(&a.TraefikAPI, "traefik-api-version", traefik.DefaultAPI, "API group and version of the objects of the router traefik")
	for _, name := range []string{"aws-verify-target-group", "alb-verify-weight"} {
		set.BoolVar(&a.VerifyTargetGroups, name, false, "verify with AWS that load balancers have the weights of the router alb, and that target groups have the pods of a Service before pods of other revisions are scaled down")
	}
	set.StringVar(&a.TargetGroupTag, "alb-tag-key-resource-id", alb.DefaultResourceTag, "tag of a target group that contains its Ingress, Service and port")
	set.StringVar(&a.TargetGroupBindingAPI, "aws-target-group-binding-api-version", alb.DefaultBindingAPI, "API group and version of TargetGroupBindings")
	set.BoolVar(&a.SelfServiceNotification, "self-service-notification-enabled", false, "also read the configuration of notifications in the namespace of a Rollout")
	set.BoolVar(&f.EnableLeaderElection, "leader-elect", false, "the same as -enable-leader-election")
	set.DurationVar(&a.LeaseDuration, "leader-election-lease-duration", leaseDuration, "time after which a lease that is not renewed expires")
	set.DurationVar(&a.RenewDeadline, "leader-election-renew-deadline", renewDeadline, "time for which the leader tries to renew its lease")
	set.DurationVar(&a.RetryEvery, "leader-election-retry-period", retryPeriod, "interval between attempts to acquire the lease")
	set.StringVar(&f.LogLevel, "loglevel", f.LogLevel, "the same as -log-level")
	set.StringVar(&f.LogEncoding, "logformat", f.LogEncoding, "the same as -zap-encoding; text is console")
	set.Float32Var(&f.QPS, "qps", f.QPS, "the same as -kubeconfig-qps")
	set.IntVar(&f.Burst, "burst", f.Burst, "the same as -kubeconfig-burst")
	set.StringVar(&f.ProfilingAddress, "enable-pprof-address", "", "the same as -profiling-address")
	for name, flag := range ignoredFlags {
		set.String(name, flag.value, "accepted for compatibility: "+flag.why)
	}
}

// validateArgo returns a message for the user about the first invalid flag and its fix.
func (f *Flags) validateArgo() error {
	a := f.Argo
	for _, name := range a.Controllers {
		if name != "analysis" {
			return fmt.Errorf("-controllers contains %q: analysis is the only controller that can be selected; omit the flag to run all", name)
		}
	}
	if problems := validation.IsValidLabelValue(a.InstanceID); len(problems) > 0 {
		return fmt.Errorf("-instance-id is %q, which is not a valid label value: %s", a.InstanceID, problems[0])
	}
	if !slices.Contains([]smi.Version{"", smi.V1Alpha1, smi.V1Alpha2, smi.V1Alpha3}, smi.Version(a.SplitAPI)) {
		return fmt.Errorf("-traffic-split-api-version is %q: set it to v1alpha1, v1alpha2 or v1alpha3", a.SplitAPI)
	}
	for flag, api := range map[string]string{
		"ambassador-api-version": a.AmbassadorAPI, "traefik-api-version": a.TraefikAPI, "aws-target-group-binding-api-version": a.TargetGroupBindingAPI,
	} {
		if group, version, _ := strings.Cut(api, "/"); api != "" && (group == "" || version == "") {
			return fmt.Errorf("-%s is %q: set it to a group and a version, separated by a slash", flag, api)
		}
	}
	if a.RolloutResync < 0 {
		return fmt.Errorf("-rollout-resync is %d: set it to a number of seconds that is not negative", a.RolloutResync)
	}
	return nil
}

// namespaceFile contains the namespace of the pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// resolveDefaults resolves flags that are defined by other flags or by the environment.
func (f *Flags) resolveDefaults(lookup func(string) string) {
	f.Argo.PodNamespace = podNamespace(lookup)
	f.Argo.OwnNamespace = cmp.Or(f.Argo.PodNamespace, "argo-rollouts")
	if f.Argo.Namespaced && f.Namespace == "" {
		f.Namespace = f.Argo.OwnNamespace
	}
	if f.LogEncoding == "text" {
		f.LogEncoding = "console"
	}
}

// podNamespace returns the namespace of the process's pod, in the same way as Argo's controller; empty: it runs outside of a cluster.
func podNamespace(lookup func(string) string) string {
	if name := lookup("POD_NAMESPACE"); name != "" {
		return name
	}
	if text, err := os.ReadFile(namespaceFile); err == nil {
		if name := strings.TrimSpace(string(text)); name != "" {
			return name
		}
	}
	return ""
}

// servesAPI reports whether the flags request an API.
func (f *Flags) servesAPI(name string) bool { return slices.Contains(f.APIs, name) }

// additionalAddresses returns the addresses for health and metrics in addition to -port.
func (f *Flags) additionalAddresses() []string {
	var all []string
	for _, port := range []int{f.Argo.MetricsPort, f.Argo.HealthzPort} {
		if port != 0 {
			all = append(all, net.JoinHostPort("", strconv.Itoa(port)))
		}
	}
	return all
}
