// Package othercontroller detects another controller that acts on the objects that Serin acts on: Flagger and Argo Rollouts, by
// what they leave in a cluster while they live.
//
// It only judges what it is given. It must not know how objects are read, nor what follows for a release.
package othercontroller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// FlaggerLeaseName is the name of Flagger's leader lease.
const FlaggerLeaseName = "flagger-leader-election"

// The names of programs, as images have them.
const (
	flaggerImage = "flagger"
	serinImage   = "serin"
)

// clockSkewTolerance is by how much the clocks of two hosts of a cluster may differ.
const clockSkewTolerance = 5 * time.Second

// A lease is not believed beyond these bounds. A live holder renews it every few seconds, whatever duration it names, and
// with a moment near the present; anything else would let whoever may write one Lease claim to act until the year 3000.
const (
	maxLeaseDuration = 2 * time.Minute
	maxFutureRenewal = time.Minute
)

// maxLeasesPerNamespace is how many service accounts of one namespace are considered: each costs a request to the API server, and
// whoever may create Deployments may create thousands. No installation has more.
const maxLeasesPerNamespace = 4

// Controller is a Deployment of a controller.
type Controller struct {
	Namespace, Name string
	// ServiceAccount is the one that its pods run under.
	ServiceAccount string
	// Args are those that it was started with.
	Args []string
	// Ready is how many of its pods are.
	Ready int32
}

// DetectSerin is the controller that a Deployment runs, where that is Serin.
func DetectSerin(d *appsv1.Deployment) (Controller, bool) { return detectController(d, isSerin) }

// DetectFlagger is the controller that a Deployment runs, where that is Flagger.
func DetectFlagger(d *appsv1.Deployment) (Controller, bool) { return detectController(d, isFlagger) }

func detectController(d *appsv1.Deployment, is func(c *corev1.Container, args []string) bool) (Controller, bool) {
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		args := expandVariables(slices.Concat(c.Command, c.Args), c.Env)
		// The load tester is the same program, or has the same name, and is no controller.
		if !slices.Contains(args, "loadtester") && is(c, args) {
			account := d.Spec.Template.Spec.ServiceAccountName
			return Controller{Namespace: d.Namespace, Name: d.Name, ServiceAccount: cmp.Or(account, "default"), Args: args, Ready: d.Status.ReadyReplicas}, true
		}
	}
	return Controller{}, false
}

// isSerin goes by the last path element of the image, which registries and mirrors keep.
func isSerin(c *corev1.Container, _ []string) bool { return imageName(c.Image) == serinImage }

// flaggerFlags are some of Flagger's that no other program has.
var flaggerFlags = []string{"mesh-provider", "enable-config-tracking", "ingress-annotations-prefix"}

// MayRunFlagger is false for containers, as decoded JSON, none of which can be Flagger. Nearly all Deployments of a cluster
// are told apart by it without being read.
func MayRunFlagger(containers []any) bool { return mayRun(containers, flaggerImage, flaggerFlags) }

func mayRun(containers []any, name string, flags []string) bool {
	return slices.ContainsFunc(containers, func(item any) bool {
		container, _ := item.(map[string]any)
		image, _ := container["image"].(string)
		return strings.Contains(image, name) || containsText(container["args"], flags) || containsText(container["command"], flags)
	})
}

func containsText(args any, flags []string) bool {
	list, _ := args.([]any)
	return slices.ContainsFunc(list, func(item any) bool {
		arg, _ := item.(string)
		return slices.ContainsFunc(flags, func(flag string) bool { return strings.Contains(arg, flag) })
	})
}

// isFlagger goes by the image too, and where somebody gave that another name by flags that no other program has.
func isFlagger(c *corev1.Container, args []string) bool {
	if imageName(c.Image) == serinImage || slices.Contains(args, "controller") {
		return false
	}
	return imageName(c.Image) == flaggerImage || slices.ContainsFunc(flaggerFlags, func(flag string) bool {
		_, given := flagValue(args, flag)
		return given
	})
}

func imageName(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// expandVariables replaces $(NAME) as Kubernetes does, for variables with a plain value.
func expandVariables(args []string, env []corev1.EnvVar) []string {
	out := make([]string, 0, len(args))
	for _, arg := range args {
		for _, e := range env {
			arg = strings.ReplaceAll(arg, "$("+e.Name+")", e.Value)
		}
		out = append(out, arg)
	}
	return out
}

// flagValue of a flag, which may have one dash or two, and its value behind a = or as an argument of its own.
func flagValue(args []string, flag string) (value string, given bool) {
	for i, arg := range args {
		name, behind, assigned := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case name != flag || !strings.HasPrefix(arg, "-"):
			continue
		case assigned:
			return behind, true
		case i+1 < len(args):
			return args[i+1], true
		default:
			return "", true
		}
	}
	return "", false
}

// WatchesNamespace is true where the controller acts on objects of that namespace.
func (c Controller) WatchesNamespace(namespace string) bool {
	only, _ := flagValue(c.Args, "namespace")
	return only == "" || only == namespace
}

