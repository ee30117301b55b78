// Package othercontroller detects a running Flagger or Argo Rollouts that acts on the same objects as Serin, by its Deployments
// and leases.
//
// It only evaluates the objects that its caller passes. It must not know how objects are read, nor the consequences for a release.
package othercontroller

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// FlaggerLeaseName is the name of Flagger's leader election lease.
const FlaggerLeaseName = "flagger-leader-election"

// The names of the images.
const (
	flaggerImage = "flagger"
	serinImage   = "serin"
)

// clockSkewTolerance is the tolerated difference between the clocks of two hosts of a cluster.
const clockSkewTolerance = 5 * time.Second

// The bounds of a credible lease. A running holder renews its lease every few seconds, whatever its duration, with a renewal
// time close to the current time. Without bounds, every user with permission to write a Lease could block Serin for years.
const (
	maxLeaseDuration = 2 * time.Minute
	maxFutureRenewal = time.Minute
)

// maxAccountsPerNamespace limits the service accounts that are considered per namespace. Each of them costs a request to the API
// server, and a user with permission to create Deployments could create thousands. No installation has more.
const maxAccountsPerNamespace = 4

// Controller is a Deployment of a controller.
type Controller struct {
	Namespace, Name string
	// ServiceAccount is the service account of its pods.
	ServiceAccount string
	// Args is the command line of its container, Image the image.
	Args  []string
	Image string
	// Ready is the number of its ready pods.
	Ready int32
}

// DetectSerin returns the controller that a Deployment runs, if it is Serin.
func DetectSerin(d *appsv1.Deployment) (Controller, bool) { return detectController(d, isSerin) }

// DetectFlagger returns the controller that a Deployment runs, if it is Flagger.
func DetectFlagger(d *appsv1.Deployment) (Controller, bool) { return detectController(d, isFlagger) }

func detectController(d *appsv1.Deployment, matches func(c *corev1.Container, args []string) bool) (Controller, bool) {
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		args := expandVariables(slices.Concat(c.Command, c.Args), c.Env)
		// The load tester is the same program, or has the same name, but is not a controller.
		if !slices.Contains(args, "loadtester") && matches(c, args) {
			account := d.Spec.Template.Spec.ServiceAccountName
			return Controller{Namespace: d.Namespace, Name: d.Name, ServiceAccount: cmp.Or(account, "default"), Args: args, Image: c.Image, Ready: d.Status.ReadyReplicas}, true
		}
	}
	return Controller{}, false
}

// isSerin recognises Serin by the last path element of its image, which mirrors of registries retain. The same image also runs the
// load tester, the dashboard and the demo, whose arguments begin with another command.
func isSerin(c *corev1.Container, args []string) bool {
	if len(args) > 0 && path.Base(args[0]) == serinImage {
		args = args[1:] // the program
	}
	return imageName(c.Image) == serinImage && (len(args) == 0 || strings.HasPrefix(args[0], "-") || args[0] == "controller")
}

// flaggerFlags are some flags that only Flagger has.
var flaggerFlags = []string{"mesh-provider", "enable-config-tracking", "ingress-annotations-prefix"}

// MayRunFlagger returns false for containers, as decoded JSON, none of which can be Flagger. It excludes nearly all Deployments
// of a cluster without decoding them.
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

// isFlagger recognises Flagger by its image or, if the image was renamed, by flags that only Flagger and Serin have. Serin's
// Deployments are excluded.
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

// flagValue returns the value of a flag, which may begin with one dash or two. The value may follow a = or be an argument of
// its own.
func flagValue(args []string, flag string) (value string, given bool) {
	for i, arg := range args {
		name, assignedValue, assigned := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case name != flag || !strings.HasPrefix(arg, "-"):
			continue
		case assigned:
			return assignedValue, true
		case i+1 < len(args):
			return args[i+1], true
		default:
			return "", true
		}
	}
	return "", false
}

// WatchesNamespace reports whether the controller acts on objects of a namespace.
func (c Controller) WatchesNamespace(namespace string) bool {
	only, _ := flagValue(c.Args, "namespace")
	return only == "" || only == namespace
}

