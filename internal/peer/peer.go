// Package peer recognises another controller that acts on the objects that Serin acts on: Flagger and Argo Rollouts, by
// what they leave in a cluster while they live.
//
// It only judges what it is given. It must not know how objects are read, nor what follows for a release.
package peer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Lease is the name of Flagger's leader lease.
const Lease = "flagger-leader-election"

// The names of programs, as images have them.
const (
	flagger = "flagger"
	serin   = "serin"
)

// slack is by how much the clocks of two hosts of a cluster may differ.
const slack = 5 * time.Second

// Controller is a Deployment of a controller.
type Controller struct {
	Namespace, Name string
	// Args are those that it was started with.
	Args []string
	// Ready is how many of its pods are.
	Ready int32
}

// Serin is the controller that a Deployment runs, where that is Serin.
func Serin(d *appsv1.Deployment) (Controller, bool) { return run(d, isSerin) }

// Flagger is the controller that a Deployment runs, where that is Flagger.
func Flagger(d *appsv1.Deployment) (Controller, bool) { return run(d, isFlagger) }

func run(d *appsv1.Deployment, is func(c *corev1.Container, args []string) bool) (Controller, bool) {
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		args := expand(slices.Concat(c.Command, c.Args), c.Env)
		// The load tester is the same program, or has the same name, and is no controller.
		if !slices.Contains(args, "loadtester") && is(c, args) {
			return Controller{Namespace: d.Namespace, Name: d.Name, Args: args, Ready: d.Status.ReadyReplicas}, true
		}
	}
	return Controller{}, false
}

// isSerin goes by the last path element of the image, which registries and mirrors keep.
func isSerin(c *corev1.Container, _ []string) bool { return imageName(c.Image) == serin }

// flags are some of Flagger's that no other program has.
var flags = []string{"mesh-provider", "enable-config-tracking", "ingress-annotations-prefix"}

// Possible is false for containers, as decoded JSON, none of which can be Flagger. Nearly all Deployments of a cluster
// are told apart by it without being read.
func Possible(containers []any) bool { return possible(containers, flagger, flags) }

func possible(containers []any, name string, flags []string) bool {
	return slices.ContainsFunc(containers, func(item any) bool {
		container, _ := item.(map[string]any)
		image, _ := container["image"].(string)
		return strings.Contains(image, name) || mentions(container["args"], flags) || mentions(container["command"], flags)
	})
}

func mentions(args any, flags []string) bool {
	list, _ := args.([]any)
	return slices.ContainsFunc(list, func(item any) bool {
		arg, _ := item.(string)
		return slices.ContainsFunc(flags, func(flag string) bool { return strings.Contains(arg, flag) })
	})
}

// isFlagger goes by the image too, and where somebody gave that another name by flags that no other program has.
func isFlagger(c *corev1.Container, args []string) bool {
	if imageName(c.Image) == serin || slices.Contains(args, "controller") {
		return false
	}
	return imageName(c.Image) == flagger || slices.ContainsFunc(flags, func(flag string) bool {
		_, given := value(args, flag)
		return given
	})
}

func imageName(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// expand replaces $(NAME) as Kubernetes does, for variables with a plain value.
func expand(args []string, env []corev1.EnvVar) []string {
	out := make([]string, 0, len(args))
	for _, arg := range args {
		for _, e := range env {
			arg = strings.ReplaceAll(arg, "$("+e.Name+")", e.Value)
		}
		out = append(out, arg)
	}
	return out
}

// value of a flag, which may have one dash or two, and its value behind a = or as an argument of its own.
func value(args []string, flag string) (value string, given bool) {
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

// Watches is true where the controller acts on objects of that namespace.
func (c Controller) Watches(namespace string) bool {
	only, _ := value(c.Args, "namespace")
	return only == "" || only == namespace
}

// Sign that a peer lives.
type Sign struct {
	// Text names it, for the middle of a sentence; empty: there is none.
	Text string
	// Until is when it is over by itself; zero: never.
	Until time.Time
}

// Acting is a sign that a Flagger lives that acts on objects of that namespace: a Deployment with ready pods, or its
// leader lease, held. A lease whose holder is a pod of one of the Deployments says nothing about other namespaces than
// that Deployment does.
func Acting(namespace string, deployments []Controller, leases []coordinationv1.Lease, now time.Time) Sign {
	return acting(deployments, leases, now, func(c Controller) bool { return c.Watches(namespace) })
}

// acting is a sign of a controller that serves what is asked about.
func acting(deployments []Controller, leases []coordinationv1.Lease, now time.Time, serves func(Controller) bool) Sign {
	for _, d := range deployments {
		if d.Ready > 0 && serves(d) {
			return Sign{Text: fmt.Sprintf("Deployment %s of namespace %s has ready pods", d.Name, d.Namespace)}
		}
	}
	for i := range leases {
		l := &leases[i]
		until := HeldUntil(l)
		if !now.Before(until.Add(slack)) {
			continue
		}
		holder := *l.Spec.HolderIdentity
		elsewhere := slices.ContainsFunc(deployments, func(d Controller) bool {
			return d.Namespace == l.Namespace && strings.HasPrefix(holder, d.Name+"-") && !serves(d)
		})
		if !elsewhere {
			return Sign{Text: fmt.Sprintf("Lease %s of namespace %s is held by %s", l.Name, l.Namespace, holder), Until: until.Add(slack)}
		}
	}
	return Sign{}
}

// HeldUntil is until when a lease is held if nobody renews it; zero for one that nobody holds.
func HeldUntil(l *coordinationv1.Lease) time.Time {
	spec := l.Spec
	if spec.RenewTime == nil || spec.LeaseDurationSeconds == nil || spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return time.Time{}
	}
	return spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
}
