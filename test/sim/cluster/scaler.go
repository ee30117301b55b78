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

// autoscaler simulates one HorizontalPodAutoscaler.
type autoscaler struct {
	cluster   *Cluster
	key       types.NamespacedName
	draws     *sim.Stream
	loads     *sim.Stream
	scheduled bool
	// load is the total load, in thousandths of the capacity of one pod.
	load int
	// scaleDownDelay is how long fewer pods must have been sufficient before some are removed; lowSince is since when they
	// were.
	scaleDownDelay time.Duration
	lowSince       time.Time
}

func (c *Cluster) scalerWritten(e *store.Event) {
	s := c.scalers.get(e.Key, func() *autoscaler {
		s := &autoscaler{cluster: c, key: e.Key, draws: c.stream("hpa", e.Key), loads: c.stream("load", e.Key)}
		s.load, s.scaleDownDelay = s.loads.Int(200, 4500), s.draws.Skewed(15*time.Second, 5*time.Minute)
		s.changeLoad()
		return s
	})
	if e.Type == store.Added || e.Type == store.Modified && !jsontree.Equal(e.New.Content()["spec"], e.Old.Content()["spec"]) {
		s.scheduleDecision()
	}
}

// scaleTargetWritten notifies the autoscalers of a Deployment.
func (c *Cluster) scaleTargetWritten(e *store.Event) {
	if e.Type == store.Modified && counted(e.New) == counted(e.Old) {
		return
	}
	for _, s := range c.scalers.ordered {
		if kind, key := s.target(); kind == e.Kind && key == e.Key {
			s.scheduleDecision()
		}
	}
}

// counted returns what an autoscaler reads from its target.
func counted(v *store.Version) [2]int {
	return [2]int{number(object(v.Content(), "spec"), "replicas", 1), number(object(v.Content(), "status"), "readyReplicas", 0)}
}

// changeLoad schedules the next change of the load.
func (s *autoscaler) changeLoad() {
	c, t := s.cluster, s.cluster.world.Faults
	if !t.Has(LoadChanges) {
		return
	}
	c.world.After(s.loads.Between(time.Minute, 10*time.Minute), func() {
		load := s.loads.Int(200, 9500)
		if c.quiesced || !t.Has(LoadChanges) {
			return
		}
		if c.loads++; t.Admit(fmt.Sprintf("%s#%d", LoadChanges, c.loads)) {
			s.load = load
			s.scheduleDecision()
		}
		s.changeLoad()
	})
}

// target returns the scaled object, or an empty key if its kind is not scaled or the autoscaler was deleted.
func (s *autoscaler) target() (schema.GroupKind, types.NamespacedName) {
	v := s.cluster.world.Server.Peek(scalerKind, s.key)
	if v == nil {
		return schema.GroupKind{}, types.NamespacedName{}
	}
	ref := object(v.Content(), "spec", "scaleTargetRef")
	for _, kind := range append([]schema.GroupKind{deploymentKind}, s.cluster.options.Scaled...) {
		if text(ref, "kind") == kind.Kind {
			return kind, types.NamespacedName{Namespace: s.key.Namespace, Name: text(ref, "name")}
		}
	}
	return schema.GroupKind{}, types.NamespacedName{}
}

// scheduleDecision schedules a decision, which is based on the current number of pods.
func (s *autoscaler) scheduleDecision() {
	v := s.cluster.world.Server.Peek(s.target())
	if s.scheduled || v == nil {
		return
	}
	s.scheduled = true
	seen := counted(v)[0]
	s.cluster.schedule(s.draws.Between(time.Second, 15*time.Second), func() {
		s.scheduled = false
		s.scale(seen)
	})
}

// scale writes the number of pods that the load requires. seen is the number of pods when the load was measured. If it has
// changed since, the result is wrong, and the next decision corrects it.
func (s *autoscaler) scale(seen int) {
	c := s.cluster
	of, target := c.world.Server.Peek(scalerKind, s.key), c.world.Server.Peek(s.target())
	if of == nil || of.Deleting() || target == nil || target.Deleting() {
		return
	}
	now, spec := counted(target), object(of.Content(), "spec")
	least, most := number(spec, "minReplicas", 1), number(spec, "maxReplicas", 1)
	wanted := most // too many pods are removed without a measurement
	if now[0] <= most {
		if now[0] == 0 || seen == 0 || now[1] == 0 {
			s.lowSince = time.Time{}
			return // without pods there is no measurement, and a target that is scaled to zero is not scaled
		}
		wanted = min(max((now[0]*s.load+1000*seen-1)/(1000*seen), least), most)
	}
	if now[0] != seen {
		s.scheduleDecision()
	}
	if !s.patient(wanted, now[0], most) {
		return
	}
	obj := editable(target)
	obj.Object["spec"] = with(object(obj.Object, "spec"), "replicas", int64(wanted))
	if !c.checkWrite("the replicas of "+target.Kind().Kind+" "+target.Key().Name, c.scaling.Update(background(), obj)) {
		return
	}
	c.world.Trace("hpa %s scales %s from %d to %d", s.key.Name, target.Key().Name, now[0], wanted)
	s.report(now[0], wanted)
}

// patient reports whether a number of pods has to be written. Pods beyond the maximum are removed immediately.
func (s *autoscaler) patient(wanted, is, most int) bool {
	now := s.cluster.world.Now()
	switch {
	case wanted == is:
		s.lowSince = time.Time{}
		return false
	case wanted > is || is > most:
		s.lowSince = time.Time{}
		return true
	case s.lowSince.IsZero():
		s.lowSince = now
		s.cluster.schedule(s.scaleDownDelay, s.scheduleDecision)
		return false
	case now.Before(s.lowSince.Add(s.scaleDownDelay)):
		return false
	default:
		s.lowSince = time.Time{}
		return true
	}
}

func (s *autoscaler) report(is, wanted int) {
	v := s.cluster.world.Server.Peek(scalerKind, s.key)
	if v == nil {
		return
	}
	obj := editable(v)
	obj.Object["status"] = map[string]any{
		"currentReplicas": int64(is), "desiredReplicas": int64(wanted),
	}
	s.cluster.checkWrite("the status of HorizontalPodAutoscaler "+s.key.Name, s.cluster.scaling.Status().Update(background(), obj))
}
