package canary

import "strings"

// CommandAnnotation is the annotation by which users command a release: <verb>@<run>.
const CommandAnnotation = "serin.dev/command"

// recordCommand records a command that was given for the run that ends here: it is never acted on again.
func (e *statusEdit) recordCommand() {
	if _, run, ok := strings.Cut(e.snapshot.Command, "@"); ok && run == e.snapshot.run() {
		e.serin.Command = e.snapshot.Command
	}
}

// hasCommand is true when a person gave that command for this run and it was not carried out yet.
func (s *Snapshot) hasCommand(verb string) bool {
	given, run, ok := strings.Cut(s.Command, "@")
	return ok && given == verb && run == s.run() && s.Command != s.serin().Command
}
