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
	// Rollout may also be an AnalysisRun or an Experiment: templates for Argo Rollouts find an Experiment by the name rollout.
	Rollout map[string]any
	Runs    []any
	// Variable is the additional name of an object that is not a Rollout; empty: none.
	Variable string
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
	vars := map[string]any{
		"rollout": s.Rollout, "analysisRuns": s.Runs, "secrets": secrets,
		"event": map[string]any{"type": string(s.Event.Type), "reason": s.Event.Reason, "message": s.Event.Message},
		"time": map[string]any{
			"Now":   func() time.Time { return s.Now },
			"Parse": func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) },
		},
	}
	if s.Variable != "" {
		vars[s.Variable] = s.Rollout
	}
	return vars
}

// MayFire reports whether an event, or a change for the zero value, may make one of these messages due. It is cheap, because
// it evaluates no expressions.
func (c *Config) MayFire(event release.Event, to map[string][]Destination) bool {
	for name := range to {
		_, configured := c.triggers[name]
		if (configured || c.problems["trigger."+name] != "") && isEvaluatedFor(name, event) {
			return true
		}
	}
	return false
}

// isEvaluatedFor reports whether a trigger is evaluated for an event, or for a change if event is the zero value. A trigger with
// the name of an event is evaluated for that event only, so that its message is not sent twice.
func isEvaluatedFor(name string, event release.Event) bool {
	if event.Reason == "" {
		return !isEventTrigger(name)
	}
	return name == triggerName(event.Reason)
}

// Outcome is the result of evaluating the triggers for an event or a change.
type Outcome struct {
	// Due are the messages to send.
	Due []Message
	// SentLog is the log of sent messages without those whose condition is no longer true.
	SentLog SentLog
	// Problems are triggers that could not be parsed.
	Problems []Problem
	// EvaluationErrors are conditions that could not be evaluated for this Rollout, such as those about an AnalysisRun when there
	// is none. They count as false.
	EvaluationErrors []Problem
}

// Evaluate returns the messages that are due. It evaluates expressions of users, which may be slow: do not call it from a
// reconciliation.
func (c *Config) Evaluate(ctx context.Context, event release.Event, to map[string][]Destination, vars map[string]any, sentLog SentLog) Outcome {
	out := Outcome{SentLog: maps.Clone(sentLog)}
	for _, name := range sortedKeys(to) {
		if !isEvaluatedFor(name, event) {
			continue
		}
		if text := c.problems["trigger."+name]; text != "" {
			out.Problems = append(out.Problems, Problem{Key: "trigger." + name, Text: text})
		}
		for _, condition := range c.triggers[name] {
			c.evaluateCondition(ctx, condition, Message{Trigger: name, Templates: condition.templates}, event, to[name], vars, &out)
		}
	}
	return out
}

// evaluateCondition evaluates one condition, and adds its messages to all recipients to the outcome.
func (c *Config) evaluateCondition(ctx context.Context, current condition, message Message, event release.Event, to []Destination, vars map[string]any, out *Outcome) {
	if current.when == "" && event.Reason == "" {
		return // a condition without an expression is evaluated for events only
	}
	result, err := current.evaluate(ctx, vars)
	if err != nil {
		out.EvaluationErrors = append(out.EvaluationErrors, Problem{Key: "trigger." + message.Trigger, Text: c.redactor.redact(err)})
	}
	for _, message.To = range to {
		if event.Reason == "" || current.oncePer != "" {
			message.Key = key(c.prefix, current.key, result.onceKey, message)
		}
		switch {
		case result.isTrue && !out.SentLog.Has(message.Key):
			out.Due = append(out.Due, message)
		case !result.isTrue && current.oncePer == "":
			delete(out.SentLog, message.Key)
		}
	}
}
