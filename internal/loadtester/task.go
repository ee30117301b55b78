package loadtester

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
)

// The types of tasks, as metadata.type names them.
const (
	typeCmd      = "cmd"
	typeBash     = "bash"
	typeHelm     = "helm"
	typeHelm3    = "helmv3"
	typeKubectl  = "kubectl"
	typeConcord  = "concord"
	typeNGrinder = "ngrinder"
)

// Types are the types of tasks.
func Types() []string {
	return []string{typeCmd, typeBash, typeHelm, typeHelm3, typeKubectl, typeConcord, typeNGrinder}
}

// task is the work that one webhook requests.
type task struct {
	// canary is name.namespace.
	canary string
	kind   string
	// background tasks are answered at once, and never run twice at the same time; for the others, the client waits for
	// the result.
	background bool
	logOutput  bool
	// returnOutput makes the output the body of the response.
	returnOutput bool
	// The work: exactly one of these is set.
	command  *command
	concord  *concord
	ngrinder *ngrinder
}

// command is a command line.
type command struct {
	// argv is the program and its arguments, if no shell is needed to split the line.
	argv []string
	// shell interprets line; empty: no shell is allowed, or argv is enough. If both are set, the shell is used only when
	// argv names no program.
	shell, line string
}

// name returns the name of the program or server, without arguments, which may be secret.
func (t task) name() string {
	switch {
	case t.command == nil:
		return t.kind
	case len(t.command.argv) > 0:
		return t.command.argv[0]
	default:
		return t.command.shell
	}
}

