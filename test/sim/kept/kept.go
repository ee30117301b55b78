// Package kept has the histories that once found a mistake, so that each is looked for again for ever.
//
// It knows texts. It must not know what a history is about.
package kept

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed *.txt
var files embed.FS

// History is one that found a mistake.
type History struct {
	// Name is that of its file, without the ending.
	Name string
	// API of its releases; empty: that of Canaries.
	API  string
	Seed uint64
	// Only are the troubles and actions that take place; nil: all that are drawn.
	Only []string
	// Lasts is how long its troubles last; zero: as its seed draws it.
	Lasts time.Duration
	// Why says what was wrong.
	Why string
}

// All are the histories that are kept, in the order of their names.
func All() ([]History, error) {
	names, err := fs.Glob(files, "*.txt")
	if err != nil {
		return nil, err
	}
	histories := make([]History, 0, len(names))
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		history, err := read(strings.TrimSuffix(path.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		histories = append(histories, history)
	}
	return histories, nil
}

// read reads one file: the first line is `api=rollout seed=… only=a#1,b#2 lasts=20m`, and sentences follow. Without api
// it is a history of Canaries. Without only, all that is
// drawn takes place.
func read(name, text string) (History, error) {
	first, why, _ := strings.Cut(text, "\n")
	h := History{Name: name, Why: strings.TrimSpace(why)}
	for field := range strings.FieldsSeq(first) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "api":
			h.API = value
		case "seed":
			seed, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return h, err
			}
			h.Seed = seed
		case "only":
			h.Only = strings.Split(value, ",")
		case "lasts":
			lasts, err := time.ParseDuration(value)
			if err != nil {
				return h, err
			}
			h.Lasts = lasts
		default:
			return h, fmt.Errorf("%q is neither a seed, nor what takes place, nor how long it lasts", field)
		}
	}
	if h.Seed == 0 || h.Why == "" {
		return h, fmt.Errorf("want a seed in the first line, and then what was wrong, got %q", text)
	}
	return h, nil
}
