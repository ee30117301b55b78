//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is one kind of fault. inject returns when the fault has ended.
type fault struct {
	name, description string
	inject            func(*schedule, context.Context) error
}

// faults are all kinds of faults.
var faults = []fault{
	{"kill", "SIGKILL of a replica, often the leader", (*schedule).kill},
	{"suspend", "SIGSTOP of the leader until another replica has taken over, then SIGCONT", (*schedule).suspend},
	{"handover", "SIGTERM of the leader, in each phase of a release", (*schedule).handOver},
	{"lease", "deletion of the Lease", (*schedule).deleteLease},
	{"reset", "reset of the TCP connections of both replicas", (*schedule).reset},
	{"lost-answers", "connections that end after the request was executed, before its answer", (*schedule).loseAnswers},
	{"429", "storm of answers 429 with Retry-After", (*schedule).tooManyRequests},
	{"500", "storm of answers 500", (*schedule).internalErrors},
	{"slow", "slow answers of the API server", (*schedule).slowAnswers},
	{"partition", "partition between the leader and the API server until another replica has taken over", (*schedule).partition},
	{"apiserver", "SIGKILL and restart of the API server", (*schedule).restartAPIServer},
	{"etcd", "SIGKILL and restart of etcd", (*schedule).restartEtcd},
	{"clock", "restart of the leader in a time namespace with another monotonic clock", (*schedule).changeClock},
	{versionFault, "rollback to the previous version of Serin during releases, then an upgrade", (*schedule).changeVersion},
}

// versionFault is the kind of fault that needs the history of the repository.
const versionFault = "version"

// faultCount is the number of faults of one kind. A fault is survived when a replica leads afterwards, and no invariant was
// violated meanwhile.
type faultCount struct {
	fault
	injected, survived int
}

// schedule injects faults, in an order that the seed determines.
type schedule struct {
	*stage
	random *rand.Rand
	counts map[string]*faultCount
	// pending are the phases, by API, in which replicas have not yet handed over.
	pending []phaseOfAPI
}

type phaseOfAPI struct {
	api   *releaseAPI
	phase string
}

func newSchedule(s *stage) *schedule {
	all := &schedule{stage: s, random: s.stream(scheduleStream), counts: map[string]*faultCount{}}
	for _, f := range faults {
		if s.faults != nil && !slices.Contains(s.faults, f.name) {
			continue
		}
		if err := s.versions.noPrevious; err != nil && f.name == versionFault {
			s.say(fmt.Sprintf("no fault %s: %v", f.name, err))
			continue
		}
		all.counts[f.name] = &faultCount{fault: f}
		s.injected = append(s.injected, all.counts[f.name])
	}
	if all.counts["handover"] != nil {
		for _, api := range []*releaseAPI{canaryAPI, rolloutAPI} {
			for _, phase := range api.phases {
				all.pending = append(all.pending, phaseOfAPI{api, phase})
			}
		}
		all.random.Shuffle(len(all.pending), func(i, j int) { all.pending[i], all.pending[j] = all.pending[j], all.pending[i] })
	}
	if all.counts[versionFault] != nil {
		s.replacements = newReplacements(s.versions, all.random)
	}
	return all
}

