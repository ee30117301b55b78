package controller

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Reporter reports what happened: in Kubernetes events, to event webhooks, and in alerts. There is one queue per release, in
// the order of the events; no release waits for it.
type Reporter struct {
	// Client reads from caches, Reader reads Secrets from the API server.
	Client        client.Client
	APIReader     client.Reader
	Clock         clock.PassiveClock
	Recorder      *telemetry.Recorder
	Outbox        *telemetry.Outbox
	OngoingEvents *telemetry.OngoingEvents
	Hooks         *hook.Client
	// EventHook is the address of the webhook for events of Canaries without an event webhook of their own, called through
	// EventHooks; empty: none.
	EventHook  string
	EventHooks *hook.Client
	// AlertSender sends the alerts of Canaries without an alert provider of their own; nil: they are not sent.
	AlertSender alerting.Sender
	// NewAlertSender returns the sender of an AlertProvider.
	NewAlertSender func(providerType string, options alerting.Options) (alerting.Sender, error)
	// Cluster is a field of every alert; empty: none.
	Cluster string
	// NoCrossNamespace forbids alert providers in other namespaces.
	NoCrossNamespace bool
	Metrics          *telemetry.Metrics

	failures alertFailures
}

// Report reports the events of a decision whose status was written. before is the phase before the decision.
func (r *Reporter) Report(ctx context.Context, c *flaggerv1.Canary, plan canary.Plan, before flaggerv1.CanaryPhase, d canary.Decision) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	for _, event := range r.OngoingEvents.NewEvents(key, d.Events) {
		if event.Phase == "" {
			event.Phase = string(before)
		}
		r.Recorder.Event(ctx, reference(c), event)
		r.callEventHooks(key, c, plan, event)
		if event.Alert != nil {
			r.queueAlerts(ctx, c, plan, *event.Alert)
		}
	}
}

// Forget drops the state of a deleted release, once its last messages are sent.
func (r *Reporter) Forget(key types.NamespacedName) {
	r.OngoingEvents.Forget(key)
	r.Recorder.Forget(key)
	r.failures.forget(key)
}

func reference(c *flaggerv1.Canary) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: flaggerv1.SchemeGroupVersion.String(), Kind: flaggerv1.CanaryKind,
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}
}

// callEventHooks queues one call per event webhook. Those of the Canary replace the one of the process.
func (r *Reporter) callEventHooks(key types.NamespacedName, c *flaggerv1.Canary, plan canary.Plan, event release.Event) {
	if event.AlertOnly || event.ObjectOnly {
		return
	}
	var calls []hook.Request
	caller := r.Hooks
	at := strconv.FormatInt(r.Clock.Now().UnixMilli(), 10)
	addCall := func(h canary.Hook) {
		timeout, retries, _, err := hookLimits(h.CanaryWebhook)
		if err != nil {
			timeout = hookTimeout
		}
		body, err := hook.EventPayload(hook.Payload{
			Name: c.Name, Namespace: c.Namespace, Phase: event.Phase,
			Checksum: hook.Checksum(c.Status.TrackedConfigs, c.Status.LastAppliedSpec), Metadata: h.Metadata,
		}, event.Message, string(event.Type), at)
		if err == nil {
			calls = append(calls, hook.Request{
				URL: h.URL, Body: body, Timeout: timeout, Retries: retries, DisableTLS: h.DisableTLS,
				Key: canary.EventKey(string(c.UID), c.Status, h, event),
			})
		}
	}
	for _, h := range plan.Hooks {
		if h.Type == flaggerv1.EventHook {
			addCall(h)
		}
	}
	if len(calls) == 0 && r.EventHook != "" {
		caller = r.EventHooks
		addCall(canary.Hook{CanaryWebhook: flaggerv1.CanaryWebhook{Type: flaggerv1.EventHook, URL: r.EventHook}})
	}
	for _, request := range calls {
		r.Outbox.Post(key, "event hook "+outbound.Redact(request.URL), func(ctx context.Context) error {
			if outcome, text := caller.Send(ctx, request); outcome != release.Yes {
				return fmt.Errorf("event hook refused: %s", text)
			}
			return nil
		})
	}
}

// analysisOf returns the analysis of a Canary; empty if there is none.
func analysisOf(c *flaggerv1.Canary) flaggerv1.CanaryAnalysis {
	if analysis := c.Spec.EffectiveAnalysis(); analysis != nil {
		return *analysis
	}
	return flaggerv1.CanaryAnalysis{}
}

