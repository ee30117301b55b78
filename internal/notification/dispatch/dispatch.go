// Package dispatch sends the notifications about Rollouts that package notification decides.
//
// It reads the configuration, writes the log of sent messages, and works beside the reconcile workers, which only record the
// state of a Rollout. It reads configurations, evaluates triggers and executes templates when messages are sent, under no
// lock, few at a time, and in turn among namespaces. It must not know which messages are due, or how services are called.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// ReasonFailed is that of the event which says that a message cannot be sent.
const ReasonFailed = "NotificationFailed"

// maxEvaluations is how many evaluations run at once. Each may need some ten MiB.
const maxEvaluations = 4

// errBusy is the error of what had no turn to be evaluated. It is tried again.
var errBusy = errors.New("other evaluations of the namespace take too long")

// Parts are the dependencies of a Dispatcher.
type Parts struct {
	// Client reads ConfigMaps and Secrets of those names from caches, and writes Rollouts.
	Client client.Client
	Clock  clock.PassiveClock
	// Outbox is for notifications alone: a service that does not answer must not hold up Kubernetes events.
	Outbox  *telemetry.Outbox
	Metrics *telemetry.Metrics
	// Services is called under Policy.
	Services *outbound.Client
	Policy   outbound.Policy
	// Namespace of the controller, which has the configuration for all. SelfService: that of the Rollout may have one too.
	Namespace   string
	SelfService bool
	// Tell tells people something about a Rollout.
	Tell func(ctx context.Context, object *argov1.Rollout, event release.Event)
	// Health shows a sentence to whoever runs Serin; an empty one takes it away. nil: nobody.
	Health func(part, sentence string)
}

// Dispatcher queues and sends messages. It may be used by several goroutines.
type Dispatcher struct {
	Parts

	// evaluations bounds how many configurations, triggers and templates are processed at once, and so their memory.
	evaluations *fairshare.Semaphore

	mu      sync.Mutex
	configs map[string]*configured // by namespace
	// ledgers by Rollout. One that was deleted and created again has two while messages about the former are queued.
	ledgers map[types.NamespacedName]map[types.UID]*ledger
}

// New returns a Dispatcher that has sent nothing yet.
func New(parts Parts) *Dispatcher {
	return &Dispatcher{Parts: parts, evaluations: fairshare.NewSemaphore(maxEvaluations), configs: map[string]*configured{}, ledgers: map[types.NamespacedName]map[types.UID]*ledger{}}
}

// About is the Rollout that there is something to tell of.
type About struct {
	// Object as it was stored last.
	Object *argov1.Rollout
	// Spec of it, with the template of the workload that it refers to; nil: that of the object.
	Spec *argov1.RolloutSpec
	// Runs lists its AnalysisRuns; nil: it has none.
	Runs func(ctx context.Context) ([]argov1.AnalysisRun, error)
}

func (a About) key() types.NamespacedName { return client.ObjectKeyFromObject(a.Object) }

// Happened has people told of an event.
func (d *Dispatcher) Happened(ctx context.Context, about About, event release.Event) {
	if event.Reason == "" || event.Reason == ReasonFailed || event.AlertOnly {
		return
	}
	d.look(ctx, about, event)
}

// Changed has people told of what a Rollout is now.
func (d *Dispatcher) Changed(ctx context.Context, about About) { d.look(ctx, about, release.Event{}) }

// Forget drops what is remembered of a Rollout that is gone. Messages that are queued still leave.
func (d *Dispatcher) Forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid := range d.ledgers[key] {
		d.end(key, uid)
	}
}

