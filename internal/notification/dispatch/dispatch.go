// Package dispatch sends the notifications about Rollouts, AnalysisRuns and Experiments that package notification decides.
//
// It reads the configuration and writes the log of sent messages. The reconcile workers only record the state of an object;
// configurations are parsed, triggers evaluated and templates executed by the outbox, without a lock, a few at a time, and
// with fair shares for namespaces. It must not know which messages are due, or how services are called.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// ReasonFailed is the reason of the event that reports that a message could not be sent.
const ReasonFailed = "NotificationFailed"

// maxEvaluations bounds the concurrent evaluations. Each may need some ten MiB.
const maxEvaluations = 4

// errBusy is returned when an evaluation received no slot. It is retried.
var errBusy = errors.New("other evaluations of the namespace take too long")

// Parts are the dependencies of a Dispatcher.
type Parts struct {
	// Client reads the ConfigMaps and Secrets from caches, and writes the annotation of Rollouts, AnalysisRuns and Experiments.
	Client client.Client
	Clock  clock.PassiveClock
	// Outbox is for notifications only: a service that does not answer must not delay Kubernetes events.
	Outbox  *telemetry.Outbox
	Metrics *telemetry.Metrics
	// Services is the client that calls services, under Policy.
	Services *outbound.Client
	Policy   outbound.Policy
	// Namespace is the controller's namespace, with the configuration for all Rollouts. With SelfService, the namespace of a
	// Rollout may have a configuration too.
	Namespace   string
	SelfService bool
	// RecordEvent records an event about an object.
	RecordEvent func(ctx context.Context, object client.Object, event release.Event)
	// ReportHealth shows a message to the administrator of Serin; an empty one clears it. It may be nil.
	ReportHealth func(part, sentence string)
}

// Dispatcher queues and sends messages. It is safe for concurrent use.
type Dispatcher struct {
	Parts

	// evaluations bounds the concurrent evaluations of configurations, triggers and templates, and so their memory.
	evaluations *fairshare.Semaphore

	mu      sync.Mutex
	configs map[string]*parsedConfig // by namespace
	// ledgers are the ledgers by name and UID: an object that was deleted and created again has two while messages about the
	// former are queued.
	ledgers map[objectKey]map[types.UID]*ledger
}

// New returns a Dispatcher.
func New(parts Parts) *Dispatcher {
	return &Dispatcher{Parts: parts, evaluations: fairshare.NewSemaphore(maxEvaluations), configs: map[string]*parsedConfig{}, ledgers: map[objectKey]map[types.UID]*ledger{}}
}

// NotifyEvent queues the notifications of an event.
func (d *Dispatcher) NotifyEvent(ctx context.Context, about About, event release.Event) {
	if event.Reason == "" || event.Reason == ReasonFailed || event.AlertOnly {
		return
	}
	d.queueEvaluation(ctx, about, event)
}

// NotifyChange queues the notifications of a changed object.
func (d *Dispatcher) NotifyChange(ctx context.Context, about About) {
	d.queueEvaluation(ctx, about, release.Event{})
}

// Notify queues the notifications of events and of the change that they are part of.
func (d *Dispatcher) Notify(ctx context.Context, about About, events []release.Event) {
	for _, event := range events {
		d.NotifyEvent(ctx, about, event)
	}
	d.NotifyChange(ctx, about)
}

// Forget drops the state of a deleted object. Queued messages are still sent.
func (d *Dispatcher) Forget(kind string, name types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := objectKey{kind: kind, NamespacedName: name}
	for uid := range d.ledgers[key] {
		d.deleteLedger(key, uid)
	}
}

// queueEvaluation queues the evaluation of the triggers. It is called by reconcile workers, so it evaluates no
// expressions of users.
func (d *Dispatcher) queueEvaluation(ctx context.Context, about About, event release.Event) {
	subject := about.subject()
	var sources []source
	for _, namespace := range d.namespaces(about.Object.GetNamespace()) {
		from, err := d.readSource(ctx, namespace)
		switch {
		case err != nil:
			log.FromContext(ctx).V(1).Info("Could not read the configuration of notifications", "namespace", namespace, "err", err.Error())
		case from == nil:
		case from.known == nil || notification.InvalidAnnotation(subject) != "":
			sources = append(sources, *from)
		default:
			if to, problem := from.known.Destinations(subject); problem != "" || from.known.MayFire(event, to) {
				sources = append(sources, *from)
			}
		}
	}
	if len(sources) == 0 {
		return
	}
	s, err := newSituation(ctx, about, event, d.Clock.Now())
	if err != nil {
		log.FromContext(ctx).Info("Could not evaluate notifications", "err", err.Error())
		return
	}
	about = about.copy() // the worker continues to use the original
	for _, from := range sources {
		d.enqueue(about, "look", "notifications that are due", func(ctx context.Context) error {
			return d.evaluate(ctx, about, event, subject, s, from)
		}, nil)
	}
}

