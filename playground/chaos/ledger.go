//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ledger is the metrics server and the webhook of all applications, and records what it was asked. Whether a version is good is
// known to it alone.
type ledger struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	answers map[string]*answers // by application
}

// answers are the answers during one release.
type answers struct {
	good bool
	// queries are the times of the metric queries.
	queries []time.Time
	// accepted is the number of calls of the webhook for each idempotency key.
	accepted map[string]int
}

// begin starts the record of the next release of an application.
func (l *ledger) begin(name string, good bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[name] = &answers{good: good, accepted: map[string]int{}}
}

// of returns a copy of the record of the current release.
func (l *ledger) of(name string) answers {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := *l.answers[name]
	a.queries, a.accepted = slices.Clone(a.queries), maps.Clone(a.accepted)
	return a
}

// ServeHTTP implements http.Handler: queries of Prometheus' API, in which the query is the name of the application, and a webhook.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.URL.Path == "/accept" {
		var payload struct {
			Name string `json:"name"`
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&payload); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if a := l.answers[payload.Name]; a != nil {
			a.accepted[r.Header.Get("Serin-Key")]++
		}
		return
	}
	value := "0"
	query := strings.TrimSpace(r.FormValue("query"))
	if strings.HasPrefix(query, "vector(1)") {
		value = "1" // the query that checks whether the server is available
	} else if a := l.answers[query]; a != nil {
		a.queries = append(a.queries, l.clock.Now())
		if a.good {
			value = "100"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,%q]}]}}`, l.clock.Now().Unix(), value)
}
