package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// write writes the recording to files in dir.
func (t *track) write(dir, base string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	clean := t.cleaner(base)
	var phases, events, queries, hooks []string
	asked := map[string]bool{}
	ordered := t.byBurst()
	for _, burst := range ordered {
		for _, e := range burst {
			switch e.kind {
			case "status":
				phases = append(phases, clean(e.text))
			case "event":
				events = append(events, clean(eventLine(e)))
			case "query":
				if !asked[e.text] {
					asked[e.text] = true
					queries = append(queries, clean(e.text))
				}
			case "hook":
				hooks = append(hooks, clean(mustCompact(map[string]any{"path": e.text, "payload": t.payload(e.payload)})))
			}
		}
	}
	files := map[string][]byte{
		"phases.txt":     lines(phases),
		"events.txt":     lines(events),
		"queries.txt":    lines(queries),
		"webhooks.jsonl": lines(hooks),
		"timeline.txt":   []byte(clean(t.timeline(ordered))),
	}
	objs, err := t.objectsYAML()
	if err != nil {
		return err
	}
	files["objects.yaml"] = []byte(clean(string(objs)))
	if t.failure != "" {
		files["INCOMPLETE"] = []byte(t.failure + "\n")
	}
	for n, b := range files {
		if err := os.WriteFile(filepath.Join(dir, n), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func eventLine(e entry) string {
	return fmt.Sprintf("%s\t%s\t%s", e.etype, e.reason, strings.ReplaceAll(e.text, "\n", `\n`))
}

func lines(l []string) []byte {
	if len(l) == 0 {
		return nil
	}
	return []byte(strings.Join(l, "\n") + "\n")
}

func mustCompact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// payload replaces the variable parts in the body of a webhook.
func (t *track) payload(p any) any {
	m, ok := p.(map[string]any)
	if !ok {
		return p
	}
	out := map[string]any{}
	maps.Copy(out, m)
	if s, ok := out["checksum"].(string); ok && s != "" {
		if t.sums[s] == "" {
			t.sums[s] = fmt.Sprintf("sum%d", len(t.sums)+1)
		}
		out["checksum"] = t.sums[s]
	}
	if md, ok := out["metadata"].(map[string]any); ok {
		c := map[string]any{}
		maps.Copy(c, md)
		if _, ok := c["timestamp"]; ok {
			c["timestamp"] = "TIME"
		}
		out["metadata"] = c
	}
	return out
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (t *track) cleaner(base string) func(string) string {
	return func(s string) string {
		for i, c := range t.cookies {
			s = strings.ReplaceAll(s, c, fmt.Sprintf("COOKIE%d", i+1))
		}
		s = strings.ReplaceAll(s, base+"/h/"+t.c.name, "${HOOKS}")
		s = strings.ReplaceAll(s, base+"/t/"+t.c.name, "${METRICS}")
		return s
	}
}

// uuids numbers the identifiers within one object.
func uuids(s string) string {
	seen := map[string]string{}
	return uuid.ReplaceAllStringFunc(s, func(u string) string {
		if _, ok := seen[u]; !ok {
			seen[u] = fmt.Sprintf("UUID%d", len(seen)+1)
		}
		return seen[u]
	})
}

// byBurst splits the records where nothing happened for a while, and sorts each part by resource version; calls without one
// keep their positions.
func (t *track) byBurst() [][]entry {
	var out [][]entry
	var cur []entry
	for i, e := range t.entries {
		if i > 0 && e.at-t.entries[i-1].at > 2500*time.Millisecond {
			out = append(out, cur)
			cur = nil
		}
		cur = append(cur, e)
	}
	if len(cur) > 0 {
		out = append(out, cur)
	}
	for _, b := range out {
		var at []int
		var with []entry
		for i, e := range b {
			if e.rv > 0 {
				at = append(at, i)
				with = append(with, e)
			}
		}
		sort.SliceStable(with, func(i, j int) bool { return with[i].rv < with[j].rv })
		for i, p := range at {
			b[p] = with[i]
		}
	}
	return out
}

func (t *track) timeline(bursts [][]entry) string {
	var b strings.Builder
	version := map[string]int{}
	touched := map[string]*objectTrace{}
	for _, o := range t.objects {
		if o.touched {
			touched[o.kind+"/"+o.name] = o
		}
	}
	for i, burst := range bursts {
		if i > 0 {
			b.WriteString("--\n")
		}
		for _, e := range burst {
			switch e.kind {
			case "status":
				fmt.Fprintf(&b, "status  %s\n", e.text)
			case "event":
				fmt.Fprintf(&b, "event   %s %s\n", e.etype, strings.ReplaceAll(e.text, "\n", `\n`))
			case "query":
				fmt.Fprintf(&b, "query   %s\n", e.text)
			case "hook":
				fmt.Fprintf(&b, "webhook %s\n", e.text)
			case "case":
				fmt.Fprintf(&b, "CASE    %s\n", e.text)
			case "object":
				if touched[e.text] == nil {
					continue
				}
				if e.deleted {
					fmt.Fprintf(&b, "object  %s deleted\n", e.text)
					continue
				}
				version[e.text]++
				fmt.Fprintf(&b, "object  %s version %d\n", e.text, version[e.text])
			}
		}
	}
	return b.String()
}

type objectFile struct {
	Object   string           `json:"object"`
	API      string           `json:"apiVersion"`
	Versions []map[string]any `json:"versions"`
}

func (t *track) objectsYAML() ([]byte, error) {
	var keys []string
	for k, o := range t.objects {
		if o.touched {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	var out bytes.Buffer
	for _, k := range keys {
		o := t.objects[k]
		f := objectFile{Object: o.kind + "/" + o.name, API: o.api}
		vs := append([]objectVersion{}, o.versions...)
		sort.SliceStable(vs, func(i, j int) bool { return vs[i].rv < vs[j].rv })
		for _, v := range vs {
			if v.deleted {
				f.Versions = append(f.Versions, map[string]any{"deleted": true})
			} else {
				f.Versions = append(f.Versions, v.body)
			}
		}
		y, err := yaml.Marshal([]objectFile{f})
		if err != nil {
			return nil, err
		}
		out.WriteString(uuids(string(y)))
	}
	return out.Bytes(), nil
}
