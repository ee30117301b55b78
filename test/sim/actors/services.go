package actors

import (
	"fmt"
	"time"

	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
)

// Services deliver the queries of all processes to external services, and the answers back.
type Services struct {
	World *sim.World
	// Pending counts the queries of each process that have no answer yet.
	Pending Pending

	calls map[string]int
}

// NewServices returns services that have received no query.
func NewServices(w *sim.World) *Services {
	return &Services{World: w, Pending: Pending{}, calls: map[string]int{}}
}

// CountCall returns how often something was called, including this time, so that each call draws from a separate random stream.
func (s *Services) CountCall(id string) int {
	s.calls[id]++
	return s.calls[id]
}

// AnswerStream returns the random stream for the answer to a call.
func (s *Services) AnswerStream(id string) *sim.Stream {
	return s.World.Draws.Stream(fmt.Sprintf("answer/%s/%d", id, s.CountCall(id)))
}

// Call is a query that has reached its receiver.
type Call struct {
	QuerySent

	// Scheduled reports whether a failure is scheduled for this query.
	Scheduled func(sim.Failure) bool
	// Describe describes an answer to this query for the trace.
	Describe func(release.Answer) string
	// Then executes an action after an answer, in which the process sends what it has queued (Flush), or crashes.
	Then  func(action func())
	Flush func()

	services *Services
	instance *sim.Instance
	queries  *queryrunner.Runner
	query    queryrunner.RunningQuery
}

// Receive delivers a query to its receiver. It returns false if the process crashes before. The answer is lost if the process
// crashes before it arrives. name is the name of the query in the result of a run.
func (s *Services) Receive(i *sim.Instance, queries *queryrunner.Runner, query queryrunner.RunningQuery, name string) (*Call, bool) {
	c := &Call{
		QuerySent: QuerySent{Instance: i.Name, Key: query.Key, Query: query.Query}, Scheduled: s.World.CountQuery(name),
		services: s, instance: i, queries: queries, query: query,
	}
	if c.Scheduled(sim.CrashBeforeQuery) {
		i.CrashAndRestart("before it sends " + query.Query.ID)
		return nil, false
	}
	s.World.Publish(c.QuerySent)
	s.Pending[i]++
	return c, true
}

// CrashDuring crashes the process after a delay, if this failure is scheduled.
func (c *Call) CrashDuring(after time.Duration) {
	if c.Scheduled(sim.CrashDuringQuery) {
		c.instance.After(after, func() { c.instance.CrashAndRestart("while it waits for " + c.Query.ID) })
	}
}

// AnswerAfter answers after a delay.
func (c *Call) AnswerAfter(after time.Duration, answer release.Answer) {
	c.CrashDuring(after / 2)
	c.instance.After(after, func() { c.Answer(answer) })
}

// Answer delivers an answer to the process that sent the query.
func (c *Call) Answer(answer release.Answer) {
	c.services.Pending[c.instance]--
	c.services.World.Publish(QueryAnswered{QuerySent: c.QuerySent, Answer: answer})
	c.services.World.Trace("  %s: %s", c.Key.Name, c.Describe(answer))
	c.queries.FinishQuery(c.query, answer)
	if c.Scheduled(sim.CrashAfterAnswer) {
		c.Then(func() { c.instance.CrashAndRestart("after the answer to " + c.Query.ID) })
		return
	}
	c.Then(c.Flush)
}
