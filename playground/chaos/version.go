//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/serin-dev/serin/playground/build"
)

// version is a version of Serin.
type version struct{ name, program string }

// versions are the versions under test.
type versions struct {
	current, previous version
	// noPrevious is why there is no previous version: the repository is a shallow clone.
	noPrevious error
}

func buildVersions(ctx context.Context, b *build.Builder) (v versions, err error) {
	v.current.name, v.previous.name = "current", "previous"
	if v.current.program, err = b.Serin(ctx); err != nil {
		return v, err
	}
	v.previous.program, err = b.PreviousSerin(ctx)
	if errors.Is(err, build.ErrNoHistory) {
		v.noPrevious, err = err, nil
	}
	return v, err
}

// replacement is one direction in which a version of Serin replaces the other one.
type replacement struct {
	name string
	to   version
	// phases are those of a release in which it is injected. The next one comes first.
	phases []phaseOfAPI
	// met are the phases in which a release was when the leader of the other version had ended.
	met map[phaseOfAPI]bool
}

// newReplacements returns a rollback and an upgrade, which meet the phases in different orders. The first versions of the
// applications are deployed by the current version.
func newReplacements(v versions, random *rand.Rand) []*replacement {
	all := []*replacement{{name: "rollback", to: v.previous}, {name: "upgrade", to: v.current}}
	for _, r := range all {
		r.met = map[phaseOfAPI]bool{}
		for _, api := range []*releaseAPI{canaryAPI, rolloutAPI} {
			for _, phase := range api.phases[1:] {
				r.phases = append(r.phases, phaseOfAPI{api, phase})
			}
		}
		random.Shuffle(len(r.phases), func(i, j int) { r.phases[i], r.phases[j] = r.phases[j], r.phases[i] })
	}
	return all
}

// meetPhase records that a release was in the next phase, and moves the phase behind the others.
func (r *replacement) meetPhase() {
	r.met[r.phases[0]] = true
	r.phases = append(r.phases[1:len(r.phases):len(r.phases)], r.phases[0])
}

// changeVersion rolls Serin back to the previous version and upgrades it again. Other faults meet the current version only, so that
// a defect of the previous one that has been fixed since is not reported.
func (s *schedule) changeVersion(ctx context.Context) error {
	for _, r := range s.replacements {
		if err := s.replaceVersion(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// replaceVersion does what an upgrade of a Deployment does: a standby of the other version starts, and the leader is terminated.
// It returns when the other version has written.
func (s *schedule) replaceVersion(ctx context.Context, r *replacement) error {
	for _, replica := range s.replicas {
		replica.setVersion(r.to)
	}
	standby := s.standby()
	s.announce("%s: replace %s", r.name, standby.name)
	starts := standby.startCount()
	if err := standby.terminate(ctx); err != nil {
		return err
	}
	if err := s.poll(ctx, "the standby starts again", func() bool { return standby.startCount() > starts }); err != nil {
		return err
	}
	met, err := s.terminateIn(ctx, r.phases[0])
	if err != nil {
		return err
	}
	if met {
		r.meetPhase()
	}
	written := s.writeCount()
	return s.poll(ctx, "the "+r.to.name+" version leads and writes", func() bool { return s.leases.leads(r.to.name) && s.writeCount() > written })
}

// writeCount returns the number of writes of all replicas so far.
func (s *stage) writeCount() (total int) {
	for _, r := range s.replicas {
		total += r.writeCount()
	}
	return total
}
