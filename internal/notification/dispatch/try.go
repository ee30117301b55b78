package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Trial is the request of a user to send the messages of a trigger now, whether or not its conditions are true.
type Trial struct {
	Config *notification.Config
	About  About
	// Trigger is its name. To are the recipients; empty: those that are subscribed to it.
	Trigger string
	To      []notification.Destination
	Now     time.Time
	// Client calls the services, under Policy. Nil: nothing is sent.
	Client *outbound.Client
	Policy outbound.Policy
}

// TrialResult is one message of a Trial.
type TrialResult struct {
	To notification.Destination
	// Message is the text of the message, without secret values.
	Message string
	// Err is the reason why it was not rendered or sent. It contains no secret values.
	Err error
}

// trialText is the message of the event of a Trial.
const trialText = "This is a test message."

// Try renders the messages of a trigger, and sends them once. It changes no log of sent messages. It returns an error if there
// is no message.
func Try(ctx context.Context, t Trial) ([]TrialResult, error) {
	lists, err := t.Config.TemplatesOf(t.Trigger)
	if err != nil {
		return nil, err
	}
	to := t.To
	if len(to) == 0 {
		all, problem := t.Config.Destinations(t.About.subject())
		if problem != "" {
			return nil, errors.New(problem)
		}
		to = all[t.Trigger]
	}
	if len(to) == 0 {
		return nil, fmt.Errorf("%s has no subscription to the trigger %s: add the annotation notifications.argoproj.io/subscribe.%s.SERVICE, or name a recipient", t.About.key(), t.Trigger, t.Trigger)
	}
	event := release.Event{Type: release.Normal, Reason: notification.ReasonOf(t.Trigger), Message: trialText}
	s, err := newSituation(ctx, t.About, event, t.Now)
	if err != nil {
		return nil, err
	}
	vars := t.Config.Vars(s)
	var out []TrialResult
	for _, templates := range lists {
		for _, recipient := range to {
			result := TrialResult{To: recipient}
			vars["recipient"], vars["serviceType"] = recipient.Recipient, recipient.Service
			message, err := t.send(ctx, recipient, templates, vars)
			if err != nil {
				result.Err = errors.New(t.Config.Redact(err))
			}
			result.Message = t.Config.Hide(message)
			out = append(out, result)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the trigger %s has no conditions: add one with send", t.Trigger)
	}
	return out, nil
}

// send renders and sends one message, and returns its text.
func (t Trial) send(ctx context.Context, to notification.Destination, templates []string, vars map[string]any) (string, error) {
	options, err := t.Config.Service(to.Service)
	if err != nil {
		return "", err
	}
	content, err := t.Config.Render(ctx, templates, vars)
	if err != nil || t.Client == nil {
		return content.Message, err
	}
	sender, err := service.New(t.Client, t.Policy, options)
	if err != nil {
		return content.Message, fmt.Errorf("service %s: %w", to.Service, err)
	}
	return content.Message, sender.Send(ctx, service.Message{Content: content, Service: to.Service, Recipient: to.Recipient, Now: t.Now})
}
