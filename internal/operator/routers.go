package operator

import (
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/kubernetes"
	"github.com/serin-dev/serin/internal/traffic/nginx"
	"github.com/serin-dev/serin/internal/traffic/skipper"
	"github.com/serin-dev/serin/internal/traffic/traefik"
)

// Routers are the providers of traffic that this binary has, as the flags set them up.
func (f *Flags) Routers() *traffic.Registry {
	return traffic.NewRegistry(map[string]traffic.Renderer{
		"contour":            contour.New(f.IngressClass),
		"gatewayapi:v1":      gatewayapi.New(gatewayapi.V1),
		"gatewayapi:v1beta1": gatewayapi.New(gatewayapi.V1Beta1),
		"istio":              istio.New(),
		"kubernetes":         kubernetes.New(),
		"nginx":              nginx.New(f.IngressAnnotationsPrefix),
		"skipper":            skipper.New(),
		"traefik":            traefik.New(),
	})
}
