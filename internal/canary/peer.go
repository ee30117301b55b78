package canary

import "github.com/serin-dev/serin/internal/release"

// Message says why Serin does not act on this Canary, and what to do.
func (p Peer) Message() string {
	return "Flagger acts on this Canary (" + p.Sign + "), so Serin does not: stop Flagger to let Serin go on, " +
		"or start Serin with -adopt-while-peer-runs where a person has split the Canaries between the two"
}

// standBack leaves everything to the other controller, the status included: whoever writes it would make the other
// decide again. It goes on by itself when the other is gone.
func standBack(s Snapshot) Decision {
	gate := release.WaitsFor("peer", release.ByPerson, s.Peer.Message())
	gate.Until = s.Peer.Until
	gates := release.Gates{gate}
	return Decision{
		Status: s.Status, Gates: gates, Wake: gates.Wake(),
		Events: []release.Event{{Type: release.Warning, Message: s.Peer.Message(), Standing: true, Private: true}},
	}
}
