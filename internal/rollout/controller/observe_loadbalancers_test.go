package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
)

const albIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  rules:
  - http: {paths: [{path: /*, pathType: ImplementationSpecific, backend: {service: {name: cart, port: {name: use-annotation}}}}]}
status: {loadBalancer: {ingress: [{hostname: shop.example.com}]}}
`

// balanced returns a cluster whose cart has a load balancer outside the cluster, at the first weight of a release.
func balanced(t *testing.T) *fakeCluster {
	t.Helper()
	p := newFakeCluster(t, append(slices.Clone(routedObjects), albIngress)...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"alb": alb.NewRollout(alb.Options{VerifyTargetGroups: true})}}
	})
	p.configure(func(parts *Parts) {
		parts.Queries = queryrunner.New(p.clock, 1, nil, func(types.NamespacedName, bool) {})
	})
	p.edit(func(object *argov1.Rollout) {
		c := object.Spec.Strategy.Canary
		c.TrafficRouting = &argov1.RolloutTrafficRouting{ALB: &argov1.ALBTrafficRouting{Ingress: "shop", ServicePort: 80}}
		c.Steps = []argov1.CanaryStep{{SetWeight: new(int32(10))}, {Pause: &argov1.RolloutPause{}}, {SetWeight: new(int32(20))}, {Pause: &argov1.RolloutPause{}}}
		object.Spec.Replicas = new(int32(1))
	})
	p.settle()
	if _, asked := p.reconciler.Queries.TakeNext(t.Context()); asked {
		t.Fatal("an idle release sends a query")
	}
	p.edit(withImage("cart:2"))
	p.settle()
	return p
}

// asked returns the running query.
func (p *fakeCluster) asked() queryrunner.RunningQuery {
	p.Helper()
	q, ok := p.reconciler.Queries.TakeNext(p.Context())
	if !ok {
		p.Fatal("no query is sent")
	}
	return q
}

func (p *fakeCluster) unasked() {
	p.Helper()
	if q, ok := p.reconciler.Queries.TakeNext(p.Context()); ok {
		p.Fatalf("asks %+v", q.Query.Request)
	}
}

// hears answers a query, and reconciles until nothing is written.
func (p *fakeCluster) hears(q queryrunner.RunningQuery, answer traffic.LoadBalancerAnswer) {
	p.Helper()
	p.reconciler.Queries.FinishQuery(q, release.Answer{Detail: answer})
	p.settle()
}

// weighted returns the weight of the canary in a query.
func weighted(q queryrunner.RunningQuery) int {
	return q.Query.Request.(traffic.LoadBalancerQuery).Forwards[0].Shares[0].Weight
}

func (p *fakeCluster) verified() *bool {
	p.Helper()
	return p.rollout().Status.Canary.Weights.Verified
}

var (
	late = traffic.LoadBalancerAnswer{Reason: "it has weight 0, and 10 is wanted", Events: []traffic.Event{{Warning: true, Reason: "TargetGroupUnverified", Message: "it has weight 0, and 10 is wanted"}}}
	held = traffic.LoadBalancerAnswer{
		Verified: true, Events: []traffic.Event{{Reason: "TargetGroupVerified", Message: "it has the weights"}},
		Balancers: []argov1.ALBStatus{{Ingress: "shop", LoadBalancer: argov1.AWSResourceRef{Name: "shop", ARN: "arn:shop"}}},
	}
)

func TestAStepWaitsForTheLoadBalancer(t *testing.T) {
	p := balanced(t)
	p.at(0, 10)
	q := p.asked()
	if got := weighted(q); got != 10 {
		t.Errorf("weight %d is asked for", got)
	}
	if v := p.verified(); v == nil || *v {
		t.Error("the status does not show that the weight is not verified")
	}
	p.clock.Step(reconciler.ExplainAfter)
	p.settle()
	p.explains(textFirstAnswerPending)
	p.hears(q, late)
	p.waitForEvent("TargetGroupUnverified: it has weight 0, and 10 is wanted")
	p.at(0, 10)
	p.unasked() // for a while
	p.clock.Step(reconciler.ExplainAfter)
	p.settle()
	p.explains("it has weight 0, and 10 is wanted")
	q = p.asked()
	if _, err := p.reconcile(); err != nil { // while the query runs, the last answer applies
		t.Fatal(err)
	}
	p.hears(q, held)
	p.waitForEvent("TargetGroupVerified: it has the weights")
	p.at(1, 10)
	if v := p.verified(); v == nil || !*v {
		t.Error("the status does not show that the weight is verified")
	}
	if status := p.rollout().Status; status.ALB == nil || status.ALB.LoadBalancer.Name != "shop" || status.ALBs != nil {
		t.Errorf("the status has %+v and %+v", status.ALB, status.ALBs)
	}
	p.clock.Step(time.Hour)
	p.settle()
	p.unasked() // a positive answer holds for this weight
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(p.recordedEvents), func(text string) bool { return !strings.HasPrefix(text, "TargetGroup") })); n != 2 {
		t.Errorf("recorded %d times: %v", n, p.recordedEvents)
	}
}

// The next weight is another query, although the answer to the last one holds.
func TestEachWeightIsQueried(t *testing.T) {
	p := balanced(t)
	p.hears(p.asked(), held)
	object := p.rollout()
	object.Status.PauseConditions = nil
	if err := p.client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	p.settle()
	p.at(2, 20)
	q := p.asked()
	if got := weighted(q); got != 20 {
		t.Errorf("weight %d is asked for", got)
	}
	p.hears(q, held)
	p.at(3, 20)
}

// A release that was aborted sends no query, and one that was restarted does not use an earlier answer.
func TestAnAnswerFromBeforeARetryDoesNotCount(t *testing.T) {
	p := balanced(t)
	p.hears(p.asked(), held)
	p.at(1, 10)
	for _, abort := range []bool{true, false} {
		object := p.rollout()
		object.Status.Abort = abort
		if err := p.client.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		p.clock.Step(time.Second)
		p.settle()
		if abort {
			p.at(0, 0)
			p.unasked()
		}
	}
	p.at(0, 10)
	p.hears(p.asked(), held)
	p.at(1, 10)
}

func TestAQueryThatCannotBeSentIsExplained(t *testing.T) {
	p := balanced(t)
	p.reconciler.Queries.FinishQuery(p.asked(), release.Answer{Outcome: release.Broken, Text: "a defect in Serin"})
	p.settle()
	p.at(0, 10)
	p.clock.Step(reconciler.ExplainAfter)
	p.settle()
	reader := Observer{Client: p.client, APIReader: p.client, Routers: p.reconciler.Routers, Applier: p.reconciler.Applier, Runs: p.reconciler.Runs, AnswersFromStatus: true}
	beside, err := reader.Snapshot(p.Context(), p.rollout(), p.clock.Now())
	if err != nil || beside.Route.Confirmed == nil || *beside.Route.Confirmed || beside.Route.UnconfirmedReason != "a defect in Serin" {
		t.Errorf("an observer beside the process observes %+v: %v", beside.Route, err)
	}
	p.explains("a defect in Serin")
}

// explains verifies that the status shows why the release waits for the weight.
func (p *fakeCluster) explains(why string) {
	p.Helper()
	var said []string
	for _, gate := range p.rollout().Status.Serin.Gates {
		if gate.Name == "route-confirmed" {
			said = append(said, gate.Message)
		}
	}
	if !slices.Equal(said, []string{"the router has not applied the weight yet: " + why}) {
		p.Errorf("the gates in the status show %q", said)
	}
}

func (p *fakeCluster) at(step, weight int32) {
	p.Helper()
	status := p.rollout().Status
	if *status.CurrentStepIndex != step || status.Canary.Weights.Canary.Weight != weight {
		p.Errorf("it is at step %d with weight %d, and should be at step %d with weight %d", *status.CurrentStepIndex, status.Canary.Weights.Canary.Weight, step, weight)
	}
}
