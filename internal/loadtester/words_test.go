package loadtester

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitWordsLikeAShell(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string // nil: only a shell can run it
	}{
		{"hey -z 1m -q 10 -c 2 http://cart-canary.shop:8080/", []string{"hey", "-z", "1m", "-q", "10", "-c", "2", "http://cart-canary.shop:8080/"}},
		{"  hey \t http://cart/\n", []string{"hey", "http://cart/"}},
		{`hey -H 'Cookie: type=insider; x' -d "{\"a\": \"b\"}" http://cart/?a=1`, []string{"hey", "-H", "Cookie: type=insider; x", "-d", `{"a": "b"}`, "http://cart/?a=1"}},
		{`a\ b '' "c\d"e`, []string{"a b", "", `c\de`}},
		{"hey -H Authorization:x=y http://cart/", []string{"hey", "-H", "Authorization:x=y", "http://cart/"}},
		{"curl http://cart/#part", []string{"curl", "http://cart/#part"}},
		{"", nil},
		{"NAME=x hey http://cart/", nil},
		{"curl -s http://cart/ | grep ok", nil},
		{"curl http://cart/?a=1&b=2", nil},
		{"true && false", nil},
		{"true; false", nil},
		{"true\nfalse", nil},
		{"echo $HOME", nil},
		{`echo "$HOME"`, nil},
		{"echo `id`", nil},
		{"echo > file", nil},
		{"(true)", nil},
		{"{ true; }", nil},
		{"ls *.go", nil},
		{"ls ~", nil},
		{"! true", nil},
		{"true # comment", []string{"true"}},
		{"echo 'open", nil},
		{`echo "open`, nil},
		{`echo open\`, []string{"echo", `open\`}},
	} {
		got, simple := splitWords(c.line)
		if !simple {
			got = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" || simple != (c.want != nil) {
			t.Errorf("words(%q), simple %t (-want +got):\n%s", c.line, simple, diff)
		}
	}
}

// FuzzWords compares words with a shell for the lines that words reports as simple.
func FuzzWords(f *testing.F) {
	for _, seed := range []string{`a 'b c' "d\"e" f\ g`, "x=y", `"\\"`, "a\tb", "'' \"\"", "http://x/?a[1]=b"} {
		f.Add(seed)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		f.Skip("there is no shell to compare with")
	}
	f.Fuzz(func(t *testing.T, line string) {
		argv, simple := splitWords(line)
		if !simple || strings.ContainsRune(line, 0) {
			return
		}
		// printf '%s\0' prints each of its arguments unchanged.
		out, err := exec.Command(shell, "-fc", `printf '%s\0' `+strings.TrimSpace(line)).Output()
		if err != nil {
			t.Fatalf("the shell cannot run %q: %v", line, err)
		}
		if want := strings.Join(argv, "\x00") + "\x00"; string(out) != want {
			t.Errorf("words(%q) = %q, the shell prints %q", line, argv, out)
		}
	})
}
