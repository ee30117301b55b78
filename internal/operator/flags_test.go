package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/nginx"
)

// Every flag of Flagger's operator, in the forms that users write: with one dash, and with = or a space.
func TestFlaggersFlagsWorkWithOneDashOrTwo(t *testing.T) {
	values := map[string]string{
		"kubeconfig": "/k", "kubeconfig-qps": "7", "kubeconfig-burst": "8", "master": "http://m", "kubeconfig-service-mesh": "/m",
		"metrics-server": "http://p", "control-loop-interval": "3s", "log-level": "warn", "port": "9999",
		"slack-url": "http://s", "slack-token": "t", "slack-proxy-url": "http://x", "slack-user": "u", "slack-channel": "c",
		"msteams-url": "http://t", "msteams-proxy-url": "http://y", "event-webhook": "http://e", "include-label-prefix": "app",
		"threadiness": "4", "zap-replace-globals": "true", "zap-encoding": "console", "namespace": "n", "mesh-provider": "gatewayapi:v1",
		"selector-labels": "app", "ingress-annotations-prefix": "p", "ingress-class": "k", "enable-leader-election": "true",
		"leader-election-namespace": "l", "enable-config-tracking": "false", "cluster-name": "lab", "no-cross-namespace-refs": "true", "version": "true",
	}
	parse := func(args ...string) map[string]string {
		var f Flags
		set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		f.Register(set)
		if err := set.Parse(NormalizeArguments(set, args)); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		got := map[string]string{}
		set.Visit(func(flag *pflag.Flag) { got[flag.Name] = flag.Value.String() })
		return got
	}
	for name, value := range values {
		want := map[string]string{name: value}
		forms := [][]string{{"-" + name + "=" + value}, {"--" + name + "=" + value}}
		if value != "true" && value != "false" {
			forms = append(forms, []string{"-" + name, value}, []string{"--" + name, value})
		}
		for _, form := range forms {
			if diff := cmp.Diff(want, parse(form...)); diff != "" {
				t.Errorf("%v: (-want +got)\n%s", form, diff)
			}
		}
	}
}

// Every flag of Argo's controller, in the form that users write.
func TestArgosFlagsWork(t *testing.T) {
	var f Flags
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	f.Register(set)
	for _, arg := range []string{
		"--rollout-resync=300", "--instance-id=a", "--namespaced", "--loglevel=warn", "--logformat=text", "--kloglevel=2", "--metricsPort=8090",
		"--metricsport=8090", "--healthzPort=8081", "--qps=40", "--burst=80", "--rollout-threads=3", "--experiment-threads=4", "--analysis-threads=5",
		"--service-threads=6", "--ingress-threads=7", "--ephemeral-metadata-threads=8", "--ephemeral-metadata-update-pod-retries=4", "--leader-elect=false",
		"--leader-election-lease-duration=20s", "--leader-election-renew-deadline=15s", "--leader-election-retry-period=3s", "--controllers=analysis",
		"--istio-api-version=v1", "--traffic-split-api-version=v1alpha3", "--ambassador-api-version=getambassador.io/v3alpha1", "--appmesh-crd-version=v1beta2", "--traefik-api-group=traefik.io",
		"--traefik-api-version=traefik.io/v1alpha1", "--ingress-api-version=networking/v1", "--alb-ingress-classes=alb", "--nginx-ingress-classes=nginx",
		"--aws-verify-target-group", "--alb-verify-weight", "--aws-target-group-binding-api-version=elbv2.k8s.aws/v1", "--alb-tag-key-resource-id=x",
		"--self-service-notification-enabled", "--enable-pprof-address=127.0.0.1:6060",
	} {
		if err := set.Parse([]string{arg}); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
	f.FromEnvironment(func(name string) string { return map[string]string{"POD_NAMESPACE": "argo"}[name] })
	if f.Namespace != "argo" || f.LogLevel != "warn" || f.LogEncoding != "console" || f.QPS != 40 || f.Burst != 80 || f.ProfilingAddress == "" {
		t.Errorf("got %+v", f)
	}
	want := ArgoFlags{
		InstanceID: "a", Namespaced: true, RolloutResync: 300, RolloutThreads: 3, AnalysisThreads: 5, ExperimentThreads: 4, MetricsPort: 8090, HealthzPort: 8081,
		IstioAPI: "v1", SplitAPI: "v1alpha3", AmbassadorAPI: "getambassador.io/v3alpha1", TraefikAPI: "traefik.io/v1alpha1", VerifyTargetGroups: true,
		TargetGroupTag: "x", TargetGroupBindingAPI: "elbv2.k8s.aws/v1", SelfServiceNotification: true, OwnNamespace: "argo", PodNamespace: "argo",
		Controllers: []string{"analysis"}, LeaseDuration: 20 * time.Second, RenewDeadline: 15 * time.Second, RetryEvery: 3 * time.Second,
	}
	if diff := cmp.Diff(want, f.Argo); diff != "" {
		t.Error(diff)
	}
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
}

// A thousand concurrent releases need more requests than any reasonable default limit.
func TestRequestsAreLimitedOnlyByTheFlag(t *testing.T) {
	for args, want := range map[string]bool{"": false, "-kubeconfig-qps=100": true} {
		var f Flags
		set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		f.Register(set)
		if err := set.Parse(NormalizeArguments(set, strings.Fields(args))); err != nil {
			t.Fatal(err)
		}
		config := f.tuneClient(&rest.Config{Host: "https://cluster.example"}, nil)
		c, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(config))
		if err != nil {
			t.Fatal(err)
		}
		if limiter := c.GetRateLimiter(); (limiter != nil) != want {
			t.Errorf("%q: got limiter %v, want one: %t", args, limiter, want)
		}
	}
}

