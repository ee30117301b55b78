package oracle

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// Secrecy is I10: no event, log line, or object other than a Secret contains secret data.
type Secrecy struct {
	*Ledger
	EventsOnly

	// Planted is the text that every Secret of the run contains.
	Planted string
	// Public returns the part of an object that must not contain it: users may write secrets into their specs.
	Public func(*store.Version) map[string]any
}

// Observe implements Checker.
func (c *Secrecy) Observe(event any) {
	switch e := event.(type) {
	case actors.EventEmitted:
		if strings.Contains(e.Message, c.Planted) {
			c.Violate("I10", e.Object.Name, "an event contains a secret: %s", e.Message)
		}
	case actors.LogLine:
		if strings.Contains(e.Text, c.Planted) {
			c.Violate("I10", "", "the log contains a secret: %s", e.Text)
		}
	case Write:
		if !e.BySerin || e.Type == store.Deleted || e.Kind == (schema.GroupKind{Kind: "Secret"}) {
			return
		}
		var old map[string]any
		if e.Old != nil {
			old = c.Public(e.Old)
		}
		if text := c.disclosed(c.Public(e.New), old); text != "" {
			c.Violate("I10", e.Key.Name, "%s contains a secret: %s", e.Kind.Kind, text)
		}
	}
}

// disclosed returns the text with a secret in the new parts of a value, or "". Of several texts it returns the first in
// alphabetical order, so that each run with a seed reports the same one.
func (c *Secrecy) disclosed(value, old any) string {
	first := ""
	keep := func(text string) {
		if text != "" && (first == "" || text < first) {
			first = text
		}
	}
	switch v := value.(type) {
	case string:
		if strings.Contains(v, c.Planted) {
			return v
		}
	case map[string]any:
		if SameMap(value, old) {
			return ""
		}
		before, _ := old.(map[string]any)
		for field, item := range v {
			keep(c.disclosed(item, before[field]))
		}
	case []any:
		for _, item := range v {
			keep(c.disclosed(item, nil))
		}
	}
	return first
}
