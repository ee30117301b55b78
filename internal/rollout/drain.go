package rollout

import (
	"cmp"
	"slices"
	"time"
)

// Old is a ReplicaSet that is neither the new nor the stable one.
type Old struct {
	Name     string
	Revision int64
	Scaled
	// Deadline is the moment from which it may go; zero: none was set.
	Deadline time.Time
	// Referenced is true while a Service, a route or the status names it.
	Referenced bool
}

// Drain says how the pods of old ReplicaSets go.
type Drain struct {
	Now    time.Time
	Limits Limits
	// Routed is true where a router shares the traffic, so that old pods do not get any by being there.
	Routed bool
	// Promoted is true when the new revision is the stable one.
	Promoted bool
	// Delay for which pods stay after promotion; none at all with a stable revision that shrinks with its traffic.
	Delay time.Duration
	// Most is how many may wait out the delay; nil: all.
	Most *int32
	// Short is true while stable pods are missing: pods that are not available must not compete with them for room.
	Short bool
	// NewAvailable and StableAvailable pods are there. Where both are one ReplicaSet, one of them is 0.
	NewAvailable, StableAvailable int32
}

// Fate is what becomes of one old ReplicaSet.
type Fate struct {
	Name string
	// Pods it shall have.
	Pods int32
	// Deadline to be set; zero: as it is.
	Deadline time.Time
	// Until is the moment from which it may go, where it waits for that.
	Until time.Time
}

// Fates are what becomes of old ReplicaSets, the newest revision first. Those that nothing becomes of are not among them.
//
// Of pods that are not available nothing is lost, so those go first. Beyond them, as many go as leave enough pods of all
// revisions available.
func (d Drain) Fates(old []Old) []Fate {
	old = slices.Clone(old)
	slices.SortStableFunc(old, func(a, b Old) int { return cmp.Compare(b.Revision, a.Revision) })
	budget := d.NewAvailable + d.StableAvailable - d.Limits.LeastAvailable()
	for _, rs := range old {
		budget += min(rs.Available, rs.Spec)
	}
	var fates []Fate
	var waiting int32
	for _, rs := range old {
		if rs.Spec == 0 {
			continue
		}
		fate := d.fate(rs, &waiting)
		spare := rs.Spec - min(rs.Available, rs.Spec) // not available
		if healthy := rs.Spec - spare; fate.Until.IsZero() && fate.Pods < healthy {
			gone := d.spared(healthy-fate.Pods, budget)
			fate.Pods = healthy - gone
			if !d.Routed {
				budget -= gone
			}
		}
		if fate.Pods != rs.Spec || !fate.Deadline.IsZero() || !fate.Until.IsZero() {
			fates = append(fates, fate)
		}
	}
	return fates
}

// spared is how many available pods may go. Where they get traffic each of them counts; where a router keeps it from them
// they go at once, unless pods are missing as it is.
func (d Drain) spared(pods, budget int32) int32 {
	switch {
	case budget <= 0:
		return 0
	case d.Routed:
		return pods
	default:
		return min(pods, budget)
	}
}

// fate is what becomes of one, were there no bound for pods that are not available. waiting counts those that wait out a
// delay.
func (d Drain) fate(rs Old, waiting *int32) Fate {
	goes, stays := Fate{Name: rs.Name}, Fate{Name: rs.Name, Pods: rs.Spec}
	if !d.Routed {
		return goes // its pods get traffic as long as they are there
	}
	if rs.Deadline.IsZero() {
		switch {
		case rs.Referenced && d.Short:
			stays.Pods = min(rs.Spec, max(rs.Available, 1))
			return stays
		case rs.Referenced:
			return stays
		case !d.Promoted || d.Delay <= 0:
			return goes
		}
	}
	deadline := rs.Deadline
	if latest := d.Now.Add(d.Delay); deadline.IsZero() || deadline.After(latest) { // or a clock was set back since
		deadline = latest
		stays.Deadline = deadline
	}
	*waiting++
	if !d.Now.Before(deadline) || d.Most != nil && *waiting > *d.Most {
		return goes
	}
	stays.Until = deadline
	return stays
}

// delays are the fates of old ReplicaSets that get no traffic at all: each waits out its delay with as many pods as the
// Rollout asks for, and then goes, whatever is available elsewhere.
func (d Drain) delays(old []Old, pods int32) []Fate {
	old = slices.Clone(old)
	slices.SortStableFunc(old, func(a, b Old) int { return cmp.Compare(b.Revision, a.Revision) })
	var fates []Fate
	var waiting int32
	for _, rs := range old {
		if rs.Spec == 0 || rs.Referenced {
			continue
		}
		fate := d.fate(rs, &waiting)
		if rs.Deadline.IsZero() && fate.Pods == 0 {
			fate.Deadline = time.Time{} // beyond those that may wait
		}
		if !rs.Deadline.IsZero() && !fate.Until.IsZero() {
			fate.Pods = pods
		}
		fates = append(fates, fate)
	}
	return fates
}