// Sign that a peer lives.
type Sign struct {
	// Text names it, for the middle of a sentence; empty: there is none.
	Text string
	// Until is when it is over by itself; zero: never.
	Until time.Time
}

// Account is the service account of a controller.
type Account struct{ Namespace, Name string }

// Candidate is a sign of a controller that counts if the account may do what such a controller does.
type Candidate struct {
	Sign    Sign
	Account Account
}

// Scope is where other controllers are looked for.
type Scope struct {
	// Namespaces are those that the administrator named, whose Deployments and Leases are believed as they are. Empty: all
	// namespaces, and nothing is believed of a Deployment but what its service account is permitted.
	Namespaces []string
}

// FlaggerSigns are the signs that a Flagger lives that acts on objects of that namespace. The first that counts is the one.
//
// A sign is a Deployment with ready pods, or one without whose pods still hold the leader lease of its namespace. A Lease
// without a Deployment is a sign in namespaces that the administrator named only: a Flagger need not have one, and anyone
// who may write Leases could make it up.
func (s Scope) FlaggerSigns(namespace string, deployments []Controller, leases []coordinationv1.Lease, now time.Time) []Candidate {
	return s.actingSigns(deployments, leases, now, func(c Controller) bool { return c.WatchesNamespace(namespace) })
}

// isNamed is true of a namespace that the administrator named.
func (s Scope) isNamed(namespace string) bool { return slices.Contains(s.Namespaces, namespace) }

// IsTrusted is true of candidates that count whatever their account is permitted.
func (s Scope) IsTrusted(c Candidate) bool { return s.isNamed(c.Account.Namespace) }

// actingSigns are the signs of controllers that serve what is asked about.
func (s Scope) actingSigns(deployments []Controller, leases []coordinationv1.Lease, now time.Time, serves func(Controller) bool) []Candidate {
	var out []Candidate
	considered := map[string][]Account{}
	inOrder := func(a, b Controller) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	for _, d := range slices.SortedFunc(slices.Values(deployments), inOrder) {
		account := Account{Namespace: d.Namespace, Name: d.ServiceAccount}
		sign := runningSign(d, leases, now)
		switch {
		case sign.Text == "" || !serves(d), len(s.Namespaces) > 0 && !s.isNamed(d.Namespace), slices.Contains(considered[d.Namespace], account):
			continue
		case len(considered[d.Namespace]) == maxLeasesPerNamespace:
			continue
		}
		considered[d.Namespace] = append(considered[d.Namespace], account)
		out = append(out, Candidate{Sign: sign, Account: account})
	}
	for i := range leases {
		l := &leases[i]
		until := LeaseHeldUntil(l, now)
		if !s.isNamed(l.Namespace) || !now.Before(until) {
			continue
		}
		ofDeployment := slices.ContainsFunc(deployments, func(d Controller) bool { return holdsLease(d, l) })
		if !ofDeployment {
			out = append(out, Candidate{Sign: leaseSign(l, until), Account: Account{Namespace: l.Namespace}})
		}
	}
	return out
}

// runningSign is the sign that a Deployment's pods live; empty: there is none.
func runningSign(d Controller, leases []coordinationv1.Lease, now time.Time) Sign {
	if d.Ready > 0 {
		return Sign{Text: fmt.Sprintf("Deployment %s of namespace %s has ready pods", d.Name, d.Namespace)}
	}
	for i := range leases {
		l := &leases[i]
		if until := LeaseHeldUntil(l, now); holdsLease(d, l) && now.Before(until) {
			return leaseSign(l, until)
		}
	}
	return Sign{}
}

// holdsLease is true of a lease in the namespace of a Deployment whose holder is called as a pod of it.
func holdsLease(d Controller, l *coordinationv1.Lease) bool {
	return l.Namespace == d.Namespace && l.Spec.HolderIdentity != nil && strings.HasPrefix(*l.Spec.HolderIdentity, d.Name+"-")
}

func leaseSign(l *coordinationv1.Lease, until time.Time) Sign {
	return Sign{Text: fmt.Sprintf("Lease %s of namespace %s is held by %s", l.Name, l.Namespace, *l.Spec.HolderIdentity), Until: until}
}

// LeaseHeldUntil is until when a lease is held if nobody renews it; zero for one that nobody holds, or that claims what no live
// holder writes.
func LeaseHeldUntil(l *coordinationv1.Lease, now time.Time) time.Time {
	spec := l.Spec
	if spec.RenewTime == nil || spec.LeaseDurationSeconds == nil || spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return time.Time{}
	}
	if spec.RenewTime.After(now.Add(maxFutureRenewal)) || *spec.LeaseDurationSeconds <= 0 {
		return time.Time{}
	}
	return spec.RenewTime.Add(min(time.Duration(*spec.LeaseDurationSeconds)*time.Second, maxLeaseDuration) + clockSkewTolerance)
}
