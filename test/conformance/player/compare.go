package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"

	"sigs.k8s.io/yaml"
)

// waiting matches events about workloads that are not ready yet. Their number depends on when a controller reconciles.
var waiting = regexp.MustCompile(`waiting for rollout to finish|Knative Revision .* is not ready|^skipping canary run as object is suspended$`)

var waitingHook = regexp.MustCompile(`"eventMessage":"([^"]*waiting for rollout to finish|Knative Revision [^"]* is not ready|skipping canary run as object is suspended)`)

func compare(args []string) {
	fs := flag.NewFlagSet("compare", flag.ExitOnError)
	actual := fs.String("actual", "", "folder with one recording per case")
	verbose := fs.Int("lines", 3, "differing lines shown per file")
	purpose := fs.String("differences", "", "file of deliberate differences")
	knownFile := fs.String("known", "", "file of differences that must appear exactly as written")
	_ = fs.Parse(args)
	cases := load(fs.Args())
	if len(cases) == 0 {
		die(fmt.Errorf("no cases in %s: nothing is compared", strings.Join(fs.Args(), ", ")))
	}
	rules, err := loadDifferences(*purpose)
	if err != nil {
		die(err)
	}
	known, err := loadKnown(*knownFile)
	if err != nil {
		die(err)
	}
	r := &ruleSet{rules: rules}
	passed, failed, asKnown := 0, 0, 0
	aspects := []string{"phases", "events", "webhooks", "queries", "objects"}
	bad := map[string]int{}
	for _, c := range cases {
		r.seen = nil
		d := compareCase(c, filepath.Join(c.dir, "expected"), filepath.Join(*actual, c.name), r, *verbose)
		verdict, ok := judge(d, known[c.name])
		if ok {
			passed++
			if len(d) > 0 {
				asKnown++
			}
			fmt.Printf("%s %s\n", verdict, c.name)
			continue
		}
		failed++
		fmt.Printf("DIFF %s\n", c.name)
		seen := map[string]bool{}
		for _, l := range d {
			fmt.Printf("     %s\n", l)
			for _, a := range aspects {
				if strings.HasPrefix(l, a+".") && !seen[a] {
					seen[a] = true
					bad[a]++
				}
			}
			if l == "not recorded" || l == "no expected/" {
				for _, a := range aspects {
					bad[a]++
				}
			}
		}
		if verdict != "" {
			fmt.Printf("     (%s, see %s)\n", verdict, filepath.Base(*knownFile))
		}
	}
	r.report(len(cases))
	fmt.Print("equal:")
	for _, a := range aspects {
		fmt.Printf(" %s %d", a, passed+failed-bad[a])
	}
	fmt.Printf(" of %d\n", passed+failed)
	if *knownFile != "" {
		fmt.Printf("%d differ exactly as %s describes\n", asKnown, filepath.Base(*knownFile))
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// judge returns whether a case passes, and its verdict: its differences must be exactly the known ones, if there are any.
func judge(differences, known []string) (verdict string, ok bool) {
	switch {
	case len(known) == 0 && len(differences) == 0:
		return "same", true
	case len(known) == 0:
		return "", false
	case len(differences) == 0:
		return "no longer different", false
	case !slices.Equal(differences, known):
		return "different in another way than before", false
	default:
		return "known", true
	}
}

// loadKnown reads the differences of cases in the format in which compare prints them: a line "DIFF NAME", followed by
// indented lines. Lines that begin with # are comments.
func loadKnown(file string) (map[string][]string, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known := map[string][]string{}
	name := ""
	for number, line := range strings.Split(string(b), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			name = ""
		case strings.HasPrefix(line, "DIFF "):
			name = strings.TrimPrefix(line, "DIFF ")
			if known[name] != nil {
				return nil, fmt.Errorf("%s:%d: duplicate case %s", file, number+1, name)
			}
		case strings.HasPrefix(line, "     ") && name != "":
			known[name] = append(known[name], strings.TrimPrefix(line, "     "))
		default:
			return nil, fmt.Errorf("%s:%d: neither a comment, nor DIFF and a name, nor a line of its differences", file, number+1)
		}
	}
	return known, nil
}

// compareCase returns the differences; none if the recordings agree.
func compareCase(c *caseFile, want, got string, r *ruleSet, show int) []string {
	if _, err := os.Stat(want); err != nil {
		return []string{"no expected/"}
	}
	if _, err := os.Stat(got); err != nil {
		return []string{"not recorded"}
	}
	tol := c.Compare
	if tol == nil {
		tol = &tolerance{}
	}
	var out []string
	if b, err := os.ReadFile(filepath.Join(got, "INCOMPLETE")); err == nil {
		if r.unplayable(string(b)) {
			return nil
		}
		out = append(out, "the case could not be played completely: "+strings.TrimSpace(string(b)))
	}
	for _, name := range lineFiles {
		out = append(out, compareLines(name, readLines(filepath.Join(want, name)), readLines(filepath.Join(got, name)), tol, r, show)...)
	}
	w, err := readObjects(filepath.Join(want, "objects.yaml"))
	if err != nil {
		return append(out, err.Error())
	}
	g, err := readObjects(filepath.Join(got, "objects.yaml"))
	if err != nil {
		return append(out, err.Error())
	}
	return append(out, compareObjects(w, g, tol, r, show)...)
}

// lineFiles are the files of a recording that are compared line by line.
var lineFiles = []string{"phases.txt", "events.txt", "webhooks.jsonl", "queries.txt"}

// compareLines returns the differences between the lines of one of these files.
func compareLines(name string, want, got []string, tol *tolerance, r *ruleSet, show int) []string {
	in, _, _ := strings.Cut(name, ".")
	w, g := r.lines(in, want), r.lines(in, got)
	normalised, mode := collapse, ""
	switch in {
	case "phases":
		mode = tol.Phases
	case "events":
		mode = tol.Events
		normalised = func(l []string) []string { return collapse(without(l, waiting)) }
	case "webhooks":
		mode = tol.Hooks
		normalised = func(l []string) []string { return collapse(renumber(without(l, waitingHook))) }
	case "queries":
		mode = "set"
		normalised = canonicalQueries
	}
	w, g = normalised(w), normalised(g)
	switch mode {
	case "ignore":
		return nil
	case "set":
		w, g = set(w), set(g)
	case "last":
		w, g = last(w), last(g)
	}
	if d := diff(w, g, show); len(d) > 0 {
		return append([]string{name + ":"}, d...)
	}
	return nil
}

func canonicalQueries(queries []string) []string {
	var out []string
	for _, q := range queries {
		out = append(out, canonical(q))
	}
	return out
}

func compareObjects(w, g map[string]objectFile, tol *tolerance, r *ruleSet, show int) []string {
	var keys []string
	for k := range w {
		keys = append(keys, k)
	}
	for k := range g {
		if _, ok := w[k]; !ok {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	var out []string
next:
	for _, k := range keys {
		for _, s := range tol.Skip {
			if ok, _ := filepath.Match(s, w[k].Object+g[k].Object); ok || s == k || s == w[k].Object {
				continue next
			}
		}
		a, inW := w[k]
		b, inG := g[k]
		object := w[k].Object
		if !inW {
			object = g[k].Object
		}
		av, compared := r.versions(object, canonicalVersions(a), true)
		bv, _ := r.versions(object, canonicalVersions(b), false)
		switch {
		case !compared:
			continue
		case !inG:
			out = append(out, "objects.yaml: "+k+" missing")
			continue
		case !inW:
			out = append(out, "objects.yaml: "+k+" should not exist or not be written")
			continue
		}
		if tol.Objects == "last" && len(av) > 0 && len(bv) > 0 {
			av, bv = av[len(av)-1:], bv[len(bv)-1:]
		}
		n := min(len(av), len(bv))
		at := -1
		for i := range n {
			if !reflect.DeepEqual(av[i], bv[i]) {
				at = i
				break
			}
		}
		if at < 0 && len(av) == len(bv) {
			continue
		}
		if at < 0 {
			out = append(out, fmt.Sprintf("objects.yaml: %s has %d versions, expected %d", k, len(bv), len(av)))
			continue
		}
		out = append(out, fmt.Sprintf("objects.yaml: %s version %d (of %d, expected %d):", k, at+1, len(bv), len(av)))
		out = append(out, diff(yamlLines(av[at]), yamlLines(bv[at]), show)...)
	}
	return out
}

// canonicalVersions removes weights of 0 where a missing weight means 0, empty maps and lists, the order of a Service's
// ports, and versions that are then equal to the previous one.
func canonicalVersions(o objectFile) []map[string]any {
	kind, _, _ := strings.Cut(o.Object, "/")
	zero := kind == "HTTPProxy" || kind == "RouteTable"
	var out []map[string]any
	for _, v := range o.Versions {
		c, _ := prune(v, zero).(map[string]any)
		if spec, ok := c["spec"].(map[string]any); ok && kind == "Service" {
			if ports, ok := spec["ports"].([]any); ok {
				sort.Slice(ports, func(i, j int) bool { return mustJSON(ports[i]) < mustJSON(ports[j]) })
			}
		}
		if n := len(out); n == 0 || !reflect.DeepEqual(out[n-1], c) {
			out = append(out, c)
		}
	}
	return out
}

func prune(v any, zero bool) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if p := prune(e, zero); p != nil && !(zero && k == "weight" && p == float64(0)) {
				out[k] = p
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(x) == 0 {
			return nil
		}
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = prune(e, zero)
		}
		return out
	}
	return v
}

func yamlLines(v any) []string {
	b, _ := yaml.Marshal(v)
	return strings.Split(strings.TrimRight(string(b), "\n"), "\n")
}

func readObjects(file string) (map[string]objectFile, error) {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var l []objectFile
	if err := yaml.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out := map[string]objectFile{}
	for _, o := range l {
		group, _, ok := strings.Cut(o.API, "/")
		if !ok {
			group = ""
		}
		out[o.Object+" "+group] = o
	}
	return out, nil
}

func readLines(file string) []string {
	b, _ := os.ReadFile(file)
	var out []string
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<22)
	for s.Scan() {
		out = append(out, s.Text())
	}
	return out
}

