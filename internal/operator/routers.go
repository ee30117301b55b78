package operator

import (
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/ambassador"
	"github.com/serin-dev/serin/internal/traffic/apisix"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
	"github.com/serin-dev/serin/internal/traffic/consul"
	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/gloo"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/knative"
	"github.com/serin-dev/serin/internal/traffic/kubernetes"
	"github.com/serin-dev/serin/internal/traffic/kuma"
	"github.com/serin-dev/serin/internal/traffic/nginx"
	"github.com/serin-dev/serin/internal/traffic/openshift"
	"github.com/serin-dev/serin/internal/traffic/skipper"
	"github.com/serin-dev/serin/internal/traffic/smi"
	"github.com/serin-dev/serin/internal/traffic/traefik"
)

// Routers returns the traffic providers of this binary, configured by the flags. Register new providers here; see the comment of
// package traffic.
func (f *Flags) Routers() traffic.Registry {
	return traffic.Registry{
		Canary: map[string]traffic.Renderer{
			"apisix":             apisix.New(),
			"appmesh":            appmesh.New(appmesh.V1Beta1),
			"appmesh:v1beta2":    appmesh.New(appmesh.V1Beta2),
			"contour":            contour.New(f.IngressClass),
			"gatewayapi:v1":      gatewayapi.New(gatewayapi.V1),
			"gatewayapi:v1beta1": gatewayapi.New(gatewayapi.V1Beta1),
			"gloo":               gloo.New(f.WorkloadOptions().IncludePrefixes),
			"istio":              istio.New(),
			"knative":            knative.New(),
			"kubernetes":         kubernetes.New(),
			"kuma":               kuma.New(),
			"linkerd":            smi.New(smi.V1Alpha1),
			"nginx":              nginx.New(f.IngressAnnotationsPrefix),
			"osm":                smi.New(smi.V1Alpha2),
			"skipper":            skipper.New(),
			"smi:v1alpha1":       smi.New(smi.V1Alpha1),
			"smi:v1alpha2":       smi.New(smi.V1Alpha2),
			"smi:v1alpha3":       smi.New(smi.V1Alpha3),
			"traefik":            traefik.New(),
		},
		Rollout: map[string]traffic.Renderer{
			"alb":                 alb.NewRollout(alb.Options{VerifyTargetGroups: f.Argo.VerifyTargetGroups}),
			"ambassador":          ambassador.NewRollout(f.Argo.AmbassadorAPI),
			"apisix":              apisix.NewRollout(),
			"appMesh":             appmesh.NewRollout(),
			"istio":               istio.NewRollout(f.Argo.IstioAPI),
			"nginx":               nginx.NewRollout(),
			"smi":                 smi.NewRollout(smi.Version(f.Argo.SplitAPI)),
			"traefik":             traefik.NewRollout(f.Argo.TraefikAPI),
			contour.PluginName:    contour.NewRollout(),
			consul.PluginName:     consul.NewRollout(),
			gatewayapi.PluginName: gatewayapi.NewRollout(),
			gloo.PluginName:       gloo.NewRollout(),
			openshift.PluginName:  openshift.NewRollout(),
		},
		NoCrossNamespace: f.NoCrossNamespaceRefs,
	}
}
