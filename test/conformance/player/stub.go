package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// serve responds to metric queries and webhooks of all cases.
//
//	/api/v1/query          built-in metrics; the case is identified by its namespace in the query
//	/t/<case>/...          metric templates and Canaries that name ${METRICS}
//	/h/<case>/<path>       webhooks, ${HOOKS}
func (r *recorder) serve(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(l, http.HandlerFunc(r.answerHTTP)) }()
	return nil
}

func (r *recorder) answerHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	path := req.URL.Path
	if rest, ok := strings.CutPrefix(path, "/h/"); ok {
		name, hook, _ := strings.Cut(rest, "/")
		if name == "_any" { // webhooks of all cases; the payload names the case
			var p struct {
				Namespace string `json:"namespace"`
			}
			_ = json.Unmarshal(body, &p)
			name = p.Namespace
		}
		if t := r.track(name); t != nil {
			t.hookCalled(w, hook, body)
			return
		}
		http.NotFound(w, req)
		return
	}
	if rest, ok := strings.CutPrefix(path, "/t/"); ok {
		name, p, _ := strings.Cut(rest, "/")
		if t := r.track(name); t != nil {
			q := req.URL.Query().Get("query")
			if p != "api/v1/query" || req.URL.Query().Get("from") != "" {
				q = describe(req, p, body)
			}
			t.queryAsked(w, q, req)
			return
		}
		http.NotFound(w, req)
		return
	}
	if strings.HasSuffix(path, "/api/v1/query") {
		q := req.URL.Query().Get("query")
		if q == "" {
			q = req.FormValue("query")
		}
		if t := r.trackByQuery(q); t != nil {
			t.queryAsked(w, q, req)
			return
		}
		vector(w, "1")
		return
	}
	http.NotFound(w, req)
}

// describe formats a request of another metrics provider as one line, without timestamps.
func describe(req *http.Request, path string, body []byte) string {
	q := req.URL.Query()
	for _, k := range []string{"from", "to"} {
		if digits.MatchString(q.Get(k)) {
			q.Set(k, "TIME")
		}
	}
	var s strings.Builder
	s.WriteString(req.Method + " /" + path)
	if e := q.Encode(); e != "" {
		s.WriteString("?" + e)
	}
	for _, k := range []string{"Authorization", "Dd-Api-Key", "Dd-Application-Key", "X-Query-Key", "X-Test"} {
		if v := req.Header.Get(k); v != "" {
			fmt.Fprintf(&s, " [%s: %s]", k, v)
		}
	}
	if len(body) > 0 {
		s.WriteString(" " + string(body))
	}
	return s.String()
}

func vector(w http.ResponseWriter, v string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,%q]}]}}`, time.Now().Unix(), v)
}

var digits = regexp.MustCompile(`^[0-9]+$`)

var spaces = regexp.MustCompile(`\s+`)

func (t *track) queryAsked(w http.ResponseWriter, q string, req *http.Request) {
	q = strings.TrimSpace(spaces.ReplaceAllString(q, " "))
	if q == "vector(1)" {
		vector(w, "1")
		return
	}
	for _, k := range []string{"Authorization", "X-Test"} {
		if v := req.Header.Get(k); v != "" && !strings.Contains(q, "["+k) {
			q += fmt.Sprintf(" [%s: %s]", k, v)
		}
	}
	t.mu.Lock()
	a := rule{Value: "100"}
	if strings.Contains(q, "histogram_quantile") || strings.Contains(q, "_sum") {
		a.Value = "0.1"
	}
	for i := range t.rules {
		if regexp.MustCompile(t.rules[i].Match).MatchString(q) {
			a = t.rules[i]
			if n := len(a.Values); n > 0 {
				a.Value = a.Values[0]
				if n > 1 {
					t.rules[i].Values = a.Values[1:]
				}
			}
			break
		}
	}
	t.add(entry{kind: "query", text: q})
	t.mu.Unlock()
	switch {
	case a.Body != "":
		w.Header().Set("Content-Type", "application/json")
		if a.Status != 0 {
			w.WriteHeader(a.Status)
		}
		fmt.Fprint(w, strings.ReplaceAll(a.Body, "NOW", fmt.Sprint(time.Now().Unix())))
	case a.Status != 0:
		http.Error(w, "no answer", a.Status)
	case a.Empty:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	default:
		vector(w, a.Value)
	}
}

func (t *track) hookCalled(w http.ResponseWriter, path string, body []byte) {
	var payload any
	if json.Unmarshal(body, &payload) != nil {
		payload = string(body)
	}
	t.mu.Lock()
	a, ok := t.hooks[path]
	if !ok {
		a = answer{Status: 200, Body: "OK"}
	}
	if n := len(a.Answers); n > 0 {
		first := a.Answers[0]
		if n > 1 {
			a.Answers = a.Answers[1:]
			t.hooks[path] = a
		}
		a = first
	}
	t.add(entry{kind: "hook", text: path, payload: payload})
	t.mu.Unlock()
	if a.Status == 0 {
		a.Status = 200
	}
	w.WriteHeader(a.Status)
	fmt.Fprint(w, a.Body)
}
