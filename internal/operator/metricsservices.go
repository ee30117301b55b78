package operator

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/cloudwatch"
	"github.com/serin-dev/serin/internal/metric/datadog"
	"github.com/serin-dev/serin/internal/metric/dynatrace"
	"github.com/serin-dev/serin/internal/metric/externalmetrics"
	"github.com/serin-dev/serin/internal/metric/graphite"
	"github.com/serin-dev/serin/internal/metric/influxdb"
	"github.com/serin-dev/serin/internal/metric/kayenta"
	"github.com/serin-dev/serin/internal/metric/keptn"
	"github.com/serin-dev/serin/internal/metric/newrelic"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/metric/skywalking"
	"github.com/serin-dev/serin/internal/metric/splunk"
	"github.com/serin-dev/serin/internal/metric/stackdriver"
	"github.com/serin-dev/serin/internal/metric/wavefront"
	"github.com/serin-dev/serin/internal/metric/web"
	"github.com/serin-dev/serin/internal/outbound"
)

// MetricTypes returns the metrics services that MetricTemplates may use.
func MetricTypes() []string { return MetricsServices(metric.Cluster{}, nil).TemplateTypes() }

// MetricsServices returns the metrics services of this binary. The comment of package metric lists the parts of an entry.
func MetricsServices(own metric.Cluster, clk clock.Clock) *metric.Registry {
	ambient := &cloudwatch.Ambient{}
	return metric.NewRegistry(
		cloudwatch.Service(ambient), datadog.Service(), dynatrace.Service(), externalmetrics.Service(own), graphite.Service(),
		influxdb.Service(), kayenta.Service(), keptn.Service(own, clk), newrelic.Service(), prometheus.Service(ambient.Signer),
		skywalking.Service(), splunk.Service(), stackdriver.Service(), wavefront.Service(), web.Service(own))
}

// localMetricsService returns the API server as a metrics service, with two clients: one with the credentials of the controller,
// which are sent to no other host, and one without credentials.
func localMetricsService(cfg *rest.Config, oneNamespace bool) (metric.Cluster, error) {
	address, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return metric.Cluster{}, fmt.Errorf("find the API server: %w", err)
	}
	c := metric.Cluster{Address: address.String(), OneNamespace: oneNamespace}
	for config, client := range map[*rest.Config]**outbound.Client{cfg: &c.Own, rest.AnonymousClientConfig(cfg): &c.Anonymous} {
		transport, err := rest.TransportFor(config)
		if err != nil {
			return metric.Cluster{}, fmt.Errorf("connect to the API server: %w", err)
		}
		if *client, err = outbound.NewForServer(c.Address, transport); err != nil {
			return metric.Cluster{}, fmt.Errorf("connect to the API server: %w", err)
		}
	}
	return c, nil
}
