//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/bench/fakenode"
	"github.com/serin-dev/serin/playground/build"
)

// ballast is the number of objects that belong to no release, as they exist in every large cluster.
type ballast struct {
	Pods         int `json:"pods"`
	ReplicaSets  int `json:"replicaSets"`
	ConfigMaps   int `json:"configMaps"`
	Secrets      int `json:"secrets"`
	AnalysisRuns int `json:"analysisRuns"`
	Events       int `json:"events"`
}

// configBytes is the size of each ConfigMap and Secret.
const configBytes = 10_000

// newBallast returns a share of the full ballast: 50,000 pods, 20,000 ReplicaSets, 10 MB of configuration, 6,600 finished AnalysisRuns and
// 100,000 events.
func newBallast(share float64) ballast {
	part := func(full int) int { return int(math.Round(share * float64(full))) }
	return ballast{Pods: part(50_000), ReplicaSets: part(20_000), ConfigMaps: part(500), Secrets: part(500), AnalysisRuns: part(6_600), Events: part(100_000)}
}

func (b ballast) String() string {
	return fmt.Sprintf("%d pods, %d ReplicaSets, %d ConfigMaps and %d Secrets of %d bytes, %d finished AnalysisRuns, %d events",
		b.Pods, b.ReplicaSets, b.ConfigMaps, b.Secrets, configBytes, b.AnalysisRuns, b.Events)
}

// The ballast is in a namespace of its own, and its pods on a node of its own, which nothing simulates: they stay pending.
const (
	ballastNamespace = "ballast"
	ballastNode      = "ballast"
)

// createBallast creates objects that belong to no release.
func (s *stage) createBallast(ctx context.Context, b ballast) error {
	s.say(fmt.Sprintf("creating %s ...", b))
	core, apps := s.cluster.Client.CoreV1(), s.cluster.Client.AppsV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ballastNamespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the ballast: %w", err)
	}
	node := fakenode.New(fakenode.Options{Name: ballastNode, Version: build.KubernetesVersion, Client: s.cluster.Client, Clock: s.clock, Log: s.log})
	if err := node.Register(ctx); err != nil {
		return err
	}
	registered, err := core.Nodes().Get(ctx, ballastNode, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("create the ballast: %w", err)
	}
	text := strings.Repeat("x", configBytes)
	template := corev1.PodSpec{
		NodeName: ballastNode, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "app", Image: oldVersion}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	meta := func(kind string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05d", kind, i), Namespace: ballastNamespace, Labels: map[string]string{"app": fmt.Sprintf("%s-%05d", kind, i)}}
	}
	for _, kind := range []struct {
		name   string
		count  int
		create func(ctx context.Context, i int) error
	}{
		{"ConfigMaps", b.ConfigMaps, func(ctx context.Context, i int) error {
			_, err := core.ConfigMaps(ballastNamespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("config", i), Data: map[string]string{"text": text}}, metav1.CreateOptions{})
			return err
		}},
		{"Secrets", b.Secrets, func(ctx context.Context, i int) error {
			_, err := core.Secrets(ballastNamespace).Create(ctx, &corev1.Secret{ObjectMeta: meta("secret", i), StringData: map[string]string{"text": text}}, metav1.CreateOptions{})
			return err
		}},
		{"ReplicaSets", b.ReplicaSets, func(ctx context.Context, i int) error {
			m := meta("set", i)
			_, err := apps.ReplicaSets(ballastNamespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: m.Labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: m.Labels}, Spec: template},
			}}, metav1.CreateOptions{})
			return err
		}},
		{"pods", b.Pods, func(ctx context.Context, i int) error {
			// The controller manager compares each pod without a controller with the selectors of all ReplicaSets. So the node is
			// the controller, as of static pods.
			m := meta("pod", i)
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(registered, corev1.SchemeGroupVersion.WithKind("Node"))}
			_, err := core.Pods(ballastNamespace).Create(ctx, &corev1.Pod{ObjectMeta: m, Spec: template}, metav1.CreateOptions{})
			return err
		}},
		{"AnalysisRuns", b.AnalysisRuns, func(ctx context.Context, i int) error {
			run := newObject(analysisRunResource, "AnalysisRun", fmt.Sprintf("run-%05d", i), map[string]any{"metrics": []any{}})
			run.SetNamespace(ballastNamespace)
			run.Object["status"] = map[string]any{"phase": "Successful"}
			_, err := s.cluster.Dynamic.Resource(analysisRunResource).Namespace(ballastNamespace).Create(ctx, run, metav1.CreateOptions{})
			return err
		}},
		{"events", b.Events, func(ctx context.Context, i int) error {
			event := &corev1.Event{
				ObjectMeta: meta("event", i), Reason: "Ballast", Message: "This object belongs to no release", Type: corev1.EventTypeNormal,
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ballastNamespace, Name: fmt.Sprintf("pod-%05d", i)},
			}
			_, err := core.Events(ballastNamespace).Create(ctx, event, metav1.CreateOptions{})
			return err
		}},
	} {
		err := createAll(ctx, kind.count, func(ctx context.Context, i int) error {
			if err := kind.create(ctx, i); err != nil && !apierrors.IsAlreadyExists(err) { // the response to an earlier attempt was lost
				return err
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("create the %s of the ballast: %w", kind.name, err)
		}
	}
	return nil
}
