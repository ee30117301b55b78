// Package courier has notifications about Rollouts sent: it is the shell of package notification.
//
// It reads the configuration, keeps the book of what was sent, and works beside the reconcile workers: they only record the
// state of a Rollout. Configurations are read, triggers evaluated and templates executed while messages leave, under no lock,
// few at a time, and in turn among namespaces. It must not know which messages are due, or what services look like.
package courier

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
	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/notify"
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

// Parts are what a courier works with.
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

// Courier is what has messages sent. It may be used by several goroutines.
type Courier struct {
	Parts

	// evaluations bounds how many configurations, triggers and templates are processed at once, and so their memory.
	evaluations *fairshare.Semaphore

	mu      sync.Mutex
	configs map[string]*configured // by namespace
	// ledgers by Rollout. One that was deleted and created again has two while messages about the former are queued.
	ledgers map[types.NamespacedName]map[types.UID]*ledger
}

// New makes a courier that has not told anything yet.
func New(parts Parts) *Courier {
	return &Courier{Parts: parts, evaluations: fairshare.NewSemaphore(maxEvaluations), configs: map[string]*configured{}, ledgers: map[types.NamespacedName]map[types.UID]*ledger{}}
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
func (c *Courier) Happened(ctx context.Context, about About, event release.Event) {
	if event.Reason == "" || event.Reason == ReasonFailed || event.Silent {
		return
	}
	c.look(ctx, about, event)
}

// Changed has people told of what a Rollout is now.
func (c *Courier) Changed(ctx context.Context, about About) { c.look(ctx, about, release.Event{}) }

// Forget drops what is remembered of a Rollout that is gone. Messages that are queued still leave.
func (c *Courier) Forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.ledgers[key] {
		c.end(key, uid)
	}
}

// look queues the question what is due. It runs in a reconcile worker, so that it evaluates nothing that users wrote.
func (c *Courier) look(ctx context.Context, about About, event release.Event) {
	subject := notification.Subject{Labels: about.Object.Labels, Annotations: about.Object.Annotations}
	var asked []source
	for _, namespace := range c.namespaces(about.Object.Namespace) {
		from, err := c.source(ctx, namespace)
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
	s, err := situation(ctx, about, event, c.Clock.Now())
	if err != nil {
		log.FromContext(ctx).Info("Could not look for notifications", "why", err.Error())
		return
	}
	about = About{Object: about.Object.DeepCopy()} // the worker goes on with the other
	for _, from := range asked {
		c.enqueue(about, "look", "notifications that are due", func(ctx context.Context) error {
			return c.evaluate(ctx, about, event, subject, s, from)
		}, nil)
	}
}

// namespaces are those whose configuration counts for Rollouts of a namespace.
func (c *Courier) namespaces(of string) []string {
	if c.SelfService && of != c.Namespace {
		return []string{c.Namespace, of}
	}
	return []string{c.Namespace}
}

// evaluate finds what is due by a configuration, and queues it.
func (c *Courier) evaluate(ctx context.Context, about About, event release.Event, subject notification.Subject, s notification.Situation, from source) error {
	done, err := c.evaluations.Acquire(ctx, about.Object.Namespace)
	if err != nil {
		return telemetry.Transient(fmt.Errorf("%w: %w", errBusy, err))
	}
	defer done()
	config := c.config(from)
	to := config.Destinations(subject)
	if text := notification.Unreadable(subject); text != "" {
		c.complain(ctx, about, config, text)
	}
	if !config.Fires(event, to) {
		return nil
	}
	vars := config.Vars(s)
	annotated := notification.ReadBook(about.Object.Annotations[notification.NotifiedAnnotation])
	known := c.known(about, annotated)
	outcome := config.Due(ctx, event, to, vars, known)
	for _, problem := range outcome.Problems {
		c.complain(ctx, about, config, fmt.Sprintf("ConfigMap %s in %s, %s", notification.ConfigMapName, config.namespace, problem))
	}
	for _, problem := range outcome.Unasked {
		log.FromContext(ctx).V(1).Info("A condition of a notification could not be asked", "namespace", config.namespace, "condition", problem.String())
	}
	if c.begin(about, known, outcome) {
		c.keepBook(about)
	}
	for _, message := range outcome.Due {
		c.post(ctx, about, event, config, vars, message)
	}
	return nil
}

// known returns what need not be sent. What one Rollout needs is evaluated in one line of the outbox, so that nothing else
// changes this between known and begin but messages that were sent.
func (c *Courier) known(about About, annotated notification.Book) notification.Book {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(about.key(), about.Object.UID)
	l.see(annotated)
	return l.known()
}

// begin records what follows from an evaluation, and returns whether the annotation has to change: a condition that was
// reported does not hold any more.
func (c *Courier) begin(about About, known notification.Book, outcome notification.Outcome) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(about.key(), about.Object.UID)
	for key := range known {
		if !outcome.Book.Has(key) {
			changed = l.end(key) || changed
		}
	}
	for _, message := range outcome.Due {
		l.begin(message.Key)
	}
	return changed
}