// collapse removes a line, or a group of two or three lines, that repeats the preceding ones.
func collapse(l []string) []string {
	for p := 1; p <= 3; p++ {
		var out []string
		for i := 0; i < len(l); {
			if n := len(out); n >= p && i+p <= len(l) && reflect.DeepEqual(out[n-p:], l[i:i+p]) {
				i += p
				continue
			}
			out = append(out, l[i])
			i++
		}
		l = out
	}
	return l
}

func without(l []string, re *regexp.Regexp) []string {
	var out []string
	for _, s := range l {
		if !re.MatchString(s[strings.LastIndex(s, "\t")+1:]) {
			out = append(out, s)
		}
	}
	return out
}

var sums = regexp.MustCompile(`"sum\d+"`)

// renumber numbers checksums from 1 in the order of their first occurrence.
func renumber(l []string) []string {
	seen := map[string]string{}
	var out []string
	for _, s := range l {
		out = append(out, sums.ReplaceAllStringFunc(s, func(x string) string {
			if seen[x] == "" {
				seen[x] = fmt.Sprintf("%q", fmt.Sprintf("sum%d", len(seen)+1))
			}
			return seen[x]
		}))
	}
	return out
}

var selector = regexp.MustCompile(`\{[^{}]*\}`)

// canonical returns a query without spaces and with sorted label matchers.
func canonical(q string) string {
	q = strings.Join(strings.Fields(q), "")
	return selector.ReplaceAllStringFunc(q, func(s string) string {
		var parts []string
		start, quoted := 1, false
		for i := 1; i < len(s); i++ {
			switch {
			case s[i] == '"':
				quoted = !quoted
			case !quoted && (s[i] == ',' || i == len(s)-1):
				if i > start {
					parts = append(parts, s[start:i])
				}
				start = i + 1
			}
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ",") + "}"
	})
}

