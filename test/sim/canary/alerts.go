package canary

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

var alertProviderKind = schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.AlertProviderKind}

// newAlertSender returns a chat that accepts every alert.
func newAlertSender(string, alerting.Options) (alerting.Sender, error) { return acceptingChat{}, nil }

type acceptingChat struct{}

// Send implements alerting.Sender.
func (acceptingChat) Send(context.Context, alerting.Message) error { return nil }

// changeAlerts adds an alert to a Canary, or creates or deletes the provider that such an alert refers to.
func (u *users) changeAlerts(r *Release, s *sim.Stream) {
	provider := r.Target + "-chat"
	switch s.Int(0, 3) {
	case 0, 1:
		if u.updateSpec(r, func(c *flaggerv1.Canary) {
			if c.Spec.Analysis == nil {
				return
			}
			c.Spec.Analysis.Alerts = []flaggerv1.CanaryAlert{{Name: "chat", Severity: "info", ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: provider}}}
		}) {
			u.UserClient.TraceAction(r.Key, "send alerts to %s", provider)
		}
	case 2:
		u.UserClient.TraceAction(r.Key, "create AlertProvider %s", provider)
		u.UserClient.Create(actors.NewObject("flagger.app/v1beta1", flaggerv1.AlertProviderKind, provider, map[string]any{
			"spec": map[string]any{"type": "slack", "channel": "releases", "address": "https://chat.example/" + actors.PlantedSecret},
		}))
	default:
		u.UserClient.DeleteOf(r.Key, provider, alertProviderKind)
	}
}

// missingProviders is I42, evaluated once faults and edits have ended.
func (l *ledger) missingProviders() {
	for _, seen := range l.World.Server.All(canaryKind) {
		c := decodeState(actors.Typed[*flaggerv1.Canary](l.World, seen))
		if c == nil || c.DeletionTimestamp != nil || c.Spec.Suspend || c.Spec.Analysis == nil || c.Status.Serin == nil {
			continue
		}
		if slices.ContainsFunc(c.Status.Conditions, func(c flaggerv1.CanaryCondition) bool { return c.Type == flaggerv1.ConditionBlocked }) {
			continue // the user has to correct something else first
		}
		missing := slices.ContainsFunc(c.Spec.Analysis.Alerts, func(alert flaggerv1.CanaryAlert) bool {
			return l.World.Server.Peek(alertProviderKind, types.NamespacedName{Namespace: c.Namespace, Name: alert.ProviderRef.Name}) == nil
		})
		named := slices.ContainsFunc(c.Status.Serin.Gates, func(g flaggerv1.GateStatus) bool {
			return g.Name == "references" && strings.Contains(g.Message, "alert provider")
		})
		if missing != named {
			l.Violate("I42", c.Name, "an alert provider is missing: %t; the status says so: %t", missing, named)
		}
	}
}