// id identifies a task: equal tasks of one Canary have the same id.
func (t task) id() string {
	sum := sha256.New()
	add := func(parts ...string) {
		for _, part := range parts {
			_, _ = fmt.Fprintf(sum, "%d %s ", len(part), part) // a hash never fails to write
		}
	}
	add(t.canary, t.kind)
	switch {
	case t.command != nil:
		add(t.command.shell, t.command.line)
		add(t.command.argv...)
	case t.concord != nil:
		add(t.concord.identity()...)
	case t.ngrinder != nil:
		add(t.ngrinder.server.String(), strconv.Itoa(t.ngrinder.clone))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// refusal is the response to a payload that is not a valid task.
type refusal struct {
	status int
	text   string
}

func badTask(format string, args ...any) *refusal {
	return &refusal{status: 400, text: fmt.Sprintf(format, args...)}
}

// readPayload decodes the body that a webhook, or a user who opens a gate, sends.
func readPayload(body []byte) (hook.Payload, error) {
	var p hook.Payload
	if err := json.Unmarshal(body, &p); err != nil {
		return p, errors.New("the body is not the JSON of a webhook")
	}
	return p, nil
}

// newTask returns the task that a payload requests. allowed are the types of tasks that the load tester accepts.
func newTask(p hook.Payload, allowed []string) (task, *refusal) {
	if len(p.Metadata) == 0 {
		return task{}, badTask("metadata not found in payload")
	}
	t := task{
		canary: p.Name + "." + p.Namespace, kind: p.Metadata["type"],
		logOutput: p.Metadata["logCmdOutput"] == "true", returnOutput: p.Metadata["returnCmdOutput"] == "true",
	}
	if t.kind == "" {
		t.kind = typeCmd
	}
	if !slices.Contains(Types(), t.kind) {
		return task{}, badTask("unknown task type %.64q: use one of %s", t.kind, strings.Join(Types(), ", "))
	}
	if !slices.Contains(allowed, t.kind) {
		return task{}, &refusal{status: 403, text: fmt.Sprintf("Forbidden: tasks of type %s are not accepted: add it to -task-types of the load tester", t.kind)}
	}
	t.background = t.kind == typeCmd || t.kind == typeNGrinder
	var refused *refusal
	switch t.kind {
	case typeConcord:
		t.concord, refused = newConcord(p.Metadata)
	case typeNGrinder:
		t.ngrinder, refused = newNGrinder(p.Metadata)
	default:
		t.command, refused = newCommand(t.kind, p.Metadata["cmd"], slices.Contains(allowed, typeBash))
	}
	if refused != nil {
		return task{}, refused
	}
	return t, nil
}

// newCommand decides how to run a line. A shell interprets it only if the type requires one, or if it would do more with
// it than split it into words. sh is allowed wherever bash is. A program that is a shell itself is not recognized.
func newCommand(kind, line string, shellAllowed bool) (*command, *refusal) {
	line = strings.TrimSpace(line)
	if line == "" {
		return nil, badTask("cmd not found in metadata")
	}
	if strings.ContainsRune(line, 0) {
		return nil, badTask("cmd contains a zero byte")
	}
	switch kind {
	case typeBash:
		return &command{shell: "bash", line: line}, nil
	case typeHelm, typeHelm3:
		return &command{argv: append([]string{"helm"}, strings.Fields(line)...)}, nil
	case typeKubectl:
		return &command{argv: append([]string{"kubectl"}, strings.Fields(line)...)}, nil
	}
	argv, simple := splitWords(line)
	if !simple && !shellAllowed {
		return nil, &refusal{status: 403, text: "Forbidden: this cmd needs a shell, and tasks of type bash are not accepted: write a plain command, or add bash to -task-types of the load tester"}
	}
	c := &command{argv: argv}
	if shellAllowed {
		c.shell, c.line = "sh", line
	}
	return c, nil
}

// concord is a process to start on a Concord server.
type concord struct {
	server                         *url.URL
	org, project, repo, entrypoint string
	endpoint                       string
	// keyPath is the path of a file in the load tester's container with the API key of the server.
	keyPath   string
	arguments map[string]string
	// pollInterval is the time between two requests for the state; pollTimeout is how long all of them may fail.
	pollInterval, pollTimeout time.Duration
}

// identity returns the values that distinguish one process from another.
func (c *concord) identity() []string {
	parts := []string{c.server.String(), c.org, c.project, c.repo, c.entrypoint, c.endpoint}
	for _, name := range slices.Sorted(maps.Keys(c.arguments)) {
		parts = append(parts, name, c.arguments[name])
	}
	return parts
}

func newConcord(metadata map[string]string) (*concord, *refusal) {
	for _, name := range []string{"server", "org", "project", "repo", "entrypoint", "apiKeyPath", "endpoint"} {
		if metadata[name] == "" {
			return nil, badTask("`%s` is required with type concord", name)
		}
	}
	c := &concord{
		org: metadata["org"], project: metadata["project"], repo: metadata["repo"], entrypoint: metadata["entrypoint"],
		endpoint: metadata["endpoint"], keyPath: metadata["apiKeyPath"], arguments: map[string]string{},
		pollInterval: 5 * time.Second, pollTimeout: 30 * time.Second,
	}
	var refused *refusal
	if c.server, refused = parseServer(metadata["server"]); refused != nil {
		return nil, refused
	}
	for name, target := range map[string]*time.Duration{"pollInterval": &c.pollInterval, "pollTimeout": &c.pollTimeout} {
		if refused := readDuration(metadata, name, target); refused != nil {
			return nil, refused
		}
	}
	for name, value := range metadata {
		argument, ok := strings.CutPrefix(name, "arguments.")
		switch {
		case !ok:
		case argument == "endpoint":
			return nil, badTask("arguments.endpoint cannot be set: set endpoint")
		default:
			c.arguments[argument] = value
		}
	}
	return c, nil
}

// ngrinder is a test on an nGrinder controller, which is copied and started.
type ngrinder struct {
	server       *url.URL
	clone        int
	username     string
	password     outbound.Secret
	pollInterval time.Duration
}

func newNGrinder(metadata map[string]string) (*ngrinder, *refusal) {
	for _, name := range []string{"server", "clone", "username", "passwd"} {
		if metadata[name] == "" {
			return nil, badTask("server, clone, username and passwd are required metadata")
		}
	}
	n := &ngrinder{username: metadata["username"], pollInterval: time.Second}
	var refused *refusal
	if n.server, refused = parseServer(metadata["server"]); refused != nil {
		return nil, refused
	}
	clone, err := strconv.Atoi(metadata["clone"])
	if err != nil {
		return nil, badTask("metadata clone must be integer")
	}
	password, err := base64.StdEncoding.DecodeString(metadata["passwd"])
	if err != nil {
		return nil, badTask("metadata passwd must be in base64")
	}
	n.clone, n.password = clone, outbound.Secret(password)
	if refused := readDuration(metadata, "pollInterval", &n.pollInterval); refused != nil {
		return nil, refused
	}
	return n, nil
}

func parseServer(address string) (*url.URL, *refusal) {
	u, err := outbound.ParseURL(address)
	if err != nil {
		return nil, badTask("server: %v", err)
	}
	return u, nil
}

// readDuration reads a number of seconds, or a duration such as 5s, of at most an hour.
func readDuration(metadata map[string]string, name string, target *time.Duration) *refusal {
	text := metadata[name]
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if seconds, notNumber := strconv.Atoi(text); notNumber == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d <= 0 || d > time.Hour {
		return badTask("%s must be a number of seconds, or a duration such as 5s, of at most an hour", name)
	}
	*target = d
	return nil
}
