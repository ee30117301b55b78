// Package parity compares Serin with Flagger and Argo Rollouts by their names: fields, flags, metrics, events, annotations, providers,
// commands. It joins the names of the projects, in facts, with those that Serin serves, which it reads from the definitions and registries
// of Serin, and with the states in states.yaml. The result is docs/parity.md; a test compares the two.
//
// It must not know what a field or a flag means: whether Serin serves it follows from the code, or is a reviewed state with its reason.
package parity

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed facts/*.yaml
var factFiles embed.FS

//go:embed states.yaml
var stateFile []byte

// Project are the names of one project in one version.
type Project struct {
	Name string `json:"project"`
	// Module is the Go module from which the names were read, with its version.
	Module string
	Groups []Group
}

// Group are the names of one type.
type Group struct {
	// Type is what the names are, such as field; Of is where they belong, such as the kind Rollout.
	Type, Of string
	// Names are the names, one in each line.
	Names string
}

func (g Group) names() []string { return strings.Split(strings.TrimSpace(g.Names), "\n") }

// State is what Serin does with a name.
type State string

// The states.
const (
	// Served: Serin does the same.
	Served State = "served"
	// Differs: Serin serves it in another way, or under another name.
	Differs State = "differs"
	// Accepted: Serin accepts it, and it has no effect.
	Accepted State = "accepted, without effect"
	// Refused: Serin reports it as an error.
	Refused State = "refused"
	// NotServed: Serin does not have it.
	NotServed State = "not served"
)

var states = []State{Served, Differs, Accepted, Refused, NotServed}

// statement is an entry of states.yaml: the state of names that does not follow from the code.
type statement struct {
	Project, Type, Of string
	// Names are the names; one with a * at its end stands for all that begin with it.
	Names []string
	State State
	// Why is the reason, for users. Link is the page with more about it, relative to docs.
	Why, Link string
	// As is the name of the same type under which Serin serves it.
	As string
	// Evidence is a text in a file of Serin without which the statement is wrong, as FILE: TEXT.
	Evidence string
	// Until is a file: once it exists, the state follows from the code instead.
	Until string
	// Pending entries are about something that is being built: if the code serves the name, the statement does not count.
	Pending bool
}

// Row is one name with its state.
type Row struct {
	Name  string
	State State
	// Note explains the state.
	Note string
}

// Table are the rows of a group.
type Table struct {
	Project, Type, Of string
	Rows              []Row
}

// Projects returns the names of the projects.
func Projects() ([]Project, error) {
	var out []Project
	files, err := fs.Glob(factFiles, "facts/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := factFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var project Project
		if err := yaml.UnmarshalStrict(text, &project); err != nil {
			return nil, fmt.Errorf("read %s: %w", path.Base(file), err)
		}
		out = append(out, project)
	}
	slices.Reverse(out) // Flagger first, as on other pages
	return out, nil
}

// Compare returns the tables of all projects. root is the folder of the repository. Its error contains every name without a state, and
// every statement that is wrong.
func Compare(root string) ([]Table, error) {
	projects, err := Projects()
	if err != nil {
		return nil, err
	}
	var statements []statement
	if err := yaml.UnmarshalStrict(stateFile, &statements); err != nil {
		return nil, fmt.Errorf("read states.yaml: %w", err)
	}
	own, err := newOwn(root)
	if err != nil {
		return nil, err
	}
	return compare(root, own, projects, statements)
}

func compare(root string, own *own, projects []Project, statements []statement) ([]Table, error) {
	j := joiner{root: root, own: own, statements: statements, used: map[usedName]bool{}}
	var out []Table
	for _, project := range projects {
		for _, group := range project.Groups {
			table := Table{Project: project.Name, Type: group.Type, Of: group.Of}
			for _, name := range group.names() {
				table.Rows = append(table.Rows, j.row(project.Name, group, name))
			}
			out = append(out, table)
		}
	}
	for i, s := range statements {
		for _, name := range s.Names {
			if !j.used[usedName{i, name}] {
				j.fail("states.yaml: there is no %s %s of %s: remove it", s.Type, name, cmp.Or(s.Project, "the projects"))
			}
		}
	}
	return out, errors.Join(j.errors...)
}

// joiner joins names with states.
type joiner struct {
	root       string
	own        *own
	statements []statement
	used       map[usedName]bool
	errors     []error
}

// usedName is a name in a statement that a name of a project matches.
type usedName struct {
	statement int
	name      string
}

func (j *joiner) fail(format string, args ...any) {
	j.errors = append(j.errors, fmt.Errorf(format, args...))
}

// row returns the state of a name.
func (j *joiner) row(project string, group Group, name string) Row {
	row := Row{Name: name}
	row.State, row.Note = j.own.stateOf(group, name)
	isServed := row.State != NotServed
	where := fmt.Sprintf("%s: %s of %s: %s", project, group.Type, group.Of, name)
	stated := 0
	for i := range j.statements {
		s := &j.statements[i]
		pattern := s.find(project, group, name)
		if pattern == "" {
			continue
		}
		j.used[usedName{i, pattern}] = true
		isObsolete := s.Until != "" && exists(filepath.Join(j.root, s.Until)) || s.Pending && isServed
		if isObsolete && isServed {
			continue
		}
		if stated++; stated > 1 {
			j.fail("%s: states.yaml has several states", where)
		}
		if err := j.check(s, group, name, isServed); err != nil {
			j.fail("%s: %w", where, err)
		}
		row = Row{Name: name, State: s.State, Note: s.note()}
	}
	if stated == 0 && !isServed {
		j.fail("%s: Serin does not serve it (%s), and states.yaml has no reason", where, row.Note)
	}
	return row
}

// find returns the name in a statement that a name of a project matches; empty: the statement is about others.
func (s *statement) find(project string, group Group, name string) string {
	if s.Type != group.Type || s.Project != "" && s.Project != project || s.Of != "" && s.Of != group.Of {
		return ""
	}
	for _, pattern := range s.Names {
		if prefix, isPrefix := strings.CutSuffix(pattern, "*"); pattern == name || isPrefix && strings.HasPrefix(name, prefix) {
			return pattern
		}
	}
	return ""
}

// note returns the explanation of a statement, as Markdown.
func (s *statement) note() string {
	out := s.Why
	if s.As != "" {
		out = strings.TrimSpace("`" + s.As + "`. " + out)
	}
	if s.Link != "" {
		out += fmt.Sprintf(" ([details](%s))", s.Link)
	}
	return strings.TrimSpace(out)
}

// check returns what is wrong with a statement about a name.
func (j *joiner) check(s *statement, group Group, name string, isServed bool) error {
	switch {
	case !slices.Contains(states, s.State):
		return fmt.Errorf("the state %q is unknown: use one of %q", s.State, states)
	case s.State != Served && s.Why == "" && s.As == "":
		return errors.New("the state has no reason (why)")
	case s.State == NotServed && isServed:
		return errors.New("the code of Serin serves it: remove it from states.yaml")
	case s.State == Served && isServed:
		return errors.New("it follows from the code of Serin: remove it from states.yaml")
	case s.State == Served && s.As == "" && s.Evidence == "":
		return errors.New("it does not follow from the code, so the state needs evidence, or the name of Serin (as)")
	case s.As != "" && !j.own.has(group, s.As):
		return fmt.Errorf("there is no %s %q of Serin", s.Type, s.As)
	case s.State != NotServed && group.Type == "field" && !j.own.hasField(group.Of, name):
		return errors.New("the schema of Serin has no such field, so it is not served")
	case s.State != NotServed && group.Type == "flag" && !isServed:
		return errors.New("the controller has no such flag, so it is not served")
	}
	if s.Evidence == "" {
		return nil
	}
	file, text, _ := strings.Cut(s.Evidence, ": ")
	content, err := os.ReadFile(filepath.Join(j.root, filepath.FromSlash(file)))
	if err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	if text == "" || !bytes.Contains(content, []byte(text)) {
		return fmt.Errorf("evidence: %s does not contain %q", file, text)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
