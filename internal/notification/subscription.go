package notification

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// subscription is an entry of the configuration that subscribes recipients to all Rollouts that a selector matches.
type subscription struct {
	recipients []Destination
	triggers   []string
	selector   labels.Selector
}

func readSubscriptions(text string) ([]subscription, error) {
	var raw []struct {
		Recipients, Triggers []string
		Selector             string
	}
	if err := decodeYAML(text, &raw); err != nil {
		return nil, err
	}
	var all []subscription
	for _, r := range raw {
		selector, err := labels.Parse(r.Selector)
		if err != nil {
			return nil, fmt.Errorf("the selector %q is not valid: write it as app=cart,tier!=test", r.Selector)
		}
		s := subscription{triggers: r.Triggers, selector: selector}
		for _, recipient := range r.Recipients {
			service, name, _ := strings.Cut(recipient, ":")
			s.recipients = append(s.recipients, Destination{Service: service, Recipient: name})
		}
		all = append(all, s)
	}
	return all, nil
}

// Subject is the object that a message is about.
type Subject struct {
	Labels, Annotations map[string]string
	// AnnotationsOnly reports that the subscriptions of the configuration do not apply.
	AnnotationsOnly bool
}

// IsSubscribed reports whether the annotations of an object may subscribe recipients. It is cheap.
func IsSubscribed(annotations map[string]string) bool {
	for key := range annotations {
		if key == subscriptionsAnnotation || strings.HasPrefix(key, subscribePrefix) {
			return true
		}
	}
	return false
}

const (
	// maxRecipients bounds the recipients of one object, which each receive a message, and maxSubscriptions the combinations of a
	// trigger and a recipient, with duplicates: reconcile workers list them.
	maxRecipients    = 100
	maxSubscriptions = 10_000
)

// Destinations returns the recipients that are subscribed to each trigger, without duplicates. problem reports that there are too
// many, and so some are omitted; it is empty otherwise.
func (c *Config) Destinations(s Subject) (all map[string][]Destination, problem string) {
	all = map[string][]Destination{}
	type subscribed struct {
		trigger string
		to      Destination
	}
	known, recipients, subscriptions := map[subscribed]bool{}, map[Destination]bool{}, 0
	add := func(triggers []string, to Destination) {
		if len(triggers) == 0 {
			return
		}
		if !recipients[to] && len(recipients) == maxRecipients || subscriptions+len(triggers) > maxSubscriptions {
			problem = fmt.Sprintf("the object has more than %d recipients, or %d subscriptions to triggers, and the others receive no messages: subscribe channels or mailing lists",
				maxRecipients, maxSubscriptions)
			return
		}
		recipients[to] = true
		subscriptions += len(triggers)
		for _, name := range triggers {
			if entry := (subscribed{name, to}); !known[entry] {
				known[entry] = true
				all[name] = append(all[name], to)
			}
		}
	}
	for _, sub := range c.subscriptions {
		if s.AnnotationsOnly || !sub.selector.Matches(labels.Set(s.Labels)) {
			continue
		}
		triggers := sub.triggers
		if len(triggers) == 0 {
			triggers = c.defaultTriggers
		}
		for _, to := range sub.recipients {
			add(triggers, to)
		}
	}
	for _, key := range sortedKeys(s.Annotations) {
		for _, entry := range parseAnnotation(key, s.Annotations[key]) {
			triggers := entry.triggers
			if len(triggers) == 0 {
				triggers = c.triggersOf(entry.service)
			}
			for _, recipient := range entry.recipients {
				add(triggers, Destination{Service: entry.service, Recipient: recipient})
			}
		}
	}
	return all, problem
}

// triggersOf returns the default triggers of a service, for subscriptions that name none.
func (c *Config) triggersOf(service string) []string {
	if own, ok := c.serviceTriggers[service]; ok {
		return own
	}
	return c.defaultTriggers
}

// annotationSubscription is a subscription in an annotation.
type annotationSubscription struct {
	triggers   []string
	service    string
	recipients []string
}

// parseAnnotation parses one annotation: subscribe.TRIGGER.SERVICE or subscribe.SERVICE with recipients, or subscriptions with
// a list of both. It returns none for other annotations, and for an invalid list, which InvalidAnnotation reports.
func parseAnnotation(key, value string) []annotationSubscription {
	if name, ok := strings.CutPrefix(key, subscribePrefix); ok {
		out := annotationSubscription{recipients: splitRecipients(value)}
		trigger, service, both := strings.Cut(name, ".")
		if !both {
			out.service = trigger
			return []annotationSubscription{out}
		}
		out.triggers, out.service = []string{trigger}, service
		return []annotationSubscription{out}
	}
	if key != subscriptionsAnnotation {
		return nil
	}
	var raw []struct {
		Trigger      []string
		Destinations []struct {
			Service    string
			Recipients []string
		}
	}
	if decodeYAML(value, &raw) != nil {
		return nil
	}
	var all []annotationSubscription
	for _, r := range raw {
		for _, d := range r.Destinations {
			all = append(all, annotationSubscription{triggers: r.Trigger, service: d.Service, recipients: d.Recipients})
		}
	}
	return all
}

// InvalidAnnotation returns why an annotation of the subject cannot be parsed; empty if all can.
func InvalidAnnotation(s Subject) string {
	var raw []any
	value, ok := s.Annotations[subscriptionsAnnotation]
	if !ok || decodeYAML(value, &raw) == nil {
		return ""
	}
	return fmt.Sprintf("annotation %s is not a YAML list of triggers and destinations: correct it", subscriptionsAnnotation)
}

// splitRecipients returns the recipients that an annotation lists. It returns one empty recipient for an empty value, because
// some services need none.
func splitRecipients(value string) []string {
	if value == "" {
		return []string{""}
	}
	var all []string
	for name := range strings.SplitSeq(value, ";") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}
