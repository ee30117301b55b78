package canary

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// HookQuery calls a webhook.
type HookQuery struct {
	Hook Hook
	// Phase is the phase in the payload.
	Phase flaggerv1.CanaryPhase
	// Key is the idempotency key: a receiver recognises a repeated call by it.
	Key string
}

// MetricQuery queries one measurement.
type MetricQuery struct{ Check Check }

// PrimaryData reports whether a query that returned no data for the canary returns data for the primary. It is the detail of the
// answer; there is none if the query does not depend on the target.
type PrimaryData string

// The values of PrimaryData.
const (
	PrimaryHasData   PrimaryData = "data"
	PrimaryHasNoData PrimaryData = "no-data"
)

// SourcesQuery checks whether the sources of all checks are reachable.
type SourcesQuery struct{ Checks []Check }

// requeryInterval is how soon an unreachable provider is queried again; unreachableGrace is how long it does not count against
// the release.
const (
	requeryInterval  = 5 * time.Second
	unreachableGrace = 60 * time.Second
)

// hookQuery identifies the call of a webhook in one attempt of a run: a window, a revision, or the gates before the first
// weight. The request is added when the query is sent. A hash of the address distinguishes two hooks with the same type and
// name, and an ordinal those that also have the same address; the address itself is in no ID.
func hookQuery(s Snapshot, hook Hook, attempt string, since time.Time) release.Query {
	address := fnv.New32a()
	_, _ = address.Write([]byte(hook.URL)) // never fails
	return release.Query{
		ID:    shortID(typedName(hook)) + "/" + strconv.FormatUint(uint64(address.Sum32()), 36) + "/" + s.run() + "/" + attempt + ordinalSuffix(hook),
		Since: since,
	}
}

// ordinalSuffix distinguishes hooks with the same type, name and address. It is empty for the first of them.
func ordinalSuffix(hook Hook) string {
	if hook.Ordinal == 0 {
		return ""
	}
	return "#" + strconv.Itoa(hook.Ordinal+1)
}

// hookQueryGate is a gate that waits for the response of a webhook. A webhook that is polled is called with another key each
// time, because a receiver that remembers keys would otherwise repeat its first response.
func hookQueryGate(s Snapshot, query release.Query, hook Hook, phase flaggerv1.CanaryPhase, message string) release.Gate {
	moment := ""
	if !query.Since.IsZero() {
		moment = query.Since.UTC().Format(time.RFC3339Nano)
	}
	query.Request = HookQuery{Hook: hook, Phase: phase, Key: digest(s.UID, s.run(), query.ID, string(phase), moment)}
	return release.NewQueryGate(hookGateName(hook), query, message)
}

// metricQuery identifies one check of the open window. The query is sent at the end of the window; its request is added then.
func metricQuery(s Snapshot, check Check) release.Query {
	return release.Query{
		ID:    "metric/" + strconv.Itoa(check.Index) + "/" + shortID(check.Metric.Name) + "/" + string(check.Source) + "/" + s.run() + "/" + s.currentWindow().attempt(),
		Since: s.currentWindow().end(),
	}
}

// Names of gates that decisions, views and conditions compare with.
const (
	canaryReadyGate         = "canary-ready"
	canaryEndpointsGate     = "canary-endpoints"
	primaryReadyGate        = "primary-ready"
	routeConfirmedGate      = "route-confirmed"
	providerUnreachableGate = "provider-unreachable"
	turnGate                = "turn"
	rolloutAskedGate        = "rollout-asked/"
	sourcesGate             = "metrics-available"
)

// hookGateName is the name of the gate of a webhook. A number distinguishes hooks with the same type and name: each of them may wait
// for another user.
func hookGateName(hook Hook) string { return hook.numbered(string(hook.Type) + "/" + hook.Name) }

// numbered adds a number to a name that earlier hooks have too.
func (h *Hook) numbered(name string) string {
	if h.Namesakes == 0 {
		return name
	}
	return name + "#" + strconv.Itoa(h.Namesakes+1)
}

// typedName is the name of the gate of the first webhook with that type and name. Queries are identified by it and the address.
func typedName(hook Hook) string { return string(hook.Type) + "/" + hook.Name }

func isHookGate(g *release.Gate, hookType flaggerv1.HookType) bool {
	return strings.HasPrefix(g.Name, string(hookType)+"/")
}

// mutesAlerts reports whether the webhook of a gate has muteAlert set.
func (p *Plan) mutesAlerts(gateName string) bool {
	return slices.ContainsFunc(p.Hooks, func(hook Hook) bool {
		return hookGateName(hook) == gateName && hook.MuteAlert
	})
}

// EventKey is the idempotency key of an event: it is the same for an event that is sent again, and for a persistent event that is
// repeated after a restart. The same message twice within one window is one event.
func EventKey(uid string, status flaggerv1.CanaryStatus, hook Hook, event release.Event) string {
	window := ""
	if status.Serin != nil && status.Serin.Window != nil {
		window = status.Serin.Window.Start.UTC().Format(time.RFC3339Nano)
	}
	parts := []string{uid, RunOf(uid, status), typedName(hook), hook.URL, event.Phase, window, string(event.Type), event.Message}
	if suffix := ordinalSuffix(hook); suffix != "" {
		parts = append(parts, suffix)
	}
	return digest(parts...)
}