// look queues the question what is due. It runs in a reconcile worker, so that it evaluates nothing that users wrote.
func (d *Dispatcher) look(ctx context.Context, about About, event release.Event) {
	subject := notification.Subject{Labels: about.Object.Labels, Annotations: about.Object.Annotations}
	var asked []source
	for _, namespace := range d.namespaces(about.Object.Namespace) {
		from, err := d.source(ctx, namespace)
		switch {
		case err != nil:
			log.FromContext(ctx).V(1).Info("Could not read the configuration of notifications", "namespace", namespace, "why", err.Error())
		case from == nil:
		case from.known == nil || notification.Unreadable(subject) != "" || from.known.Fires(event, from.known.Destinations(subject)):
			asked = append(asked, *from)
		}
	}
	if len(asked) == 0 {
		return
	}
	s, err := situation(ctx, about, event, d.Clock.Now())
	if err != nil {
		log.FromContext(ctx).Info("Could not look for notifications", "why", err.Error())
		return
	}
	about = About{Object: about.Object.DeepCopy()} // the worker goes on with the other
	for _, from := range asked {
		d.enqueue(about, "look", "notifications that are due", func(ctx context.Context) error {
			return d.evaluate(ctx, about, event, subject, s, from)
		}, nil)
	}
}

// namespaces are those whose configuration counts for Rollouts of a namespace.
func (d *Dispatcher) namespaces(of string) []string {
	if d.SelfService && of != d.Namespace {
		return []string{d.Namespace, of}
	}
	return []string{d.Namespace}
}

// evaluate finds what is due by a configuration, and queues it.
func (d *Dispatcher) evaluate(ctx context.Context, about About, event release.Event, subject notification.Subject, s notification.Situation, from source) error {
	done, err := d.evaluations.Acquire(ctx, about.Object.Namespace)
	if err != nil {
		return telemetry.Transient(fmt.Errorf("%w: %w", errBusy, err))
	}
	defer done()
	config := d.config(from)
	to := config.Destinations(subject)
	if text := notification.Unreadable(subject); text != "" {
		d.complain(ctx, about, config, text)
	}
	if !config.Fires(event, to) {
		return nil
	}
	vars := config.Vars(s)
	annotated := notification.ParseSentLog(about.Object.Annotations[notification.NotifiedAnnotation])
	known := d.known(about, annotated)
	outcome := config.Due(ctx, event, to, vars, known)
	for _, problem := range outcome.Problems {
		d.complain(ctx, about, config, fmt.Sprintf("ConfigMap %s in %s, %s", notification.ConfigMapName, config.namespace, problem))
	}
	for _, problem := range outcome.Unasked {
		log.FromContext(ctx).V(1).Info("A condition of a notification could not be asked", "namespace", config.namespace, "condition", problem.String())
	}
	if d.begin(about, known, outcome) {
		d.writeSentLog(about)
	}
	for _, message := range outcome.Due {
		d.post(ctx, about, event, config, vars, message)
	}
	return nil
}

// known returns what need not be sent. What one Rollout needs is evaluated in one line of the outbox, so that nothing else
// changes this between known and begin but messages that were sent.
func (d *Dispatcher) known(about About, annotated notification.SentLog) notification.SentLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledger(about.key(), about.Object.UID)
	l.see(annotated)
	return l.known()
}

// begin records what follows from an evaluation, and returns whether the annotation has to change: a condition that was
// reported does not hold any more.
func (d *Dispatcher) begin(about About, known notification.SentLog, outcome notification.Outcome) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledger(about.key(), about.Object.UID)
	for key := range known {
		if !outcome.SentLog.Has(key) {
			changed = l.end(key) || changed
		}
	}
	for _, message := range outcome.Due {
		l.begin(message.Key)
	}
	return changed
}

// enqueue posts work about a Rollout to a line of the outbox. What is known of the Rollout is kept until all of it is done.
func (d *Dispatcher) enqueue(about About, line, name string, do func(context.Context) error, then func(error)) {
	key, uid := about.key(), about.Object.UID
	d.mu.Lock()
	d.ledger(key, uid).pending++
	d.mu.Unlock()
	d.Outbox.PostWithCallback(types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "/" + line}, name, do, func(err error) {
		if then != nil {
			then(err)
		}
		d.settle(key, uid)
	})
}

// settle records that work about a Rollout is done. With the last of a Rollout that is gone, what is known of it ends.
func (d *Dispatcher) settle(key types.NamespacedName, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledgers[key][uid]
	if l == nil {
		return
	}
	if l.pending--; !l.gone {
		return
	}
	if d.end(key, uid); len(d.ledgers[key]) == 0 {
		d.Metrics.ForgetNotifications(key)
	}
}

