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
	"github.com/serin-dev/serin/internal/metric/keptn"
	"github.com/serin-dev/serin/internal/metric/newrelic"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/metric/splunk"
	"github.com/serin-dev/serin/internal/metric/stackdriver"
	"github.com/serin-dev/serin/internal/outbound"
)

// MetricTypes are the metrics services that templates may name.
func MetricTypes() []string { return MetricsServices(nil, metric.Cluster{}, nil).Types() }

// MetricsServices are the providers of metrics that this binary has.
func MetricsServices(c *outbound.Client, own metric.Cluster, clk clock.Clock) *metric.Registry {
	return metric.NewRegistry(c,
		prometheus.Factory(), graphite.Factory(), newrelic.Factory(), datadog.Factory(), dynatrace.Factory(), influxdb.Factory(),
		cloudwatch.Factory(), stackdriver.Factory(), splunk.Factory(), externalmetrics.Factory(own), keptn.Factory(own, clk))
}

// ownCluster is the API server as a metrics service: once with the rights of the controller, which go nowhere else, and
// once with none.
func ownCluster(cfg *rest.Config, oneNamespace bool) (metric.Cluster, error) {
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
		if *client, err = outbound.NewFor(c.Address, transport); err != nil {
			return metric.Cluster{}, fmt.Errorf("connect to the API server: %w", err)
		}
	}
	return c, nil
}