// queueAlerts queues one message per alert provider that wants its severity.
func (r *Reporter) queueAlerts(ctx context.Context, c *flaggerv1.Canary, plan canary.Plan, alert release.Alert) {
	message := alerting.Message{Canary: c.Name + "." + c.Namespace, Text: alert.Message, Severity: alert.Severity, Fields: r.alertFields(c, plan, alert), At: r.Clock.Now()}
	entries := analysisOf(c).Alerts
	if len(entries) == 0 {
		if r.AlertSender != nil {
			r.postAlert(ctx, queuedAlert{
				about: reference(c), receiver: "the chat of the controller",
				remedy: "The administrator of Serin must correct its flags for Slack or Microsoft Teams",
			}, func(ctx context.Context) error { return r.markTransient(r.AlertSender.Send(ctx, message)) })
		}
		return
	}
	for _, entry := range entries {
		if !alerting.Wants(string(entry.Severity), alert.Severity) {
			continue
		}
		provider := referenceKey(c.Namespace, entry.ProviderRef)
		if r.NoCrossNamespace && provider.Namespace != c.Namespace {
			log.FromContext(ctx).Info("Refused alert provider of another namespace", "object", provider.String())
			continue
		}
		r.postAlert(ctx, queuedAlert{
			about: reference(c), entry: entry.Name, receiver: fmt.Sprintf("%q of spec.analysis.alerts", entry.Name),
			remedy: fmt.Sprintf("Correct the AlertProvider or its Secret, and test it with: serin notify test alertprovider/%s -n %s", provider.Name, provider.Namespace),
		}, func(ctx context.Context) error {
			sender, err := ReadAlertSender(ctx, AlertReaders{Providers: r.Client, Secrets: r.APIReader}, provider, r.NewAlertSender)
			if err != nil {
				return err
			}
			if err := sender.Send(ctx, message); err != nil {
				return r.markTransient(fmt.Errorf("alert provider %s.%s send error: %w", provider.Name, provider.Namespace, err))
			}
			return nil
		})
	}
}

// markTransient marks an error as transient if sending the message again may succeed.
func (r *Reporter) markTransient(err error) error {
	if wait, ok := chat.RetryAfter(err, r.Clock.Now()); ok {
		return telemetry.TransientFor(err, wait)
	}
	return err
}

// AlertReaders read AlertProviders and their Secrets.
type AlertReaders struct{ Providers, Secrets client.Reader }

// ReadAlertSender reads an alert provider and its Secret, which is in the namespace of the provider, and returns its sender.
func ReadAlertSender(
	ctx context.Context, r AlertReaders, key types.NamespacedName, newSender func(providerType string, options alerting.Options) (alerting.Sender, error),
) (alerting.Sender, error) {
	provider := &flaggerv1.AlertProvider{}
	if err := r.Providers.Get(ctx, key, provider); err != nil {
		return nil, fmt.Errorf("alert provider %s.%s error: %w", key.Name, key.Namespace, err)
	}
	options := alerting.Options{
		URL: provider.Spec.Address, Username: provider.Spec.Username, Channel: provider.Spec.Channel, Proxy: provider.Spec.Proxy,
		Namespace: key.Namespace, Recipient: provider.Spec.Channel,
	}
	if ref := provider.Spec.SecretRef; ref != nil {
		secret := &corev1.Secret{}
		if err := r.Secrets.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: ref.Name}, secret); err != nil {
			return nil, fmt.Errorf("alert provider %s.%s secretRef error: %w", key.Name, key.Namespace, err)
		}
		address, ok := secret.Data["address"]
		if !ok && alerting.RequiresAddress(provider.Spec.Type) {
			return nil, fmt.Errorf("alert provider %s.%s secret does not contain an address", key.Name, key.Namespace)
		}
		if ok {
			options.URL, options.Token = string(address), string(secret.Data["token"])
		}
		options.Secret = secret.Data
	}
	sender, err := newSender(provider.Spec.Type, options)
	if err != nil {
		return nil, fmt.Errorf("alert provider %s.%s error: %w", key.Name, key.Namespace, err)
	}
	return sender, nil
}

// alertFields are the fields below the text of an alert. They include the severity, because not every reader or chat service
// shows colours.
func (r *Reporter) alertFields(c *flaggerv1.Canary, plan canary.Plan, alert release.Alert) []alerting.Field {
	var fields []alerting.Field
	if r.Cluster != "" {
		fields = append(fields, alerting.Field{Name: "Cluster", Value: r.Cluster})
	}
	if alert.Metadata {
		fields = append(fields, planFields(c, plan)...)
	}
	if alert.Cause != "" {
		fields = append(fields, alerting.Field{Name: "Cause", Value: alert.Cause})
	}
	return append(fields, alerting.Field{Name: "Severity", Value: string(alert.Severity)})
}

// planFields describe the plan.
func planFields(c *flaggerv1.Canary, plan canary.Plan) []alerting.Field {
	analysis := analysisOf(c)
	fields := []alerting.Field{
		{Name: "Target", Value: fmt.Sprintf("%s/%s.%s", plan.Kind, plan.Target, plan.Namespace)},
		{Name: "Failed checks threshold", Value: strconv.Itoa(plan.Threshold)},
		{Name: "Progress deadline", Value: fmt.Sprintf("%ds", int(plan.Deadline.Seconds()))},
	}
	routing := ""
	switch {
	case len(analysis.Match) > 0 && analysis.Iterations > 0:
		routing = "A/B Testing"
	case analysis.Iterations > 0:
		routing = "Blue/Green"
	case analysis.StepWeight > 0:
		routing = fmt.Sprintf("Weight step: %d max: %d", analysis.StepWeight, analysis.MaxWeight)
	case len(analysis.StepWeights) > 0:
		routing = fmt.Sprintf("Weight steps: %s max: %d", strings.Trim(strings.ReplaceAll(fmt.Sprint(analysis.StepWeights), " ", ","), "[]"), analysis.MaxWeight)
	}
	if routing != "" {
		fields = append(fields, alerting.Field{Name: "Traffic routing", Value: routing})
	}
	return fields
}
