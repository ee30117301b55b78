package canary

import "github.com/serin-dev/serin/internal/release"

// Refused is the decision when an effect was refused for a reason that a person must remove: nothing of the decision is
// recorded, and the sentence is told in the condition Blocked and in an event.
func Refused(s Snapshot, gates release.Gates, sentence string) Decision {
	all := append(release.Gates{release.Fails("refused", release.ByPerson, sentence)}, gates...)
	for i := range all {
		all[i].Probe = nil
	}
	d := barred(s, all[:1])
	d.Gates = all
	return d
}

// Faulted is the decision about a Canary at which a pass of Serin itself broke, before or after it was decided about: all
// that is known of it is its status.
func Faulted(s Snapshot, sentence string) Decision {
	return barred(s, release.Gates{release.Fails("fault", release.ByPerson, sentence)})
}
