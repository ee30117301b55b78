package cluster

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// scaler is one HorizontalPodAutoscaler at work.
type scaler struct {
	cluster *Cluster
	key     types.NamespacedName
	draws   *sim.Stream
	loads   *sim.Stream
	waking  bool
	// load is what all pods together have to do, in thousandths of what one pod can.
	load int
	// patience is how long fewer pods must have been enough before some are taken away; since is since when they were.
	patience time.Duration
	since    time.Time
}

func (c *Cluster) scalerWritten(e *store.Event) {
	s := c.scalers.get(e.Key, func() *scaler {
		s := &scaler{cluster: c, key: e.Key, draws: c.stream("hpa", e.Key), loads: c.stream("load", e.Key)}
		s.load, s.patience = s.loads.Int(200, 4500), s.draws.Skewed(15*time.Second, 5*time.Minute)
		s.changeLoad()
		return s
	})
	if e.Type == store.Added || e.Type == store.Modified && !jsontree.Equal(e.New.Content()["spec"], e.Old.Content()["spec"]) {
		s.wake()
	}
}

// scaleTargetWritten notifies the autoscalers of a Deployment.
func (c *Cluster) scaleTargetWritten(e *store.Event) {
	if e.Type == store.Modified && counted(e.New) == counted(e.Old) {
		return
	}
	for _, s := range c.scalers.ordered {
		if kind, key := s.target(); kind == e.Kind && key == e.Key {
			s.wake()
		}
	}
}

// counted is what an autoscaler reads of its target.
func counted(v *store.Version) [2]int {
	return [2]int{number(object(v.Content(), "spec"), "replicas", 1), number(object(v.Content(), "status"), "readyReplicas", 0)}
}

// changeLoad plans the next change of the load.
func (s *scaler) changeLoad() {
	c, t := s.cluster, s.cluster.world.Faults
	if !t.Has(LoadChanges) {
		return
	}
	c.world.After(s.loads.Between(time.Minute, 10*time.Minute), func() {
		load := s.loads.Int(200, 9500)
		if c.quiet || !t.Has(LoadChanges) {
			return
		}
		if c.loads++; t.TakesPlace(fmt.Sprintf("%s#%d", LoadChanges, c.loads)) {
			s.load = load
			s.wake()
		}
		s.changeLoad()
	})
}

// target is what is scaled, a Deployment or one of the other kinds; empty when it is something else, or the autoscaler is
// gone.
func (s *scaler) target() (schema.GroupKind, types.NamespacedName) {
	v := s.cluster.world.Server.Peek(scalerKind, s.key)
	if v == nil {
		return schema.GroupKind{}, types.NamespacedName{}
	}
	ref := object(v.Content(), "spec", "scaleTargetRef")
	for _, kind := range append([]schema.GroupKind{deploymentKind}, s.cluster.o.Scaled...) {
		if text(ref, "kind") == kind.Kind {
			return kind, types.NamespacedName{Namespace: s.key.Namespace, Name: text(ref, "name")}
		}
	}
	return schema.GroupKind{}, types.NamespacedName{}
}

// wake plans a decision. It is made later, on what was counted now.
func (s *scaler) wake() {
	v := s.cluster.world.Server.Peek(s.target())
	if s.waking || v == nil {
		return
	}
	s.waking = true
	seen := counted(v)[0]
	s.cluster.plan(s.draws.Between(time.Second, 15*time.Second), func() {
		s.waking = false
		s.scale(seen)
	})
}

// scale writes how many pods the load needs. seen is how many there were when the load of one was measured: where that
// changed meanwhile, the result is wrong, and the next decision corrects it.
func (s *scaler) scale(seen int) {
	c := s.cluster
	of, target := c.world.Server.Peek(scalerKind, s.key), c.world.Server.Peek(s.target())
	if of == nil || of.Deleting() || target == nil || target.Deleting() {
		return
	}
	now := counted(target)
	if now[0] == 0 || seen == 0 || now[1] == 0 {
		s.since = time.Time{}
		return // without pods there is nothing to measure, and what has none is left alone
	}
	spec := object(of.Content(), "spec")
	least, most := number(spec, "minReplicas", 1), number(spec, "maxReplicas", 1)
	wanted := min(max((now[0]*s.load+1000*seen-1)/(1000*seen), least), most)
	if now[0] != seen {
		s.wake()
	}
	if !s.patient(wanted, now[0], most) {
		return
	}
	obj := written(target)
	obj.Object["spec"] = with(object(obj.Object, "spec"), "replicas", int64(wanted))
	if !c.wrote("the replicas of "+target.Kind().Kind+" "+target.Key().Name, c.scaling.Update(background(), obj)) {
		return
	}
	c.world.Trace("hpa %s scales %s from %d to %d", s.key.Name, target.Key().Name, now[0], wanted)
	s.report(now[0], wanted)
}

// patient is true when a number of pods is to be written. Pods beyond the greatest allowed number go at once.
func (s *scaler) patient(wanted, is, most int) bool {
	now := s.cluster.world.Now()
	switch {
	case wanted == is:
		s.since = time.Time{}
		return false
	case wanted > is || is > most:
		s.since = time.Time{}
		return true
	case s.since.IsZero():
		s.since = now
		s.cluster.plan(s.patience, s.wake)
		return false
	case now.Before(s.since.Add(s.patience)):
		return false
	default:
		s.since = time.Time{}
		return true
	}
}

func (s *scaler) report(is, wanted int) {
	v := s.cluster.world.Server.Peek(scalerKind, s.key)
	if v == nil {
		return
	}
	obj := written(v)
	obj.Object["status"] = map[string]any{
		"currentReplicas": int64(is), "desiredReplicas": int64(wanted),
	}
	s.cluster.wrote("the status of HorizontalPodAutoscaler "+s.key.Name, s.cluster.scaling.Status().Update(background(), obj))
}