func set(l []string) []string {
	m := map[string]bool{}
	for _, s := range l {
		m[s] = true
	}
	var out []string
	for s := range m {
		out = append(out, s)
	}
	sort.Strings(out)
	return out
}

func last(l []string) []string {
	if len(l) == 0 {
		return l
	}
	return l[len(l)-1:]
}

// diff returns up to n lines of a longest-common-subsequence difference.
func diff(w, g []string, n int) []string {
	t := make([][]int, len(w)+1)
	for i := range t {
		t[i] = make([]int, len(g)+1)
	}
	for i, v := range slices.Backward(w) {
		for j := len(g) - 1; j >= 0; j-- {
			if v == g[j] {
				t[i][j] = t[i+1][j+1] + 1
			} else {
				t[i][j] = max(t[i+1][j], t[i][j+1])
			}
		}
	}
	var out []string
	more := 0
	add := func(s string) {
		if len(out) < 2*n {
			out = append(out, "  "+s)
		} else {
			more++
		}
	}
	for i, j := 0, 0; i < len(w) || j < len(g); {
		switch {
		case i < len(w) && j < len(g) && w[i] == g[j]:
			i++
			j++
		case j >= len(g) || i < len(w) && t[i+1][j] >= t[i][j+1]:
			add("- " + w[i])
			i++
		default:
			add("+ " + g[j])
			j++
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("  ... %d more", more))
	}
	return out
}
