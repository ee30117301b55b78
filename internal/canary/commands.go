package canary

import "strings"

// CommandAnnotation is the annotation with which users send a command to a release: <verb>@<run>.
const CommandAnnotation = "serin.dev/command"

// recordCommand records a command for the run that ends here, so that it is never executed again.
func (e *statusEdit) recordCommand() {
	if _, run, ok := strings.Cut(e.snapshot.Command, "@"); ok && run == e.snapshot.run() {
		e.serin.Command = e.snapshot.Command
	}
}

// hasCommand reports whether the user sent that command to this run and it was not executed yet.
func (s *Snapshot) hasCommand(verb string) bool {
	commandVerb, run, ok := strings.Cut(s.Command, "@")
	return ok && commandVerb == verb && run == s.run() && s.Command != s.serin().Command
}
