package notification

import (
	"context"
	"maps"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Message is a message that is due.
type Message struct {
	To        Destination
	Trigger   string
	Templates []string
	// Key identifies the message in the log of sent messages; it is empty for messages that are not recorded there.
	Key string
}

// Situation is the state against which triggers and templates are evaluated.
type Situation struct {
	// Rollout and Runs are decoded JSON: the Rollout with its pod template, and the AnalysisRuns of its newest revision.
	Rollout map[string]any
	Runs    []any
	// Event is the event that occurred; the zero value: the Rollout has changed.
	Event release.Event
	Now   time.Time
}

// Vars returns the variables of expressions and templates.
func (c *Config) Vars(s Situation) map[string]any {
	secrets := make(map[string]any, len(c.secrets))
	for key, value := range c.secrets {
		secrets[key] = value
	}
	return map[string]any{
		"rollout": s.Rollout, "analysisRuns": s.Runs, "secrets": secrets,
		"event": map[string]any{"type": string(s.Event.Type), "reason": s.Event.Reason, "message": s.Event.Message},
		"time": map[string]any{
			"Now":   func() time.Time { return s.Now },
			"Parse": func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) },
		},
	}
}

// Fires reports whether an event, or a change for the zero value, may make one of these messages due. It is cheap, because
// it evaluates no expressions.
func (c *Config) Fires(event release.Event, to map[string][]Destination) bool {
	for name := range to {
		_, configured := c.triggers[name]
		if (configured || c.problems["trigger."+name] != "") && fired(name, event) {
			return true
		}
	}
	return false
}

// fired reports whether a trigger is evaluated for an event, or for a change if event is the zero value. A trigger with
// the name of an event is evaluated for that event only, so that its message is not sent twice.
func fired(name string, event release.Event) bool {
	if event.Reason == "" {
		return !ofAnEvent(name)
	}
	return name == triggerOf(event.Reason)
}

// Outcome is the result of evaluating the triggers for an event or a change.
type Outcome struct {
	// Due are the messages to send.
	Due []Message
	// SentLog is the log of sent messages without those whose condition is no longer true.
	SentLog SentLog
	// Problems are triggers that could not be parsed.
	Problems []Problem
	// Unasked are conditions that could not be evaluated for this Rollout, such as those about an AnalysisRun when there
	// is none. They count as false.
	Unasked []Problem
}

// Due returns the messages that are due. It evaluates expressions of users, which may be slow: do not call it from a
// reconciliation.
func (c *Config) Due(ctx context.Context, event release.Event, to map[string][]Destination, vars map[string]any, sentLog SentLog) Outcome {
	out := Outcome{SentLog: maps.Clone(sentLog)}
	for _, name := range sortedKeys(to) {
		if !fired(name, event) {
			continue
		}
		if text := c.problems["trigger."+name]; text != "" {
			out.Problems = append(out.Problems, Problem{Key: "trigger." + name, Text: text})
		}
		for _, condition := range c.triggers[name] {
			c.ask(ctx, condition, Message{Trigger: name, Templates: condition.send}, event, to[name], vars, &out)
		}
	}
	return out
}

// ask evaluates one condition, and adds its messages to all recipients to the outcome.
func (c *Config) ask(ctx context.Context, asked condition, m Message, event release.Event, to []Destination, vars map[string]any, out *Outcome) {
	if asked.when == "" && event.Reason == "" {
		return // a condition without an expression is evaluated for events only
	}
	is, err := asked.evaluate(ctx, vars)
	if err != nil {
		out.Unasked = append(out.Unasked, Problem{Key: "trigger." + m.Trigger, Text: c.hidden.out(err)})
	}
	for _, m.To = range to {
		if event.Reason == "" || asked.once != "" {
			m.Key = key(c.prefix, asked.key, is.once, m)
		}
		switch {
		case is.holds && !out.SentLog.Has(m.Key):
			out.Due = append(out.Due, m)
		case !is.holds && asked.once == "":
			delete(out.SentLog, m.Key)
		}
	}
}