func TestNormalizeArgumentsChangesLongFlagsOnly(t *testing.T) {
	var f Flags
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	f.Register(set)
	args := []string{"-h", "-unknown", "-5", "value", "--", "-namespace"}
	if diff := cmp.Diff(args, NormalizeArguments(set, args)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTheEnvironmentOverridesFlags(t *testing.T) {
	f := Flags{SlackURL: "from the flag", EventWebhook: "from the flag"}
	f.FromEnvironment(func(name string) string {
		return map[string]string{"SLACK_URL": "from the environment", "EVENT_WEBHOOK_URL": ""}[name]
	})
	if f.SlackURL != "from the environment" || f.EventWebhook != "from the flag" {
		t.Errorf("got %q and %q", f.SlackURL, f.EventWebhook)
	}
}

func TestInvalidFlagsHaveClearMessages(t *testing.T) {
	for name, c := range map[string]struct {
		flags Flags
		want  string
	}{
		"negative drain":        {Flags{DrainDelay: -time.Second}, "-drain-delay is -1s"},
		"negative floor":        {Flags{MinAnalysisInterval: -time.Second}, "-min-analysis-interval is -1s"},
		"missing kubeconfig":    {Flags{Kubeconfig: "/does/not/exist"}, "correct the path"},
		"an unknown API":        {Flags{APIs: []string{"canary", "deployment"}}, `-apis contains "deployment"`},
		"no API":                {Flags{}, "-apis is empty"},
		"an unknown controller": {Flags{APIs: []string{"rollout"}, Argo: ArgoFlags{Controllers: []string{"ingress"}}}, "analysis is the only controller"},
		"an unknown provider": {
			Flags{APIs: []string{"canary"}, MeshProvider: "gatewayapi"},
			`-mesh-provider is "gatewayapi", which is not a known provider: set it to one of apisix, appmesh, appmesh:v1beta2, contour, ` +
				"gatewayapi:v1, gatewayapi:v1beta1, gloo, istio, knative, kubernetes, kuma, linkerd, nginx, osm, skipper, smi:v1alpha1, smi:v1alpha2, " +
				"smi:v1alpha3, traefik",
		},
		"plugins without a timeout":           {Flags{APIs: []string{"rollout"}, AllowPlugins: true, PluginDir: "/plugins"}, "-plugin-timeout is 0s: set it to a duration"},
		"plugins with a relative directory":   {Flags{APIs: []string{"rollout"}, AllowPlugins: true, PluginTimeout: time.Minute, PluginDir: "plugins"}, `-plugin-dir is "plugins": set it to an absolute path`},
		"plugins of no user":                  {Flags{APIs: []string{"rollout"}, AllowPlugins: true, PluginTimeout: time.Minute, PluginDir: "/plugins", PluginUID: -1}, "-plugin-uid is -1"},
		"plugins":                             {Flags{APIs: []string{"rollout"}, AllowPlugins: true, PluginTimeout: time.Minute, PluginDir: "/plugins"}, ""},
		"a provider with a mesh":              {Flags{APIs: []string{"canary"}, MeshProvider: "smi:v1alpha1:istio"}, ""},
		"a provider of Flagger by its prefix": {Flags{APIs: []string{"canary"}, MeshProvider: "gloo-edge"}, ""},
		"valid":                               {Flags{APIs: []string{"rollout"}}, ""},
	} {
		err := c.flags.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestFlagsConfigureRouters(t *testing.T) {
	routers := (&Flags{IngressAnnotationsPrefix: "ingress.example.com", IngressClass: "edge"}).Routers()
	for name, want := range map[string]traffic.Renderer{
		"nginx":   nginx.New("ingress.example.com"),
		"contour": contour.New("edge"),
	} {
		if got, ok := routers.ForCanary(name); !ok || got != want {
			t.Errorf("the renderer of %s is %v, want %v", name, got, want)
		}
	}
}

// An API version that cannot be written is reported at the start, and not when a Rollout sets a weight.
func TestAPIVersionsOfRoutersAreValidated(t *testing.T) {
	for arg, valid := range map[string]bool{
		"-traffic-split-api-version=v1alpha2": true, "-traffic-split-api-version=v1alpha4": false,
		"-ambassador-api-version=x.getambassador.io/v3alpha1": true, "-ambassador-api-version=v2": false,
		"-traefik-api-version=traefik.containo.us/v1alpha1": true, "-traefik-api-version=traefik.io/": false,
	} {
		var f Flags
		set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		f.Register(set)
		if err := set.Parse(NormalizeArguments(set, []string{arg})); err != nil {
			t.Fatal(err)
		}
		if err := f.Validate(); (err == nil) != valid {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
