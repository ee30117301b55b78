package plan

import (
	"errors"
	"maps"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/rollout"
)

// Plugin is a plugin that a release of a Rollout uses.
type Plugin struct {
	Name string `json:"name"`
	// Kind is router, step or metric.
	Kind string `json:"kind"`
	// Problem is the reason why the controller does not call it; omitted if it does, or if that is not known.
	Problem string `json:"problem,omitempty"`
}

// Plugins are the plugins of a controller, as far as they are known.
type Plugins struct {
	// External returns the names of the router plugins that are not built in; nil: a plan names none.
	External func(*argov1.RolloutTrafficRouting) []string
	// Off is true if the controller is known to run no plugins.
	Off bool
	// Config is their configuration; nil: unknown.
	Config *plugin.Config
}

// kindNames are the names of the kinds of plugins for users.
var kindNames = map[plugin.Kind]string{plugin.Router: "router", plugin.Step: "step", plugin.Metric: "metric"}

// describe returns a plugin with the reason why it is not called.
func (p Plugins) describe(kind plugin.Kind, name string) Plugin {
	out := Plugin{Name: name, Kind: kindNames[kind]}
	switch {
	case p.Off:
		out.Problem = "plugins are off: start the controller with --allow-plugins"
	case p.Config != nil:
		item, err := p.Config.Find(kind, name)
		switch {
		case err != nil:
			out.Problem = errors.Unwrap(err).Error() // without the name
		case item.Disabled && kind == plugin.Step:
			out.Problem = "disabled: its steps are skipped"
		case item.Disabled && kind == plugin.Router:
			out.Problem = "disabled: the release waits"
		}
	}
	return out
}

// step returns the configuration of a step plugin. A plan assumes that one that is not configured yet will be.
func (p Plugins) step(name string) rollout.StepPlugin {
	if p.Config == nil {
		return rollout.StepPlugin{}
	}
	item, err := p.Config.Find(plugin.Step, name)
	return rollout.StepPlugin{Disabled: err == nil && item.Disabled}
}

// plugins returns the plugins of a played release: routers, then those of steps and metrics, in the order of their first use.
func (r *rolloutRun) plugins(p Plugins) []Plugin {
	var out []Plugin
	add := func(kind plugin.Kind, name string) {
		if used := p.describe(kind, name); !slices.Contains(out, used) {
			out = append(out, used)
		}
	}
	c := r.cluster.spec.Strategy.Canary
	if c != nil && p.External != nil {
		for _, name := range p.External(c.TrafficRouting) {
			add(plugin.Router, name)
		}
	}
	if c != nil {
		for _, step := range c.Steps {
			if step.Plugin != nil {
				add(plugin.Step, step.Plugin.Name)
			}
		}
	}
	for _, run := range r.analyses() {
		for _, m := range run.spec.Metrics {
			for _, name := range slices.Sorted(maps.Keys(m.Provider.Plugin)) {
				add(plugin.Metric, name)
			}
		}
	}
	return out
}
