// Package canary plugs Canaries into the simulator: their stories, the users and services around them, the real
// controller, and what must hold.
//
// The oracle of an invariant must not be the code that it checks: what may hold is recounted here from what was seen from
// outside (writes, questions, answers, traffic), never asked of package internal/canary.
package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

var canaryKind = schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.CanaryKind}

// drain is how long the canary keeps its pods after the route took its traffic away.
const drain = 5 * time.Second

// Canaries is the kind of release in the simulator. One is made for one run.
type Canaries struct {
	world      *sim.World
	cluster    *cluster.Cluster
	gateway    *cluster.Gateway
	routers    traffic.Registry
	settings   canary.Settings
	releases   []*Release
	services   *externalServices
	user       client.Client
	userClient actors.UserClient
	users      *users
	oracle     *oracle.Oracle
	// processes are those that live, and some that have died.
	processes []*process
	// story replaces the drawn releases, if it is not nil.
	story *Story
	// over is true once users and tools have stopped acting.
	over bool
}

// Release is one Canary of a run, with its true properties, which no component of the run knows.
type Release struct {
	actors.Versions

	Key      types.NamespacedName
	Provider string // kubernetes, istio, gatewayapi:v1
	Strategy canary.Strategy
	Target   string // the name of the workload
	Kind     schema.GroupKind
	Apex     string // the name of the Service that clients call
	// Spec is the Canary's as it was created; users may change the stored one.
	Spec flaggerv1.CanarySpec

	// promoted is the version that the primary got last.
	promoted string
	replicas int
	// config is the name of the ConfigMap and Secret that the target reads; empty: none.
	config string
	// objects are what users make before the Canary.
	objects []*unstructured.Unstructured
	// invalid is true while the spec can never work, born when it was created so; valid is the repaired spec.
	invalid, born bool
	valid         flaggerv1.CanarySpec
}
