// Package canary adds Canaries to the simulator: their stories, the users and services around them, the production controller,
// and the invariants that must hold.
//
// The oracle of an invariant must not be the code that it checks. It recomputes the permitted behavior from observations
// (writes, queries, answers, traffic), and never consults package internal/canary.
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

// drainDelay is how long the canary keeps its pods after its traffic was removed.
const drainDelay = 5 * time.Second

// Canaries is the kind of release in the simulator. Each run has its own instance.
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
	// processes are the running processes, and some that have crashed.
	processes []*process
	// story replaces the drawn releases, if it is not nil.
	story *Story
	// stopped is set once users and tools have stopped acting.
	stopped bool
}

// Release is one Canary of a run with its true properties, which no component of the run knows.
type Release struct {
	actors.Versions

	Key      types.NamespacedName
	Provider string // kubernetes, istio, gatewayapi:v1
	Strategy canary.Strategy
	Target   string // the name of the workload
	Kind     schema.GroupKind
	Apex     string // the name of the Service that clients call
	// Spec is the spec with which the Canary is created. Users may change the stored one.
	Spec flaggerv1.CanarySpec

	// promoted is the version that the primary received last.
	promoted string
	replicas int
	// config is the name of the ConfigMap and the Secret that the target references; empty: none.
	config string
	// objects are the objects that users create before the Canary.
	objects []*unstructured.Unstructured
	// invalid is set while the spec is invalid, createdInvalid if it was created so. validSpec is the repaired spec.
	invalid, createdInvalid bool
	validSpec               flaggerv1.CanarySpec
}
