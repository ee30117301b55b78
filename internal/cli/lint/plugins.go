package lint

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin"
)

// pluginConfigs returns the configurations of plugins in the input. Each controller has its own, in its namespace.
func (l *linter) pluginConfigs() []plugin.Config {
	var configs []plugin.Config
	for _, d := range l.objects {
		var source corev1.ConfigMap
		if d.group == "" && d.kind == "ConfigMap" && d.name == plugin.ConfigMapName && d.decode(&source) == nil {
			configs = append(configs, plugin.ParseConfig(source.Data))
		}
	}
	return configs
}

// checkPlugin reports a plugin that no configuration in the input permits to call. Without any, it is probably managed elsewhere.
func (l *linter) checkPlugin(d *document, at string, kind plugin.Kind, name string) {
	var first error
	for _, config := range l.pluginConfigs() {
		_, err := config.Find(kind, name)
		if err == nil {
			return
		}
		if first == nil {
			first = err
		}
	}
	if first != nil {
		l.report(d, ruleUnusablePlugin, at, first.Error(), fixInMessage)
	}
}

// checkRolloutPlugins checks the plugins of the steps and the routers of a Rollout.
func (l *linter) checkRolloutPlugins(d *document, c *argov1.CanaryStrategy) {
	for _, name := range l.options.ExternalPlugins(c.TrafficRouting) {
		l.checkPlugin(d, fmt.Sprintf("spec.strategy.canary.trafficRouting.plugins[%s]", name), plugin.Router, name)
	}
	for i, step := range c.Steps {
		if step.Plugin != nil {
			l.checkPlugin(d, fmt.Sprintf("spec.strategy.canary.steps[%d].plugin.name", i), plugin.Step, step.Plugin.Name)
		}
	}
}

// checkMetricPlugins checks the plugins of metrics.
func (l *linter) checkMetricPlugins(d *document, metrics []argov1.Metric) {
	for i, m := range metrics {
		for _, name := range slices.Sorted(maps.Keys(m.Provider.Plugin)) {
			l.checkPlugin(d, fmt.Sprintf("spec.metrics[%d].provider.plugin[%s]", i, name), plugin.Metric, name)
		}
	}
}
