//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/load"
)

var (
	//go:embed shared.yaml
	sharedManifests string
	//go:embed canary.yaml
	canaryManifests string
	//go:embed rollout.yaml
	rolloutManifests string
)

// releaseAPI is one of the two APIs: its manifests, and what their states mean.
type releaseAPI struct {
	name, manifests string
	// kind is that of the objects with the status, target the resource with the template.
	kind   string
	target schema.GroupVersionResource
	// weights are the weights of the steps.
	weights []int64
	// checkIdle returns nil when the first version serves.
	checkIdle func(*history, string) error
	// phase describes the progress of a release. phases are those in which replicas hand over.
	phase  func(*unstructured.Unstructured) string
	phases []string
	// checkEnded returns nil when the release has ended, with its outcome.
	checkEnded func(*history, *release) (promoted bool, err error)
	// checkInvariants checks what is specific to the API after the end of a release.
	checkInvariants func(context.Context, *stage, *release)
}

// app is an application, which is released again and again.
type app struct {
	*releaseAPI
	name string
	// served applications have processes that serve requests. The pods of the others exist as objects only.
	served bool
	random *rand.Rand
	load   *load.Load
	// badVersions are those that fail requests.
	badVersions map[string]bool
	// created are the objects of the user before the first release.
	created map[objectKey]*unstructured.Unstructured
}

// release is a release of one version.
type release struct {
	*app
	version string
	good    bool
	// before is the object with the status before the release.
	before             *unstructured.Unstructured
	startedAt, endedAt time.Time
}

func (r *release) String() string {
	quality := "bad"
	if r.good {
		quality = "good"
	}
	return fmt.Sprintf("%s %s of %s", quality, r.version, r.name)
}

// firstVersion is the version before the first release.
const firstVersion = "v1"

// errorPercent is the share of requests that bad versions fail. With fewer, the first requests of a window may all succeed: the
// windows are short, and Prometheus needs two samples of a series that begins with the first error.
const errorPercent = "100"

// host is the host name at the gateway.
func (a *app) host(namespace string) string { return a.name + "." + namespace + ".test" }

// podSpec returns the pod of a version.
func (a *app) podSpec(version string, good bool) map[string]any {
	container := map[string]any{
		"name": "app", "image": cluster.DemoImage + ":" + version, "env": []any{},
		"ports":          []any{map[string]any{"name": "http", "containerPort": 8080, "protocol": "TCP"}},
		"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": "http"}, "periodSeconds": 1},
	}
	if !good {
		container["env"] = []any{map[string]any{"name": "ERROR_PERCENT", "value": errorPercent}}
	}
	node := simulatedNode
	if a.served {
		node = cluster.NodeName
	}
	return map[string]any{
		"nodeSelector": map[string]any{"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 40, "containers": []any{container},
	}
}

// renderManifests returns the objects of the application.
func (a *app) renderManifests(s *stage) (string, error) {
	pod, err := json.Marshal(a.podSpec(firstVersion, true))
	if err != nil {
		return "", fmt.Errorf("render %s: %w", a.name, err)
	}
	replicas := 1
	if a.served {
		replicas = 2
	}
	return render(a.manifests, map[string]any{
		"Name": a.name, "Namespace": s.namespace, "Host": a.host(s.namespace), "Replicas": replicas, "Served": a.served, "PodSpec": string(pod), "Ledger": s.ledgerURL,
	})
}

func render(text string, values map[string]any) (string, error) {
	parsed, err := template.New("").Parse(text)
	var out bytes.Buffer
	if err == nil {
		err = parsed.Execute(&out, values)
	}
	if err != nil {
		return "", fmt.Errorf("render a manifest: %w", err)
	}
	return out.String(), nil
}

const (
	// releaseTimeout bounds a release during faults, or after their end. It takes less than half a minute without faults.
	releaseTimeout = 8 * time.Minute
	// retryInterval is the time after which a request is repeated that failed because of an injected fault.
	retryInterval = 200 * time.Millisecond
)

// retry repeats a request to the API server, which may be stopped, until it succeeds.
func (s *stage) retry(ctx context.Context, what string, request func() error) (err error) {
	if waited := s.poll(ctx, what, func() bool { err = request(); return err == nil }); waited != nil {
		return errors.Join(waited, err)
	}
	return nil
}

// runRelease releases a version and checks it once it has ended.
func (s *stage) runRelease(ctx context.Context, a *app, version string) error {
	r := &release{app: a, version: version, good: a.random.IntN(3) > 0, before: s.history.latest(a.kind, a.name), startedAt: s.clock.Now()}
	a.badVersions[version] = !r.good
	s.ledger.begin(a.name, r.good || a.served)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": r.podSpec(version, r.good)}}})
	if err != nil {
		return fmt.Errorf("release %s: %w", r, err)
	}
	err = s.retry(ctx, "release "+r.String(), func() error {
		_, err := s.cluster.Dynamic.Resource(a.target).Namespace(s.namespace).Patch(ctx, a.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	var promoted bool
	err = s.history.waitUntil(ctx, r.String()+" has ended", releaseTimeout, func() (err error) {
		promoted, err = a.checkEnded(s.history, r)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			s.violate("I9", "%v", err)
		}
		return err
	}
	r.endedAt = s.clock.Now()
	if promoted != r.good {
		s.violate("I3", "%s was promoted: %t, want %t", r, promoted, r.good)
	}
	checkWeights(s, r)
	a.checkInvariants(ctx, s, r)
	s.countRelease(r)
	return nil
}
