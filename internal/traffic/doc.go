// Package traffic splits the requests of a release between its two sides, for Canaries and Rollouts.
//
// It has the contract of a provider (Renderer: a Route to objects and back, pure), the registry of providers, and the Applier,
// which reads and writes for all of them. What differs between the two APIs is in values, not in interfaces: a Canary's route
// is created from its spec and owned by it; a Rollout's is written into objects of the user. It must not know phases, steps,
// windows or any reconciler: a route is the same whatever it is for. A provider package below it knows the objects of one mesh
// and nothing of its siblings.
//
// # A new provider
//
// Each of these places needs a change; package test/borders fails if one is forgotten:
//
//   - a package below this one: features, references, rendering, reading, restoring, and its tests with traffictest
//   - operator.Flags.Routers, which registers it
//   - for Canaries: exactNames or prefixNames (registry.go), the enum of spec.provider in api/flagger/v1beta1, and
//     that of meshProvider in charts/serin/values.schema.json
//   - for Rollouts, unless it is configured under plugins: routerFields (routers.go), and a field of
//     RolloutTrafficRouting in api/argoproj/v1alpha1
//   - the documentation: a section in docs/providers.md or docs/rollout-routers.md, the tables in docs/canary.md,
//     docs/rollouts.md and docs/rollout-routers.md, an example and the permissions in docs/examples and, for a new API group,
//     a group in hack/packaging
//
// A mesh with metrics of its own also needs its built-in queries, in internal/metric.
package traffic
