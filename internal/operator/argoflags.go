package operator

import (
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
	// configuration in OwnNamespace, the namespace of the process.
	SelfServiceNotification bool
	OwnNamespace            string
}

// ignoredFlags are flags of Argo Rollouts without an effect in Serin, with their defaults and the reason.
var ignoredFlags = map[string]struct{ value, why string }{
	"kloglevel": {"0", "there is one log"}, "service-threads": {"10", "Services have no workers of their own"},
	"ingress-threads": {"10", "routes have no workers of their own"}, "ephemeral-metadata-threads": {"10", "pods have no workers of their own"},
	"ephemeral-metadata-update-pod-retries": {"3", "a pass is tried again until it succeeds"},
	"appmesh-crd-version":                   {"v1beta2", "it is the only one"}, "traefik-api-group": {"traefik.io", "-traefik-api-version says it too"},
	"ingress-api-version": {"", "networking.k8s.io/v1 is the only one"},
	"alb-ingress-classes": {"alb", "Ingresses are found by their names"}, "nginx-ingress-classes": {"nginx", "Ingresses are found by their names"},
}

// registerArgo declares the flags.
func (f *Flags) registerArgo(set *pflag.FlagSet) {
	a := &f.Argo
	set.StringVar(&a.InstanceID, "instance-id", "", "serve the Rollouts and their kinds that carry this instance id in their label; empty: those that carry none")
	set.BoolVar(&a.Namespaced, "namespaced", false, "watch the controller's own namespace only, as -namespace with its name")
	set.IntVar(&a.RolloutResync, "rollout-resync", 900, "seconds until a Rollout looks again at what no watch tells of: a ReplicaSet that it takes its template from")
	set.IntVar(&a.RolloutThreads, "rollout-threads", 10, "passes over Rollouts at once")
	set.IntVar(&a.AnalysisThreads, "analysis-threads", 30, "passes over AnalysisRuns at once")
	set.IntVar(&a.ExperimentThreads, "experiment-threads", 10, "passes over Experiments at once")
	for _, name := range []string{"metricsPort", "metricsport"} {
		set.IntVar(&a.MetricsPort, name, 0, "additional port for metrics; 0: none")
	}
	set.IntVar(&a.HealthzPort, "healthzPort", 0, "additional port for health checks; 0: none")
	set.StringSliceVar(&a.Controllers, "controllers", nil, "only these of the Rollout API: analysis; empty: all")
	set.StringVar(&a.IstioAPI, "istio-api-version", istio.DefaultRolloutVersion, "version in which the router istio is written")
	set.StringVar(&a.SplitAPI, "traffic-split-api-version", string(smi.V1Alpha1), "version in which the router smi is written: v1alpha1, v1alpha2 or v1alpha3")
	set.StringVar(&a.AmbassadorAPI, "ambassador-api-version", ambassador.DefaultAPI, "API in which the router ambassador is written")
	set.StringVar(&a.TraefikAPI, "traefik-api-version", traefik.DefaultAPI, "API in which the router traefik is written")
	for _, name := range []string{"aws-verify-target-group", "alb-verify-weight"} {
		set.BoolVar(&a.VerifyTargetGroups, name, false, "ask AWS whether the load balancers have the weights of the router alb, and whether target groups have the pods of a Service before the pods of other revisions go")
	}
	set.StringVar(&a.TargetGroupTag, "alb-tag-key-resource-id", alb.DefaultResourceTag, "tag of a target group that says which Ingress, Service and port it is for")
	set.StringVar(&a.TargetGroupBindingAPI, "aws-target-group-binding-api-version", alb.DefaultBindingAPI, "API in which TargetGroupBindings are read")
	set.BoolVar(&a.SelfServiceNotification, "self-service-notification-enabled", false, "read the configuration of notifications in the namespace of a Rollout too")
	set.BoolVar(&f.EnableLeaderElection, "leader-elect", false, "the same as -enable-leader-election")
	set.DurationVar(&a.LeaseDuration, "leader-election-lease-duration", leaseDuration, "how long a lease holds that is not renewed")
	set.DurationVar(&a.RenewDeadline, "leader-election-renew-deadline", renewDeadline, "how long the leader tries to renew it")
	set.DurationVar(&a.RetryEvery, "leader-election-retry-period", retryPeriod, "how long to wait between attempts to get it")
	set.StringVar(&f.LogLevel, "loglevel", f.LogLevel, "the same as -log-level")
	set.StringVar(&f.LogEncoding, "logformat", f.LogEncoding, "the same as -zap-encoding; text is console")
	set.Float32Var(&f.QPS, "qps", f.QPS, "the same as -kubeconfig-qps")
	set.IntVar(&f.Burst, "burst", f.Burst, "the same as -kubeconfig-burst")
	set.StringVar(&f.ProfilingAddress, "enable-pprof-address", "", "the same as -profiling-address")
	for name, flag := range ignoredFlags {
		set.String(name, flag.value, "accepted for compatibility: "+flag.why)
	}
}

// validateArgo returns an error that says what is wrong with the flags, and how to fix it.
func (f *Flags) validateArgo() error {
	a := f.Argo
	for _, name := range a.Controllers {
		if name != "analysis" {
			return fmt.Errorf("-controllers names %q: analysis is the only one that can be chosen; leave the flag away for all", name)
		}
	}
	if problems := validation.IsValidLabelValue(a.InstanceID); len(problems) > 0 {
		return fmt.Errorf("-instance-id is %q, which no label can have: %s", a.InstanceID, problems[0])
	}
	if !slices.Contains([]smi.Version{"", smi.V1Alpha1, smi.V1Alpha2, smi.V1Alpha3}, smi.Version(a.SplitAPI)) {
		return fmt.Errorf("-traffic-split-api-version is %q: give v1alpha1, v1alpha2 or v1alpha3", a.SplitAPI)
	}
	for flag, api := range map[string]string{
		"ambassador-api-version": a.AmbassadorAPI, "traefik-api-version": a.TraefikAPI, "aws-target-group-binding-api-version": a.TargetGroupBindingAPI,
	} {
		if group, version, _ := strings.Cut(api, "/"); api != "" && (group == "" || version == "") {
			return fmt.Errorf("-%s is %q: give a group and a version with a slash between", flag, api)
		}
	}
	if a.RolloutResync < 0 {
		return fmt.Errorf("-rollout-resync is %d: give a number of seconds", a.RolloutResync)
	}
	return nil
}

// namespaceFile contains the namespace of the pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// resolveDefaults resolves flags that are defined by other flags or by the environment.
func (f *Flags) resolveDefaults(lookup func(string) string) {
	f.Argo.OwnNamespace = ownNamespace(lookup)
	if f.Argo.Namespaced && f.Namespace == "" {
		f.Namespace = f.Argo.OwnNamespace
	}
	if f.LogEncoding == "text" {
		f.LogEncoding = "console"
	}
}

// ownNamespace returns the namespace of the process, in the same way as Argo's controller.
func ownNamespace(lookup func(string) string) string {
	if name := lookup("POD_NAMESPACE"); name != "" {
		return name
	}
	if text, err := os.ReadFile(namespaceFile); err == nil {
		if name := strings.TrimSpace(string(text)); name != "" {
			return name
		}
	}
	return "argo-rollouts"
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
