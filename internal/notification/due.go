package notification

import (
	"context"
	"maps"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Message is one that is due.
type Message struct {
	To        Destination
	Trigger   string
	Templates []string
	// Key names it in the log of sent messages; empty: the log of sent messages does not have such messages.
	Key string
}

// Situation is what triggers and templates are asked about.
type Situation struct {
	// Rollout and Runs as decoded JSON: the Rollout with the template that it runs, its AnalysisRuns of the newest revision.
	Rollout map[string]any
	Runs    []any
	// Event that happened; the zero value: the Rollout has changed.
	Event release.Event
	Now   time.Time
}

// Vars are what expressions and templates know.
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

// Fires says whether an event, or for the zero value a change, could make one of these messages due; asking costs
// little.
func (c *Config) Fires(event release.Event, to map[string][]Destination) bool {
	for name := range to {
		_, configured := c.triggers[name]
		if (configured || c.problems["trigger."+name] != "") && fired(name, event) {
			return true
		}
	}
	return false
}

// fired is true of triggers that are asked when that happens. What has the name of an event is asked when that happens,
// and only then, so that nothing is told twice.
func fired(name string, event release.Event) bool {
	if event.Reason == "" {
		return !ofAnEvent(name)
	}
	return name == triggerOf(event.Reason)
}

// Outcome is what follows from an event or a change.
type Outcome struct {
	// Due are the messages to send.
	Due []Message
	// SentLog without what no longer holds.
	SentLog SentLog
	// Problems are triggers that cannot be read.
	Problems []Problem
	// Unasked are conditions that could not be asked about this Rollout, such as those about an AnalysisRun where there
	// is none. They do not hold.
	Unasked []Problem
}

// Due returns which messages are due. It evaluates what users wrote: call it where nothing waits for it.
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

// ask asks one condition, for all who want to know.
func (c *Config) ask(ctx context.Context, asked condition, m Message, event release.Event, to []Destination, vars map[string]any, out *Outcome) {
	if asked.when == "" && event.Reason == "" {
		return // nothing says when
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
