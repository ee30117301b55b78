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

func TestWhatATaskIs(t *testing.T) {
	all := Types()
	for _, c := range []struct {
		name    string
		payload hook.Payload
		allowed []string
		want    string
	}{
		{"a type is cmd without a word", payload("cmd", "hey http://cart/"), all, `background hey ["hey" "http://cart/"] or sh -c "hey http://cart/"`},
		{"what needs a shell gets one", payload("type", "cmd", "cmd", "a | b"), all, `background sh [] or sh -c "a | b"`},
		{"without bash there is none", payload("cmd", "a | b"), []string{"cmd"}, "403 Forbidden: this cmd needs a shell, and tasks of type bash are not done here: write a plain command, or name bash in -task-types of the load tester"},
		{"and a plain command does without", payload("cmd", "hey http://cart/"), []string{"cmd"}, `background hey ["hey" "http://cart/"] or  -c ""`},
		{"bash", payload("type", "bash", "cmd", " curl http://cart/ | grep ok\n"), all, `blocking bash [] or bash -c "curl http://cart/ | grep ok"`},
		{"helm", payload("type", "helm", "cmd", "test cart --cleanup"), all, `blocking helm ["helm" "test" "cart" "--cleanup"] or  -c ""`},
		{"helmv3 is the same program", payload("type", "helmv3", "cmd", "test 'cart'"), all, `blocking helm ["helm" "test" "'cart'"] or  -c ""`},
		{"kubectl", payload("type", "kubectl", "cmd", "get pods"), all, `blocking kubectl ["kubectl" "get" "pods"] or  -c ""`},
		{"nothing", payload(), all, "400 metadata not found in payload"},
		{"no command", payload("type", "bash"), all, "400 cmd not found in metadata"},
		{"an empty command", payload("cmd", " \n"), all, "400 cmd not found in metadata"},
		{"a zero byte", payload("cmd", "a\x00b"), all, "400 cmd has a zero byte in it"},
		{"unknown", payload("type", "sql"), all, `400 unknown task type "sql": use one of cmd, bash, helm, helmv3, kubectl, concord, ngrinder`},
		{"not here", payload("type", "helm", "cmd", "x"), []string{"cmd"}, "403 Forbidden: tasks of type helm are not done here: name it in -task-types of the load tester"},
		{"concord wants much", payload("type", "concord", "server", "http://c"), all, "400 `org` is required with type concord"},
		{"ngrinder, too", payload("type", "ngrinder", "server", "http://n"), all, "400 server, clone, username and passwd are required metadata"},
		{"a number", payload("type", "ngrinder", "server", "http://n", "clone", "x", "username", "u", "passwd", "cA=="), all, "400 metadata clone must be integer"},
		{"base64", payload("type", "ngrinder", "server", "http://n", "clone", "1", "username", "u", "passwd", "%"), all, "400 metadata passwd must be in base64"},
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
		t.Errorf("different tasks have one identifier: %v", ids)
	}
	if id(logged) != ids[0] {
		t.Error("what is logged makes another task")
	}
}

func TestConcordAndItsPauses(t *testing.T) {
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
			text = fmt.Sprint(got.concord.interval, got.concord.patience, got.concord.arguments)
		}
		if text = strings.Join(strings.Fields(text), " "); text != c.want {
			t.Errorf("%v: got %s, want %s", c.more, text, c.want)
		}
	}
}

func TestResolvePrefersTheImage(t *testing.T) {
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
		{"what is built in", hey, has("sh"), "[hey http://cart/] true <nil>"},
		{"a shell's own command", &command{argv: []string{"exit", "3"}, shell: "sh", line: "exit 3"}, has("sh"), "[sh -c exit 3] false <nil>"},
		{"nothing", &command{argv: []string{"wrk"}}, has(), `[] false this image has no program "wrk": use an image that has it`},
		{"no shell", &command{shell: "bash", line: "x"}, has("sh"), `[] false this image has no program "bash": use an image that has it`},
	} {
		argv, builtIn, err := resolve(c.command, c.found)
		if got := fmt.Sprint(argv, builtIn, err); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestProgramsDoNotSeeTheToken(t *testing.T) {
	got := environment([]string{"HOME=/h", TokenVariable + "=hunter2", "PATH=/bin"}, "/programs")
	if diff := cmp.Diff([]string{"HOME=/h", "PATH=/bin:/programs"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"PATH=/bin"}, environment([]string{"PATH=/bin"}, "")); diff != "" {
		t.Error(diff)
	}
}

func TestFlagsThatCannotWork(t *testing.T) {
	good := Flags{Timeout: time.Hour, TaskTypes: Types()}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Flags){
		"-timeout is 0s: a task needs some time":                                                   func(f *Flags) { f.Timeout = 0 },
		`-task-types names "sql": use some of cmd, bash, helm, helmv3, kubectl, concord, ngrinder`: func(f *Flags) { f.TaskTypes = []string{"sql"} },
		"-namespace-regexp: error parsing regexp: missing closing ): `(`":                          func(f *Flags) { f.NamespaceRegexp = "(" },
	} {
		f := good
		change(&f)
		if err := f.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWhichNamespacesAreTaken(t *testing.T) {
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
		expression := c.flags.namespaces()
		if got := expression == nil || expression.MatchString(c.name); got != c.want {
			t.Errorf("%+v takes %s: %t", c.flags, c.name, got)
		}
	}
}

func TestOutputKeepsBothEnds(t *testing.T) {
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
	if want := fmt.Sprintf("... %d bytes left out ...", lost); !strings.Contains(text, want) {
		t.Errorf("no %q", want)
	}
	var short output
	_, _ = short.Write([]byte(" a\n"))
	if short.String() != "a" {
		t.Errorf("got %q", short.String())
	}
}
