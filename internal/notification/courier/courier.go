// Package courier has notifications about Rollouts sent: it is the shell of package notification.
//
// It reads the configuration, keeps the book of what was told, and sends beside the work: a pass over a Rollout waits for
// nothing of it and never fails because of it. It must not know which messages are due, or what services look like.
package courier

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

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/notify"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// ReasonFailed is that of the event which says that a message cannot be sent.
const ReasonFailed = "NotificationFailed"

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

	mu      sync.Mutex
	configs map[string]*configured // by namespace
	ledgers map[types.NamespacedName]*ledger
}

// New makes a courier that has not told anything yet.
func New(parts Parts) *Courier {
	return &Courier{Parts: parts, configs: map[string]*configured{}, ledgers: map[types.NamespacedName]*ledger{}}
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
	delete(c.ledgers, key)
}

// look has what is due sent.
func (c *Courier) look(ctx context.Context, about About, event release.Event) {
	subject := notification.Subject{Labels: about.Object.Labels, Annotations: about.Object.Annotations}
	namespaces := []string{c.Namespace}
	if c.SelfService && about.Object.Namespace != c.Namespace {
		namespaces = append(namespaces, about.Object.Namespace)
	}
	for _, namespace := range namespaces {
		config, err := c.config(ctx, namespace)
		if err != nil {
			log.FromContext(ctx).V(1).Info("Could not read the configuration of notifications", "namespace", namespace, "why", err.Error())
			continue
		}
		if config == nil {
			continue
		}
		to := config.Destinations(subject)
		if text := notification.Unreadable(subject); text != "" {
			c.complain(ctx, about, config, text)
		}
		if !config.Fires(event, to) {
			continue
		}
		if err := c.dispatch(ctx, about, event, config, to); err != nil {
			log.FromContext(ctx).Info("Could not look for notifications", "why", err.Error())
		}
	}
}

// dispatch asks the triggers and queues what is due.
func (c *Courier) dispatch(ctx context.Context, about About, event release.Event, config *configured, to map[string][]notification.Destination) error {
	situation, err := situation(ctx, about, event, c.Clock.Now())
	if err != nil {
		return err
	}
	vars := config.Vars(situation)
	annotated := notification.ReadBook(about.Object.Annotations[notification.NotifiedAnnotation])
	outcome, changed := c.due(about, event, config, to, vars, annotated)
	for _, problem := range outcome.Problems {
		c.complain(ctx, about, config, fmt.Sprintf("ConfigMap %s in %s, %s", notification.ConfigMapName, config.namespace, problem))
	}
	for _, problem := range outcome.Unasked {
		log.FromContext(ctx).V(1).Info("A condition of a notification could not be asked", "namespace", config.namespace, "condition", problem.String())
	}
	if changed {
		c.keepBook(about.key(), about.Object.UID)
	}
	for _, message := range outcome.Due {
		c.post(ctx, about, event, config, vars, message)
	}
	return nil
}

// due asks what is due, and notes it as under way. changed: something that was told does not hold any more.
func (c *Courier) due(about About, event release.Event, config *configured, to map[string][]notification.Destination, vars map[string]any, annotated notification.Book) (outcome notification.Outcome, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ledger := c.ledger(about.key(), about.Object.UID)
	ledger.see(annotated)
	known := ledger.known()
	outcome = config.Due(event, to, vars, known)
	for key := range known {
		if !outcome.Book.Has(key) {
			changed = ledger.end(key) || changed
		}
	}
	for _, message := range outcome.Due {
		ledger.begin(message.Key)
	}
	return outcome, changed
}

// post queues one message. Those for one service about one Rollout leave in their order; a service that does not answer
// holds up no other.
func (c *Courier) post(ctx context.Context, about About, event release.Event, config *configured, vars map[string]any, message notification.Message) {
	key, uid := about.key(), about.Object.UID
	kind, reason := string(event.Type), event.Reason
	if reason == "" {
		kind, reason = string(release.Normal), message.Trigger
	}
	line := types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "/" + message.To.Service}
	name := fmt.Sprintf("notification %s to %s", message.Trigger, message.To)
	send := func(ctx context.Context) error {
		began := c.Clock.Now()
		defer func() { c.Metrics.Notifying(key, c.Clock.Since(began)) }()
		if err := c.send(ctx, config, vars, message); err != nil {
			return err
		}
		if message.Key != "" && c.told(key, uid, message.Key) {
			c.keepBook(key, uid)
		}
		return nil
	}
	detached := context.WithoutCancel(ctx)
	c.Outbox.PostThen(line, name, send, func(err error) {
		c.Metrics.Notified(key, kind, reason, err)
		if err != nil {
			c.Tell(detached, about.Object, release.Event{Type: release.Warning, Reason: ReasonFailed, Message: fmt.Sprintf(
				"The message of trigger %s to %s was not sent: %s", message.Trigger, message.To, err)})
		}
	})
}

// send makes one attempt. Its errors show no secret.
func (c *Courier) send(ctx context.Context, config *configured, vars map[string]any, message notification.Message) error {
	err := c.attempt(ctx, config, vars, message)
	if err == nil {
		return nil
	}
	shown := errors.New(config.Hide(err))
	if wait, again := notify.RetryAfter(err, c.Clock.Now()); again {
		return telemetry.TransientFor(shown, wait)
	}
	return shown
}

func (c *Courier) attempt(ctx context.Context, config *configured, vars map[string]any, message notification.Message) error {
	sender, err := config.sender(c, message.To.Service)
	if err != nil {
		return err
	}
	vars = maps.Clone(vars)
	vars["recipient"], vars["serviceType"] = message.To.Recipient, message.To.Service
	content, err := config.Render(message.Templates, vars)
	if err != nil {
		return err
	}
	return sender.Send(ctx, service.Message{Content: content, Service: message.To.Service, Recipient: message.To.Recipient, Now: c.Clock.Now()})
}

// complain tells people once what they have to mend in a configuration, until it changes.
func (c *Courier) complain(ctx context.Context, about About, config *configured, text string) {
	c.mu.Lock()
	news := c.ledger(about.key(), about.Object.UID).news(config.namespace+config.version, text)
	c.mu.Unlock()
	if news {
		c.Tell(ctx, about.Object, release.Event{Type: release.Warning, Reason: ReasonFailed, Message: "Notifications: " + text})
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