// run injects each kind of fault at least once, until there were enough releases.
func (s *schedule) run(ctx context.Context) error {
	if len(s.counts) == 0 {
		return fmt.Errorf("there is no fault to inject: %v", s.faults)
	}
	until := s.clock.Now().Add(s.duration)
	for round := 0; round == 0 || !s.releasedEnough() || s.clock.Now().Before(until); round++ {
		var order []string
		for _, c := range s.injected {
			order = append(order, c.name)
		}
		for range max(0, len(s.pending)-1) {
			order = append(order, "handover")
		}
		s.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, name := range order {
			if round > 0 && s.releasedEnough() && !s.clock.Now().Before(until) {
				return nil
			}
			if err := s.inject(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// inject injects a fault, and waits until a replica leads afterwards.
func (s *schedule) inject(ctx context.Context, name string) error {
	count := s.counts[name]
	s.mu.Lock()
	violations := len(s.violations)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("fault %s took more than %s", name, waitTimeout))
	defer cancel()
	if err := count.inject(s, ctx); errors.Is(err, errMissed) {
		return nil
	} else if err != nil {
		return fmt.Errorf("fault %s: %w", name, err)
	}
	count.injected++
	if err := s.waitForLeader(ctx, s.clock.Now()); err != nil {
		s.violate("I9", "%v", err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.violations) == violations {
		count.survived++
	}
	return nil
}

func (s *schedule) announce(format string, args ...any) {
	s.say(s.clock.Now().UTC().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...))
}

// leading returns the replica that holds the Lease.
func (s *stage) leading() *replica {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	for _, r := range s.replicas {
		if r.name == s.leases.leader {
			return r
		}
	}
	return s.replicas[0]
}

// standby returns the replica that does not hold the Lease.
func (s *stage) standby() *replica {
	if s.leading() == s.replicas[0] {
		return s.replicas[1]
	}
	return s.replicas[0]
}

// waitForLeader waits until a replica renews the Lease after a time.
func (s *stage) waitForLeader(ctx context.Context, after time.Time) error {
	return s.leases.waitUntil(ctx, "a replica leads", func(_ string, renewed time.Time) bool { return renewed.After(after) })
}

// waitForTakeover waits until another replica than the former leader leads.
func (s *stage) waitForTakeover(ctx context.Context, former *replica) error {
	return s.leases.waitUntil(ctx, "another replica than "+former.name+" leads", func(leader string, _ time.Time) bool { return leader != "" && leader != former.name })
}

// pause waits for a random time between two limits.
func (s *schedule) pause(ctx context.Context, from, to time.Duration) error {
	select {
	case <-s.clock.After(from + time.Duration(s.random.Int64N(int64(to-from)))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *schedule) kill(ctx context.Context) error {
	killed := s.leading()
	if s.random.IntN(4) == 0 {
		killed = s.replicas[s.random.IntN(len(s.replicas))]
	}
	if err := s.pause(ctx, 0, 2*time.Second); err != nil {
		return err
	}
	s.announce("kill %s", killed.name)
	return killed.kill()
}

// suspend lets the suspended leader continue only when its successor has written, and returns when it has ended: it must not write
// in between.
func (s *schedule) suspend(ctx context.Context) error {
	suspended, successor := s.leading(), s.standby()
	written, starts := successor.writeCount(), suspended.startCount()
	s.announce("suspend %s", suspended.name)
	if err := suspended.signal(unix.SIGSTOP); err != nil {
		return err
	}
	err := s.waitForTakeover(ctx, suspended)
	if err == nil {
		err = s.poll(ctx, "the successor writes", func() bool { return successor.writeCount() > written })
	}
	s.announce("resume %s", suspended.name)
	if err = errors.Join(err, suspended.signal(unix.SIGCONT)); err != nil {
		return err
	}
	return s.poll(ctx, "the suspended process ends", func() bool { return suspended.startCount() > starts })
}

// handOver terminates the leader in one of the phases in which that has not happened yet.
func (s *schedule) handOver(ctx context.Context) error {
	if len(s.pending) == 0 {
		leader := s.leading()
		s.announce("terminate %s", leader.name)
		return leader.terminate(ctx)
	}
	wanted := s.pending[0]
	s.pending = s.pending[1:]
	return s.handOverIn(ctx, wanted)
}

// handOverDuringInitialization hands over while the first versions are deployed.
func (s *schedule) handOverDuringInitialization(ctx context.Context) error {
	if len(s.pending) == 0 {
		return nil
	}
	if err := s.waitForLeader(ctx, time.Time{}); err != nil {
		return err
	}
	for _, api := range []*releaseAPI{canaryAPI, rolloutAPI} {
		initial := phaseOfAPI{api, api.phases[0]}
		i := slices.Index(s.pending, initial)
		s.pending[0], s.pending[i] = s.pending[i], s.pending[0]
		if err := s.inject(ctx, "handover"); err != nil {
			return err
		}
	}
	return nil
}

// errMissed is why a fault was not injected: the first versions are deployed only once.
var errMissed = errors.New("no application is in this phase any more")

// handOverIn terminates the leader while a release is in a phase. If the release leaves the phase before the leader has ended, the
// next leader is terminated in the phase.
func (s *schedule) handOverIn(ctx context.Context, wanted phaseOfAPI) error {
	for {
		ended, err := s.terminateIn(ctx, wanted)
		if ended || err != nil {
			return err
		}
		if err := s.waitForLeader(ctx, s.clock.Now()); err != nil {
			return err
		}
	}
}

// terminateIn terminates the leader when a release is in a phase, and reports whether the release was still in it when the leader
// had ended.
func (s *schedule) terminateIn(ctx context.Context, wanted phaseOfAPI) (bool, error) {
	var found *app
	inPhase := func(a *app) bool {
		object := s.history.latest(a.kind, a.name)
		return a.releaseAPI == wanted.api && object != nil && a.phase(object) == wanted.phase
	}
	err := s.history.waitUntil(ctx, fmt.Sprintf("a %s is in phase %s", wanted.api.name, wanted.phase), waitTimeout, func() error {
		missed := wanted.phase == wanted.api.phases[0]
		for _, a := range s.apps {
			if inPhase(a) {
				found = a
				return nil
			}
			missed = missed && (a.releaseAPI != wanted.api || a.checkIdle(s.history, a.name) == nil)
		}
		if missed {
			return nil
		}
		return errUnobserved
	})
	if err != nil {
		return false, err
	}
	if found == nil {
		s.announce("no %s is in phase %s any more", wanted.api.name, wanted.phase)
		return false, errMissed
	}
	leader := s.leading()
	s.announce("terminate %s while %s is in phase %s", leader.name, found.name, wanted.phase)
	if err := leader.terminate(ctx); err != nil {
		return false, err
	}
	seen := s.history.since(found.kind, found.name, s.clock.Now())
	return found.phase(seen[0].object) == wanted.phase, nil
}

func (s *schedule) deleteLease(ctx context.Context) error {
	s.announce("delete the Lease")
	s.leases.excuse()
	err := s.retry(ctx, "delete the Lease", func() error {
		err := s.cluster.Client.CoordinationV1().Leases(s.namespace).Delete(ctx, "serin", metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.poll(ctx, "the former leader notices", s.leases.isNobodyExcused)
}

func (s *schedule) reset(ctx context.Context) error {
	s.announce("reset connections")
	for range 3 {
		for _, r := range s.replicas {
			r.proxy.ResetConnections()
		}
		if err := s.pause(ctx, 500*time.Millisecond, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// disturbAll disturbs the requests of both replicas for some seconds.
func (s *schedule) disturbAll(ctx context.Context, what string, d disturbance) error {
	d.share = 0.2 + 0.4*s.random.Float64()
	s.announce("%s: %.0f %% of the requests", what, 100*d.share)
	for _, r := range s.replicas {
		r.disturb(d)
		defer r.disturb(disturbance{})
	}
	return s.pause(ctx, 4*time.Second, 10*time.Second)
}

func (s *schedule) loseAnswers(ctx context.Context) error {
	return s.disturbAll(ctx, "lose answers", disturbance{lost: true})
}

func (s *schedule) tooManyRequests(ctx context.Context) error {
	return s.disturbAll(ctx, "answer 429", disturbance{status: http.StatusTooManyRequests})
}

func (s *schedule) internalErrors(ctx context.Context) error {
	return s.disturbAll(ctx, "answer 500", disturbance{status: http.StatusInternalServerError})
}

func (s *schedule) slowAnswers(ctx context.Context) error {
	return s.disturbAll(ctx, "delay requests", disturbance{delay: time.Duration(200+s.random.IntN(2000)) * time.Millisecond})
}

func (s *schedule) partition(ctx context.Context) error {
	leader := s.leading()
	s.announce("partition %s", leader.name)
	leader.proxy.Partition()
	defer leader.proxy.Heal()
	if err := s.waitForTakeover(ctx, leader); err != nil {
		return err
	}
	return s.pause(ctx, 0, 3*time.Second)
}

func (s *schedule) restartAPIServer(ctx context.Context) error {
	return s.restartPart(ctx, "apiserver")
}
func (s *schedule) restartEtcd(ctx context.Context) error { return s.restartPart(ctx, "etcd") }

func (s *schedule) restartPart(ctx context.Context, name string) error {
	s.announce("kill %s", name)
	if err := s.cluster.KillPart(name); err != nil {
		return err
	}
	err := s.pause(ctx, 0, 3*time.Second)
	if err = errors.Join(err, s.cluster.RestartPart(name)); err != nil {
		return err
	}
	if err := s.cluster.WaitForAPIServer(ctx); err != nil {
		return err
	}
	s.announce("%s is ready", name)
	return nil
}

// drawClockOffset returns an offset of the monotonic clock: up to a year ahead, or a few minutes behind. The clock must not be
// negative, and the machine may have been started minutes ago.
func drawClockOffset(random *rand.Rand) time.Duration {
	if random.IntN(3) == 0 {
		return -time.Duration(random.IntN(120)) * time.Second
	}
	return time.Duration(random.IntN(365*24)) * time.Hour
}

func (s *schedule) changeClock(ctx context.Context) error {
	leader := s.leading()
	offset := drawClockOffset(s.random)
	s.announce("restart %s with its monotonic clock changed by %s", leader.name, offset)
	leader.setClock(offset)
	starts := leader.startCount()
	if err := leader.kill(); err != nil {
		return err
	}
	return s.poll(ctx, "the replica starts again", func() bool { return leader.startCount() > starts })
}
