package sim

import (
	"container/heap"
	"time"
)

// agenda holds what is due when. Two things that are due at one moment happen in the order in which they were planned.
type agenda struct {
	items   []*due
	planned uint64
}

// due is one thing that will happen.
type due struct {
	at    time.Time
	order uint64
	run   func()
	index int // in the heap; negative when it is not there any more
}

func (a *agenda) plan(at time.Time, run func()) *due {
	a.planned++
	d := &due{at: at, order: a.planned, run: run}
	heap.Push(a, d)
	return d
}

func (a *agenda) cancel(d *due) {
	if d != nil && d.index >= 0 {
		heap.Remove(a, d.index)
	}
}

func (a *agenda) next() *due {
	if len(a.items) == 0 {
		return nil
	}
	d, ok := heap.Pop(a).(*due)
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
	if d, ok := x.(*due); ok {
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
