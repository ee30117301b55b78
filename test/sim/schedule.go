package sim

import (
	"container/heap"
	"time"
)

// agenda contains the scheduled actions of a run. Actions that are due at the same time run in the order in which they were
// scheduled.
type agenda struct {
	items []*scheduled
	count uint64
}

// scheduled is an action that will run at a certain time.
type scheduled struct {
	at    time.Time
	order uint64
	run   func()
	index int // in the heap; negative once it was removed
}

func (a *agenda) schedule(at time.Time, run func()) *scheduled {
	a.count++
	d := &scheduled{at: at, order: a.count, run: run}
	heap.Push(a, d)
	return d
}

func (a *agenda) cancel(d *scheduled) {
	if d != nil && d.index >= 0 {
		heap.Remove(a, d.index)
	}
}

func (a *agenda) next() *scheduled {
	if len(a.items) == 0 {
		return nil
	}
	d, ok := heap.Pop(a).(*scheduled)
	if !ok {
		return nil
	}
	return d
}

// Len implements heap.Interface, as the methods below do.
func (a *agenda) Len() int { return len(a.items) }

func (a *agenda) Less(i, j int) bool {
	x, y := a.items[i], a.items[j]
	if !x.at.Equal(y.at) {
		return x.at.Before(y.at)
	}
	return x.order < y.order
}

func (a *agenda) Swap(i, j int) {
	a.items[i], a.items[j] = a.items[j], a.items[i]
	a.items[i].index, a.items[j].index = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	if d, ok := x.(*scheduled); ok {
		d.index = len(a.items)
		a.items = append(a.items, d)
	}
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(a.items) - 1
	d := a.items[last]
	a.items[last] = nil
	a.items = a.items[:last]
	d.index = -1
	return d
}