// enqueue posts work about a Rollout to a line of the outbox. What is known of the Rollout is kept until all of it is done.
func (c *Courier) enqueue(about About, line, name string, do func(context.Context) error, then func(error)) {
	key, uid := about.key(), about.Object.UID
	c.mu.Lock()
	c.ledger(key, uid).pending++
	c.mu.Unlock()
	c.Outbox.PostThen(types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "/" + line}, name, do, func(err error) {
		if then != nil {
			then(err)
		}
		c.settle(key, uid)
	})
}

// settle records that work about a Rollout is done. With the last of a Rollout that is gone, what is known of it ends.
func (c *Courier) settle(key types.NamespacedName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledgers[key][uid]
	if l == nil {
		return
	}
	if l.pending--; !l.gone {
		return
	}
	if c.end(key, uid); len(c.ledgers[key]) == 0 {
		c.Metrics.ForgetNotifications(key)
	}
}

// Keys are the Rollouts of which something is known.
func (c *Courier) Keys() []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.ledgers))
}

// gone reports whether a Rollout was forgotten: nothing about it may be recorded that nobody forgets again.
func (c *Courier) gone(about About) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledgers[about.key()][about.Object.UID]
	return l == nil || l.gone
}

// post queues one message. Those for one service about one Rollout leave in their order; a service that does not answer
// delays no other.
func (c *Courier) post(ctx context.Context, about About, event release.Event, config *configured, vars map[string]any, message notification.Message) {
	key := about.key()
	kind, reason := string(event.Type), event.Reason
	if reason == "" {
		kind, reason = string(release.Normal), message.Trigger
	}
	send := func(ctx context.Context) error {
		began := c.Clock.Now()
		defer func() { c.Metrics.Notifying(key, c.Clock.Since(began)) }()
		if err := c.send(ctx, about, config, vars, message); err != nil {
			return err
		}
		if message.Key != "" && c.told(key, about.Object.UID, message.Key) {
			c.keepBook(about)
		}
		return nil
	}
	detached := context.WithoutCancel(ctx)
	c.enqueue(about, message.To.Service, fmt.Sprintf("notification %s to %s", message.Trigger, message.To), send, func(err error) {
		c.Metrics.Notified(key, kind, reason, err)
		if err != nil {
			c.tell(detached, about, fmt.Sprintf("The message of trigger %s to %s was not sent: %s", message.Trigger, message.To, err))
		}
	})
}

// tell records a failure as an event of the Rollout, as long as it exists.
func (c *Courier) tell(ctx context.Context, about About, text string) {
	if c.gone(about) {
		log.FromContext(ctx).Info("A notification failed about a Rollout that was deleted", "namespace", about.Object.Namespace, "name", about.Object.Name, "why", text)
		return
	}
	c.Tell(ctx, about.Object, release.Event{Type: release.Warning, Reason: ReasonFailed, Message: text})
}

// send makes one attempt. Its errors show no secret.
func (c *Courier) send(ctx context.Context, about About, config *configured, vars map[string]any, message notification.Message) error {
	err := c.attempt(ctx, about, config, vars, message)
	if err == nil {
		return nil
	}
	shown := errors.New(config.Hide(err))
	if wait, again := notify.RetryAfter(err, c.Clock.Now()); again || errors.Is(err, errBusy) {
		return telemetry.TransientFor(shown, wait)
	}
	return shown
}

func (c *Courier) attempt(ctx context.Context, about About, config *configured, vars map[string]any, message notification.Message) error {
	sender, err := config.sender(c, message.To.Service)
	if err != nil {
		return err
	}
	vars = maps.Clone(vars)
	vars["recipient"], vars["serviceType"] = message.To.Recipient, message.To.Service
	content, err := c.render(ctx, about, config, message, vars)
	if err != nil {
		return err
	}
	return sender.Send(ctx, service.Message{Content: content, Service: message.To.Service, Recipient: message.To.Recipient, Now: c.Clock.Now()})
}

// render executes the templates of a message, in turn with those of other namespaces.
func (c *Courier) render(ctx context.Context, about About, config *configured, message notification.Message, vars map[string]any) (notification.Content, error) {
	done, err := c.evaluations.Acquire(ctx, about.Object.Namespace)
	if err != nil {
		return notification.Content{}, fmt.Errorf("%w: %w", errBusy, err)
	}
	defer done()
	return config.Render(ctx, message.Templates, vars)
}

// complain tells people once what they have to mend in a configuration, until it changes.
func (c *Courier) complain(ctx context.Context, about About, config *configured, text string) {
	c.mu.Lock()
	news := c.ledger(about.key(), about.Object.UID).news(config.namespace+config.version, text)
	c.mu.Unlock()
	if news {
		c.tell(ctx, about, "Notifications: "+text)
	}
}

// maxProblems bounds how many keys a sentence about the health names.
const maxProblems = 3

// health says which keys of the configuration for all cannot be read.
func (c *Courier) health(problems []notification.Problem) {
	if c.Health == nil {
		return
	}
	if len(problems) == 0 {
		c.Health("notifications", "")
		return
	}
	var texts []string
	for _, problem := range problems[:min(len(problems), maxProblems)] {
		texts = append(texts, problem.String())
	}
	c.Health("notifications", fmt.Sprintf("%d keys of ConfigMap %s in %s cannot be used: %s",
		len(problems), notification.ConfigMapName, c.Namespace, strings.Join(texts, "; ")))
}