// Sign is a sign that another controller is running.
type Sign struct {
	// Text describes the sign, for the middle of a sentence; empty means that there is none.
	Text string
	// Until is the time at which the sign expires; zero means never.
	Until time.Time
	// ByPermission is set if the sign counts because a service account has permissions.
	ByPermission bool
}

// Account is the service account of a controller.
type Account struct{ Namespace, Name string }

// Candidate is a sign of a controller that counts if the account has the permissions of such a controller.
type Candidate struct {
	Sign    Sign
	Account Account
}

// Scope limits the namespaces in which other controllers are detected.
type Scope struct {
	// Namespaces are the namespaces that the administrator has configured; their Deployments and Leases are trusted. Empty means
	// all namespaces, in which a Deployment counts only if its service account has the permissions of such a controller.
	Namespaces []string
}

// FlaggerSigns returns the signs of a running Flagger that acts on the objects of a namespace. The first one that counts decides.
//
// A sign is a Deployment with ready pods, or one without ready pods if a pod of it still holds the leader election lease of its
// namespace. A Lease without a Deployment is a sign only in namespaces that the administrator has configured: not every Flagger
// has a lease, and every user with permission to write Leases could forge it.
func (s Scope) FlaggerSigns(namespace string, deployments []Controller, leases []coordinationv1.Lease, now time.Time) []Candidate {
	return s.actingSigns(deployments, leases, now, func(c Controller) bool { return c.WatchesNamespace(namespace) })
}

// isConfigured reports whether the administrator has configured a namespace.
func (s Scope) isConfigured(namespace string) bool { return slices.Contains(s.Namespaces, namespace) }

// IsTrusted reports whether a candidate counts whatever permissions its account has.
func (s Scope) IsTrusted(c Candidate) bool { return s.isConfigured(c.Account.Namespace) }

// actingSigns returns the signs of the controllers for which serves returns true.
func (s Scope) actingSigns(deployments []Controller, leases []coordinationv1.Lease, now time.Time, serves func(Controller) bool) []Candidate {
	var out []Candidate
	considered := map[string][]Account{}
	byName := func(a, b Controller) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	for _, d := range slices.SortedFunc(slices.Values(deployments), byName) {
		account := Account{Namespace: d.Namespace, Name: d.ServiceAccount}
		sign := runningSign(d, leases, now)
		switch {
		case sign.Text == "" || !serves(d), len(s.Namespaces) > 0 && !s.isConfigured(d.Namespace), slices.Contains(considered[d.Namespace], account):
			continue
		case len(considered[d.Namespace]) == maxAccountsPerNamespace:
			continue
		}
		considered[d.Namespace] = append(considered[d.Namespace], account)
		out = append(out, Candidate{Sign: sign, Account: account})
	}
	for i := range leases {
		l := &leases[i]
		until := LeaseHeldUntil(l, now)
		if !s.isConfigured(l.Namespace) || !now.Before(until) {
			continue
		}
		hasDeployment := slices.ContainsFunc(deployments, func(d Controller) bool { return holdsLease(d, l) })
		if !hasDeployment {
			out = append(out, Candidate{Sign: leaseSign(l, until), Account: Account{Namespace: l.Namespace}})
		}
	}
	return out
}

// runningSign returns the sign that pods of a Deployment are running; empty if there is none.
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

// holdsLease reports whether the holder of a lease in the namespace of a Deployment has the name of one of its pods.
func holdsLease(d Controller, l *coordinationv1.Lease) bool {
	return l.Namespace == d.Namespace && l.Spec.HolderIdentity != nil && strings.HasPrefix(*l.Spec.HolderIdentity, d.Name+"-")
}

func leaseSign(l *coordinationv1.Lease, until time.Time) Sign {
	return Sign{Text: fmt.Sprintf("Lease %s of namespace %s is held by %s", l.Name, l.Namespace, *l.Spec.HolderIdentity), Until: until}
}

// LeaseHeldUntil returns the time until which a lease is held unless it is renewed. It is zero for a lease without a holder, or
// with values that no running holder writes.
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
