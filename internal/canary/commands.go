package canary

import "strings"

// CommandAnnotation is the annotation by which users command a release: <verb>@<run>.
const CommandAnnotation = "serin.dev/command"

// obeyed records a command that was given for the run that ends here: it is never acted on again.
func (e *edit) obeyed() {
	if _, run, ok := strings.Cut(e.s.Command, "@"); ok && run == e.s.run() {
		e.serin.Command = e.s.Command
	}
}

// commanded is true when a person gave that command for this run and it was not carried out yet.
func (s *Snapshot) commanded(verb string) bool {
	given, run, ok := strings.Cut(s.Command, "@")
	return ok && given == verb && run == s.run() && s.Command != s.serin().Command
}
