// Package corpus is the regression corpus: simulation runs that once found a defect and are retained as regression tests.
//
// An entry is a text file: its first line selects the run, and the following lines describe the defect. The package must not
// know what happens in a run.
package corpus

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

// Entry is one run that found a defect.
type Entry struct {
	// Name is the name of its file without the extension.
	Name string
	// API is the API of its releases; empty: the Canary API.
	API  string
	Seed uint64
	// Only are the faults and actions that occur; nil: all that are drawn.
	Only []string
	// Without are the faults and actions that do not occur, although they are drawn: they were added after the run found the defect.
	Without []string
	// FaultDuration is how long its faults last; zero: the duration is drawn from the seed.
	FaultDuration time.Duration
	// Description describes the defect.
	Description string
}

// All returns all entries in the order of their names.
func All() ([]Entry, error) {
	names, err := fs.Glob(files, "*.txt")
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		entry, err := parse(strings.TrimSuffix(path.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// parse parses one file. Its first line is `api=rollout seed=… only=a#1,b#2 without=c#1 lasts=20m`, of which only the seed is required.
func parse(name, text string) (Entry, error) {
	first, description, _ := strings.Cut(text, "\n")
	entry := Entry{Name: name, Description: strings.TrimSpace(description)}
	for field := range strings.FieldsSeq(first) {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "api":
			entry.API = value
		case "seed":
			entry.Seed, err = strconv.ParseUint(value, 10, 64)
		case "only":
			entry.Only = strings.Split(value, ",")
		case "without":
			entry.Without = strings.Split(value, ",")
		case "lasts":
			entry.FaultDuration, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown field %q: want api, seed, only, without or lasts", field)
		}
		if err != nil {
			return entry, err
		}
	}
	if entry.Seed == 0 || entry.Description == "" {
		return entry, fmt.Errorf("want a seed in the first line, and then a description of the defect, got %q", text)
	}
	return entry, nil
}
