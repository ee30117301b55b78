package borders

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ignorance is the sentence of a package comment that says what the package does not know. Reviews are held to it.
var ignorance = regexp.MustCompile(`(?i)\bmust not\b|\bmust know nothing\b|\bknows (no|nothing)\b|\band (no|nothing)\b|\bnothing of\b`)

func TestEveryPackageSaysWhatItIsForAndMustNotKnow(t *testing.T) {
	comments := map[string]string{}
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(name)
		comments[folder] += file.Doc.Text()
	}
	for folder, comment := range comments {
		switch {
		case comment == "":
			t.Errorf("%s has no package comment: say what it is for and what it must not know", folder)
		case strings.HasPrefix(comment, "Command "): // a main package is wiring, its borders are those of what it wires
		case !strings.HasPrefix(comment, "Package "):
			t.Errorf("%s: the package comment begins with %q, not with Package or Command", folder, firstLine(comment))
		case !ignorance.MatchString(strings.ReplaceAll(comment, "\n", " ")):
			t.Errorf("%s: the package comment does not say what the package must not know:\n%s", folder, comment)
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// strangers are traces of a machine: paths of one developer's disk, and hosts that only a build machine talks to. The
// test looks for them in itself as well, so it does not spell them.
var strangers = regexp.MustCompile(strings.Join([]string{
	`(^|[^\w.~$}-])/(` + "wo" + `rk|ro` + `ot|fa` + `rm|ho` + `me/\w+)/`,
	`pro` + `xy\.golang\.`, `sum\.` + `golang\.`, `registry\.` + `npmjs`, `deb\.` + `debian`, `py` + `pi\.org`,
}, "|"))

func TestNoFileNamesAMachine(t *testing.T) {
	for _, name := range files(t) {
		for number, line := range strings.Split(read(t, name), "\n") {
			if found := strangers.FindString(line); found != "" {
				t.Errorf("%s:%d names %q, which is of one machine only", name, number+1, found)
			}
		}
	}
}