// namespaces returns the namespaces whose configurations apply to Rollouts of a namespace.
func (d *Dispatcher) namespaces(rolloutNamespace string) []string {
	if d.SelfService && rolloutNamespace != d.Namespace {
		return []string{d.Namespace, rolloutNamespace}
	}
	return []string{d.Namespace}
}

// evaluate evaluates the triggers of a configuration, and queues the messages that are due.
func (d *Dispatcher) evaluate(ctx context.Context, about About, event release.Event, subject notification.Subject, s notification.Situation, from source) error {
	done, err := d.evaluations.Acquire(ctx, about.Object.GetNamespace())
	if err != nil {
		return telemetry.Transient(fmt.Errorf("%w: %w", errBusy, err))
	}
	defer done()
	config := d.parseSource(from)
	to, problem := config.Destinations(subject)
	for _, text := range []string{problem, notification.InvalidAnnotation(subject)} {
		if text != "" {
			d.reportProblem(ctx, about, config, text)
		}
	}
	if !config.MayFire(event, to) {
		return nil
	}
	vars := config.Vars(s)
	annotated := notification.ParseSentLog(about.Object.GetAnnotations()[notification.NotifiedAnnotation])
	known := d.knownMessages(about, annotated)
	outcome := config.Evaluate(ctx, event, to, vars, known)
	for _, problem := range outcome.Problems {
		d.reportProblem(ctx, about, config, fmt.Sprintf("ConfigMap %s in %s, %s", notification.ConfigMapName, config.namespace, problem))
	}
	for _, problem := range outcome.EvaluationErrors {
		log.FromContext(ctx).V(1).Info("Could not evaluate a condition of a notification", "namespace", config.namespace, "condition", problem.String())
	}
	if d.recordOutcome(about, known, outcome) {
		d.writeSentLog(about)
	}
	for _, message := range outcome.Due {
		d.queueMessage(ctx, about, event, config, vars, message)
	}
	return nil
}

// knownMessages returns the messages that need not be sent. All evaluations of one Rollout are in the same queue of the
// outbox, so that only sent messages change this between knownMessages and recordOutcome.
func (d *Dispatcher) knownMessages(about About, annotated notification.SentLog) notification.SentLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledger(about.key(), about.Object.GetUID())
	l.observe(annotated)
	return l.knownMessages()
}

// recordOutcome records the outcome of an evaluation. It returns whether the annotation must change because a reported condition
// is no longer true.
func (d *Dispatcher) recordOutcome(about About, known notification.SentLog, outcome notification.Outcome) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledger(about.key(), about.Object.GetUID())
	for key := range known {
		if !outcome.SentLog.Has(key) {
			changed = l.recordCleared(key) || changed
		}
	}
	for _, message := range outcome.Due {
		l.recordQueued(message.Key, d.Clock.Now())
	}
	return changed
}

// enqueue posts work about a Rollout to a queue of the outbox. The ledger of the Rollout exists until all its work is done.
func (d *Dispatcher) enqueue(about About, queueName, name string, do func(context.Context) error, then func(error)) {
	key, uid := about.key(), about.Object.GetUID()
	d.mu.Lock()
	d.ledger(key, uid).pending++
	d.mu.Unlock()
	d.Outbox.PostWithCallback(types.NamespacedName{Namespace: key.Namespace, Name: key.kind + "/" + key.Name + "/" + queueName}, name, do, func(err error) {
		if then != nil {
			then(err)
		}
		d.recordDone(key, uid)
	})
}

// recordDone records that work about a Rollout is done. After the last work of a deleted Rollout, it deletes the ledger.
func (d *Dispatcher) recordDone(key objectKey, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledgers[key][uid]
	if l == nil {
		return
	}
	if l.pending--; !l.deleted {
		return
	}
	if d.deleteLedger(key, uid); len(d.ledgers[key]) == 0 && key.isRollout() {
		d.Metrics.ForgetNotifications(key.NamespacedName)
	}
}

// Keys returns the objects of a kind that have a ledger.
func (d *Dispatcher) Keys(kind string) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []types.NamespacedName
	for key := range d.ledgers {
		if key.kind == kind {
			all = append(all, key.NamespacedName)
		}
	}
	return all
}

// isDeleted reports whether an object was forgotten: state that is recorded after that would never be deleted.
func (d *Dispatcher) isDeleted(about About) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledgers[about.key()][about.Object.GetUID()]
	return l == nil || l.deleted
}

