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

// mustNotKnow matches the sentence of a package comment that lists what the package must not know. Reviews use it.
var mustNotKnow = regexp.MustCompile(`(?i)\bmust not\b|\bmust know nothing\b|\bknows (no|nothing)\b|\band (no|nothing)\b|\bnothing of\b`)

func TestEveryPackageCommentHasPurposeAndBorders(t *testing.T) {
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
			t.Errorf("%s has no package comment: describe its purpose and what it must not know", folder)
		case strings.HasPrefix(comment, "Command "): // a main package only combines other packages
		case !strings.HasPrefix(comment, "Package "):
			t.Errorf("%s: the package comment begins with %q, not with Package or Command", folder, firstLine(comment))
		case !mustNotKnow.MatchString(strings.ReplaceAll(comment, "\n", " ")):
			t.Errorf("%s: the package comment lacks what the package must not know:\n%s", folder, comment)
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// machineTraces matches traces of a machine: paths of a developer's disk, and hosts that only a build machine uses. The test
// searches this file as well, so the expressions do not contain them literally.
var machineTraces = regexp.MustCompile(strings.Join([]string{
	`(^|[^\w.~$}-])/(` + "wo" + `rk|ro` + `ot|fa` + `rm|ho` + `me/\w+)/`,
	`pro` + `xy\.golang\.`, `sum\.` + `golang\.`, `registry\.` + `npmjs`, `deb\.` + `debian`, `py` + `pi\.org`,
}, "|"))

func TestNoFileNamesAMachine(t *testing.T) {
	for _, name := range files(t) {
		for number, line := range strings.Split(read(t, name), "\n") {
			if found := machineTraces.FindString(line); found != "" {
				t.Errorf("%s:%d contains %q, which exists on one machine only", name, number+1, found)
			}
		}
	}
}
