package loadtester

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/hook"
)

func payload(metadata ...string) hook.Payload {
	p := hook.Payload{Name: "cart", Namespace: "shop", Metadata: map[string]string{}}
	for i := 0; i < len(metadata); i += 2 {
		p.Metadata[metadata[i]] = metadata[i+1]
	}
	return p
}

func TestTaskOfAPayload(t *testing.T) {
	all := Types()
	for _, c := range []struct {
		name    string
		payload hook.Payload
		allowed []string
		want    string
	}{
		{"the default type is cmd", payload("cmd", "hey http://cart/"), all, `background hey ["hey" "http://cart/"] or sh -c "hey http://cart/"`},
		{"a pipe needs a shell", payload("type", "cmd", "cmd", "a | b"), all, `background sh [] or sh -c "a | b"`},
		{"no shell without bash", payload("cmd", "a | b"), []string{"cmd"}, "403 Forbidden: this cmd needs a shell, and tasks of type bash are not accepted: write a plain command, or add bash to -task-types of the load tester"},
		{"a plain command needs no shell", payload("cmd", "hey http://cart/"), []string{"cmd"}, `background hey ["hey" "http://cart/"] or  -c ""`},
		{"a program that is a shell is not recognized", payload("cmd", "sh -c 'a | b'"), []string{"cmd"}, `background sh ["sh" "-c" "a | b"] or  -c ""`},
		{"bash", payload("type", "bash", "cmd", " curl http://cart/ | grep ok\n"), all, `blocking bash [] or bash -c "curl http://cart/ | grep ok"`},
		{"helm", payload("type", "helm", "cmd", "test cart --cleanup"), all, `blocking helm ["helm" "test" "cart" "--cleanup"] or  -c ""`},
		{"helmv3 is the same program", payload("type", "helmv3", "cmd", "test 'cart'"), all, `blocking helm ["helm" "test" "'cart'"] or  -c ""`},
		{"kubectl", payload("type", "kubectl", "cmd", "get pods"), all, `blocking kubectl ["kubectl" "get" "pods"] or  -c ""`},
		{"no metadata", payload(), all, "400 metadata not found in payload"},
		{"no command", payload("type", "bash"), all, "400 cmd not found in metadata"},
		{"an empty command", payload("cmd", " \n"), all, "400 cmd not found in metadata"},
		{"a zero byte", payload("cmd", "a\x00b"), all, "400 cmd contains a zero byte"},
		{"an unknown type", payload("type", "sql"), all, `400 unknown task type "sql": use one of cmd, bash, helm, helmv3, kubectl, concord, ngrinder`},
		{"a type that is not allowed", payload("type", "helm", "cmd", "x"), []string{"cmd"}, "403 Forbidden: tasks of type helm are not accepted: add it to -task-types of the load tester"},
		{"concord without its required metadata", payload("type", "concord", "server", "http://c"), all, "400 `org` is required with type concord"},
		{"ngrinder without its required metadata", payload("type", "ngrinder", "server", "http://n"), all, "400 server, clone, username and passwd are required metadata"},
		{"ngrinder with a clone that is not a number", payload("type", "ngrinder", "server", "http://n", "clone", "x", "username", "u", "passwd", "cA=="), all, "400 metadata clone must be integer"},
		{"ngrinder with a password that is not base64", payload("type", "ngrinder", "server", "http://n", "clone", "1", "username", "u", "passwd", "%"), all, "400 metadata passwd must be in base64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, refused := newTask(c.payload, c.allowed)
			text := ""
			if refused != nil {
				text = fmt.Sprintf("%d %s", refused.status, refused.text)
			} else {
				mode := "blocking"
				if got.background {
					mode = "background"
				}
				text = fmt.Sprintf("%s %s %q or %s -c %q", mode, got.name(), got.command.argv, got.command.shell, got.command.line)
			}
			if text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

func TestTheSameTaskHasTheSameIdentifier(t *testing.T) {
	id := func(p hook.Payload) string {
		t.Helper()
		got, refused := newTask(p, Types())
		if refused != nil {
			t.Fatal(refused)
		}
		return got.id()
	}
	other := payload("cmd", "hey http://cart/")
	other.Namespace = "test"
	logged := payload("cmd", "hey http://cart/", "logCmdOutput", "true")
	ids := []string{
		id(payload("cmd", "hey http://cart/")), id(payload("cmd", "hey http://car/")), id(other),
		id(payload("type", "bash", "cmd", "hey http://cart/")), id(payload("type", "helm", "cmd", "test a")), id(payload("type", "kubectl", "cmd", "test a")),
	}
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Errorf("different tasks have the same identifier: %v", ids)
	}
	if id(logged) != ids[0] {
		t.Error("logCmdOutput changes the identifier")
	}
}

func TestConcordIntervalsAndArguments(t *testing.T) {
	full := []string{
		"type", "concord", "server", "http://c", "org", "o", "project", "p", "repo", "r", "entrypoint", "e", "apiKeyPath", "/k", "endpoint", "x",
	}
	for _, c := range []struct {
		more []string
		want string
	}{
		{nil, "5s 30s map[]"},
		{[]string{"pollInterval", "2", "pollTimeout", "1m", "arguments.a", "b"}, "2s 1m0s map[a:b]"},
		{[]string{"pollInterval", "0"}, "pollInterval must be a number of seconds, or a duration such as 5s, of at most an hour"},
		{[]string{"pollTimeout", "9999999999999999"}, "pollTimeout must be a number of seconds, or a duration such as 5s, of at most an hour"},
		{[]string{"arguments.endpoint", "b"}, "arguments.endpoint cannot be set: set endpoint"},
		{[]string{"server", "ftp://user:hunter2@c"}, "server: the address must begin with http:// or https://: correct it"},
	} {
		got, refused := newTask(payload(slices.Concat(full, c.more)...), Types())
		text := ""
		if refused != nil {
			text = refused.text
		} else {
			text = fmt.Sprint(got.concord.pollInterval, got.concord.pollTimeout, got.concord.arguments)
		}
		if text = strings.Join(strings.Fields(text), " "); text != c.want {
			t.Errorf("%v: got %s, want %s", c.more, text, c.want)
		}
	}
}

func TestProgramsOfTheImageHavePrecedence(t *testing.T) {
	has := func(programs ...string) func(string) bool {
		return func(program string) bool { return slices.Contains(programs, program) }
	}
	hey := &command{argv: []string{"hey", "http://cart/"}, shell: "sh", line: "hey http://cart/"}
	for _, c := range []struct {
		name    string
		command *command
		found   func(string) bool
		want    string
	}{
		{"a program of the image", hey, has("hey", "sh"), "[hey http://cart/] false <nil>"},
		{"a built-in program", hey, has("sh"), "[hey http://cart/] true <nil>"},
		{"a builtin of the shell", &command{argv: []string{"exit", "3"}, shell: "sh", line: "exit 3"}, has("sh"), "[sh -c exit 3] false <nil>"},
		{"no program", &command{argv: []string{"wrk"}}, has(), `[] false this image has no program "wrk": use an image that has it`},
		{"no shell", &command{shell: "bash", line: "x"}, has("sh"), `[] false this image has no program "bash": use an image that has it`},
	} {
		argv, builtIn, err := resolveCommand(c.command, c.found)
		if got := fmt.Sprint(argv, builtIn, err); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEnvironmentOfProgramsHasNoToken(t *testing.T) {
	got := environment([]string{"HOME=/h", TokenVariable + "=hunter2", "PATH=/bin"}, "/programs")
	if diff := cmp.Diff([]string{"HOME=/h", "PATH=/bin:/programs"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"PATH=/bin"}, environment([]string{"PATH=/bin"}, "")); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidFlagsAreRefused(t *testing.T) {
	good := Flags{Timeout: time.Hour, TaskTypes: Types()}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Flags){
		"-timeout is 0s: it must be positive": func(f *Flags) { f.Timeout = 0 },
		`-task-types contains "sql": use one or more of cmd, bash, helm, helmv3, kubectl, concord, ngrinder`: func(f *Flags) { f.TaskTypes = []string{"sql"} },
		"-namespace-regexp: error parsing regexp: missing closing ): `(`":                                    func(f *Flags) { f.NamespaceRegexp = "(" },
	} {
		f := good
		change(&f)
		if err := f.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAcceptedNamespaces(t *testing.T) {
	for _, c := range []struct {
		flags Flags
		name  string
		want  bool
	}{
		{Flags{}, "shop", true},
		{Flags{Namespace: "test"}, "shop", false},
		{Flags{Namespace: "test"}, "test", true},
		{Flags{Namespace: "test"}, "test-2", false},
		{Flags{Namespace: "test", NamespaceRegexp: "shop|test"}, "shop-2", true},
		{Flags{Namespace: "test", NamespaceRegexp: "^shop$"}, "test", false},
	} {
		expression := c.flags.namespacePattern()
		if got := expression == nil || expression.MatchString(c.name); got != c.want {
			t.Errorf("%+v accepts %s: %t", c.flags, c.name, got)
		}
	}
}

func TestOutputRetainsBeginningAndEnd(t *testing.T) {
	var out output
	long := strings.Repeat("x", 3<<20)
	for _, part := range []string{"begin ", long, long[:1000], "\xff end\n"} {
		if n, err := out.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	text := out.String()
	if !strings.HasPrefix(text, "begin x") || !strings.HasSuffix(text, "x end") || len(text) > headLimit+tailLimit+100 {
		t.Errorf("%d bytes: %.20s … %s", len(text), text, text[len(text)-20:])
	}
	lost := len(long) + 1000 + len("begin ") + len("\xff end\n") - headLimit - tailLimit
	if want := fmt.Sprintf("... %d bytes omitted ...", lost); !strings.Contains(text, want) {
		t.Errorf("no %q", want)
	}
	var short output
	_, _ = short.Write([]byte(" a\n"))
	if short.String() != "a" {
		t.Errorf("got %q", short.String())
	}
}