// queueMessage queues one message. Messages about one object to one service are sent in order; a service that does not answer
// does not delay others.
func (d *Dispatcher) queueMessage(ctx context.Context, about About, event release.Event, config *parsedConfig, vars map[string]any, message notification.Message) {
	key := about.key()
	kind, reason := string(event.Type), event.Reason
	if reason == "" {
		kind, reason = string(release.Normal), message.Trigger
	}
	send := func(ctx context.Context) error {
		began := d.Clock.Now()
		defer func() {
			if key.isRollout() {
				d.Metrics.RecordNotificationAttempt(key.NamespacedName, d.Clock.Since(began))
			}
		}()
		if err := d.send(ctx, about, config, vars, message); err != nil {
			return err
		}
		if message.Key != "" && d.recordSent(key, about.Object.GetUID(), message.Key) {
			d.writeSentLog(about)
		}
		return nil
	}
	detached := context.WithoutCancel(ctx)
	d.enqueue(about, message.To.Service, fmt.Sprintf("notification %s to %s", message.Trigger, message.To), send, func(err error) {
		if key.isRollout() { // the others are many, and exist for hours: a series for each would be too many
			d.Metrics.RecordNotification(key.NamespacedName, kind, reason, err)
		}
		if err != nil {
			d.recordFailure(detached, about, fmt.Sprintf("The message of trigger %s to %s was not sent: %s", message.Trigger, message.To, err))
		}
	})
}

// recordFailure records a failure as an event of the object, if it still exists.
func (d *Dispatcher) recordFailure(ctx context.Context, about About, text string) {
	if d.isDeleted(about) {
		log.FromContext(ctx).Info("A notification about a deleted object failed", "kind", about.key().kind, "namespace", about.Object.GetNamespace(), "name", about.Object.GetName(), "err", text)
		return
	}
	d.RecordEvent(ctx, about.Object, release.Event{Type: release.Warning, Reason: ReasonFailed, Message: text})
}

// send makes one attempt. Its errors contain no secret values.
func (d *Dispatcher) send(ctx context.Context, about About, config *parsedConfig, vars map[string]any, message notification.Message) error {
	err := d.sendOnce(ctx, about, config, vars, message)
	if err == nil {
		return nil
	}
	shown := errors.New(config.Redact(err))
	if wait, again := chat.RetryAfter(err, d.Clock.Now()); again || errors.Is(err, errBusy) {
		return telemetry.TransientFor(shown, wait)
	}
	return shown
}

func (d *Dispatcher) sendOnce(ctx context.Context, about About, config *parsedConfig, vars map[string]any, message notification.Message) error {
	sender, err := config.sender(d, message.To.Service)
	if err != nil {
		return err
	}
	vars = maps.Clone(vars)
	vars["recipient"], vars["serviceType"] = message.To.Recipient, message.To.Service
	content, err := d.render(ctx, about, config, message, vars)
	if err != nil {
		return err
	}
	return sender.Send(ctx, service.Message{Content: content, Service: message.To.Service, Recipient: message.To.Recipient, Now: d.Clock.Now()})
}

// render executes the templates of a message, within the share of its namespace.
func (d *Dispatcher) render(ctx context.Context, about About, config *parsedConfig, message notification.Message, vars map[string]any) (notification.Content, error) {
	done, err := d.evaluations.Acquire(ctx, about.Object.GetNamespace())
	if err != nil {
		return notification.Content{}, fmt.Errorf("%w: %w", errBusy, err)
	}
	defer done()
	return config.Render(ctx, message.Templates, vars)
}

// reportProblem records an event about an error in a configuration, once per version of the configuration.
func (d *Dispatcher) reportProblem(ctx context.Context, about About, config *parsedConfig, text string) {
	d.mu.Lock()
	isNew := d.ledger(about.key(), about.Object.GetUID()).isNewProblem(config.namespace+config.version, text)
	d.mu.Unlock()
	if isNew {
		d.recordFailure(ctx, about, "Notifications: "+text)
	}
}

// maxProblems bounds the number of keys in a health message.
const maxProblems = 3

// reportHealth reports the invalid keys of the controller's configuration.
func (d *Dispatcher) reportHealth(problems []notification.Problem) {
	if d.ReportHealth == nil {
		return
	}
	if len(problems) == 0 {
		d.ReportHealth("notifications", "")
		return
	}
	var texts []string
	for _, problem := range problems[:min(len(problems), maxProblems)] {
		texts = append(texts, problem.String())
	}
	d.ReportHealth("notifications", fmt.Sprintf("%d keys of ConfigMap %s in %s cannot be used: %s",
		len(problems), notification.ConfigMapName, d.Namespace, strings.Join(texts, "; ")))
}