// Keys are the Rollouts of which something is known.
func (d *Dispatcher) Keys() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.ledgers))
}

// gone reports whether a Rollout was forgotten: nothing about it may be recorded that nobody forgets again.
func (d *Dispatcher) gone(about About) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledgers[about.key()][about.Object.UID]
	return l == nil || l.gone
}

// post queues one message. Those for one service about one Rollout leave in their order; a service that does not answer
// delays no other.
func (d *Dispatcher) post(ctx context.Context, about About, event release.Event, config *configured, vars map[string]any, message notification.Message) {
	key := about.key()
	kind, reason := string(event.Type), event.Reason
	if reason == "" {
		kind, reason = string(release.Normal), message.Trigger
	}
	send := func(ctx context.Context) error {
		began := d.Clock.Now()
		defer func() { d.Metrics.RecordNotificationAttempt(key, d.Clock.Since(began)) }()
		if err := d.send(ctx, about, config, vars, message); err != nil {
			return err
		}
		if message.Key != "" && d.told(key, about.Object.UID, message.Key) {
			d.writeSentLog(about)
		}
		return nil
	}
	detached := context.WithoutCancel(ctx)
	d.enqueue(about, message.To.Service, fmt.Sprintf("notification %s to %s", message.Trigger, message.To), send, func(err error) {
		d.Metrics.RecordNotification(key, kind, reason, err)
		if err != nil {
			d.tell(detached, about, fmt.Sprintf("The message of trigger %s to %s was not sent: %s", message.Trigger, message.To, err))
		}
	})
}

// tell records a failure as an event of the Rollout, as long as it exists.
func (d *Dispatcher) tell(ctx context.Context, about About, text string) {
	if d.gone(about) {
		log.FromContext(ctx).Info("A notification failed about a Rollout that was deleted", "namespace", about.Object.Namespace, "name", about.Object.Name, "why", text)
		return
	}
	d.Tell(ctx, about.Object, release.Event{Type: release.Warning, Reason: ReasonFailed, Message: text})
}

// send makes one attempt. Its errors show no secret.
func (d *Dispatcher) send(ctx context.Context, about About, config *configured, vars map[string]any, message notification.Message) error {
	err := d.attempt(ctx, about, config, vars, message)
	if err == nil {
		return nil
	}
	shown := errors.New(config.Hide(err))
	if wait, again := chat.RetryAfter(err, d.Clock.Now()); again || errors.Is(err, errBusy) {
		return telemetry.TransientFor(shown, wait)
	}
	return shown
}

func (d *Dispatcher) attempt(ctx context.Context, about About, config *configured, vars map[string]any, message notification.Message) error {
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

// render executes the templates of a message, in turn with those of other namespaces.
func (d *Dispatcher) render(ctx context.Context, about About, config *configured, message notification.Message, vars map[string]any) (notification.Content, error) {
	done, err := d.evaluations.Acquire(ctx, about.Object.Namespace)
	if err != nil {
		return notification.Content{}, fmt.Errorf("%w: %w", errBusy, err)
	}
	defer done()
	return config.Render(ctx, message.Templates, vars)
}

// complain tells people once what they have to mend in a configuration, until it changes.
func (d *Dispatcher) complain(ctx context.Context, about About, config *configured, text string) {
	d.mu.Lock()
	news := d.ledger(about.key(), about.Object.UID).news(config.namespace+config.version, text)
	d.mu.Unlock()
	if news {
		d.tell(ctx, about, "Notifications: "+text)
	}
}

// maxProblems bounds how many keys a sentence about the health names.
const maxProblems = 3

// health says which keys of the configuration for all cannot be read.
func (d *Dispatcher) health(problems []notification.Problem) {
	if d.Health == nil {
		return
	}
	if len(problems) == 0 {
		d.Health("notifications", "")
		return
	}
	var texts []string
	for _, problem := range problems[:min(len(problems), maxProblems)] {
		texts = append(texts, problem.String())
	}
	d.Health("notifications", fmt.Sprintf("%d keys of ConfigMap %s in %s cannot be used: %s",
		len(problems), notification.ConfigMapName, d.Namespace, strings.Join(texts, "; ")))
}
