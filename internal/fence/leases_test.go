package fence

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

const (
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/serin-system/leases"
	servicePath = "/api/v1/namespaces/shop/services/cart"
)

// shardedProcess is a process that leads and has two shards.
type shardedProcess struct {
	t      *testing.T
	clock  *testingclock.FakeClock
	leases *Leases
	server *fakeServer
}

func newShardedProcess(t *testing.T) *shardedProcess {
	t.Helper()
	clk := testingclock.NewFakeClock(time.Now())
	return &shardedProcess{t, clk, NewLeases(clk, lease, "serin", "serin-shard-0", "serin-shard-1"), &fakeServer{status: http.StatusOK}}
}

func (p *shardedProcess) send(ctx context.Context, method, path, body string) error {
	p.t.Helper()
	response, err := p.leases.Transport(p.server).RoundTrip(newRequest(ctx, p.t, method, path, body))
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// renew renews a Lease as the election does; an empty holder releases it.
func (p *shardedProcess) renew(name, holder string) {
	p.t.Helper()
	if err := p.send(p.t.Context(), http.MethodPut, leasesPath+"/"+name, leaseBody(name, holder)); err != nil {
		p.t.Fatal(err)
	}
}

// check compares the writes that the process may send: of no shard, and of each shard.
func (p *shardedProcess) check(when string, want ...bool) {
	p.t.Helper()
	for i, name := range []string{"", "serin-shard-0", "serin-shard-1"} {
		ctx := p.t.Context()
		if name != "" {
			ctx = WithLease(ctx, name)
		}
		if err := p.send(ctx, http.MethodPatch, servicePath, "{}"); (err == nil) != want[i] || err != nil && (!errors.Is(err, ErrNotLeader) || !strings.Contains(err.Error(), "serin")) {
			p.t.Errorf("%s: a write of shard %q: %v, want permitted %t", when, name, err, want[i])
		}
	}
}

func TestEachShardHasAFence(t *testing.T) {
	p := newShardedProcess(t)
	p.check("before any renewal", false, false, false)
	p.renew("serin-shard-0", "a")
	p.check("with a shard, without the leader Lease", false, false, false)
	p.renew("serin", "serin-shards-2")
	p.check("with both", true, true, false)
	p.clock.Step(lease / 2)
	p.renew("serin", "serin-shards-2")
	p.renew("serin-shard-1", "a")
	p.check("with all", true, true, true)
	p.clock.Step(lease / 2)
	p.check("after the first shard has expired", true, false, true)
	p.renew("serin-shard-1", "")
	p.check("after the second shard was released", true, false, false)
	p.server.status = http.StatusUnprocessableEntity // a patch that requires the holder
	if err := p.send(t.Context(), http.MethodPatch, leasesPath+"/serin", `[{"op":"test"}]`); err != nil {
		t.Fatal(err)
	}
	p.server.status = http.StatusOK
	p.check("after another process has acquired the leader Lease", false, false, false)
}

// TestASuspendedProcessWritesNothing: the process continues with a reconciliation of a shard that another replica has acquired
// since. Each of its own renewals permits only what it renews.
func TestASuspendedProcessWritesNothing(t *testing.T) {
	p := newShardedProcess(t)
	for _, name := range []string{"serin", "serin-shard-0", "serin-shard-1"} {
		p.renew(name, "a")
	}
	p.check("before the suspension", true, true, true)
	p.clock.Step(2 * lease)
	p.check("after the suspension", false, false, false)
	p.renew("serin", "serin-shards-2")
	p.check("after the leader Lease is renewed", true, false, false)
	p.server.status = http.StatusConflict
	p.renew("serin-shard-0", "a")
	p.server.status = http.StatusOK
	p.renew("serin-shard-1", "a")
	p.check("after a shard was found lost, and the other one renewed", true, false, true)
}

func TestAnUnknownShardPermitsNothing(t *testing.T) {
	p := newShardedProcess(t)
	p.renew("serin", "serin-shards-2")
	p.renew("serin-shard-7", "a") // ignored: this process has two shards
	if err := p.send(WithLease(t.Context(), "serin-shard-7"), http.MethodPatch, servicePath, "{}"); !errors.Is(err, ErrNotLeader) {
		t.Errorf("got %v", err)
	}
}

// TestAMemberLeaseHasNoFence: a process states that it is a member before it holds any Lease, and its own membership permits
// nothing.
func TestAMemberLeaseHasNoFence(t *testing.T) {
	p := newShardedProcess(t)
	for _, request := range []string{"POST " + leasesPath, "PUT " + leasesPath + "/serin-member-a", "DELETE " + leasesPath + "/serin-member-b"} {
		method, path, _ := strings.Cut(request, " ")
		if err := p.send(t.Context(), method, path, leaseBody("serin-member-a", "a")); err != nil {
			t.Errorf("%s: %v", request, err)
		}
	}
	p.check("after the writes of members", false, false, false)
}
