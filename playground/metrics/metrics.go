//go:build linux

// Package metrics configures the playground's Prometheus: its targets, scrape
// interval and labels.
//
// It knows pods by their annotations. It must not know queries or releases.
package metrics

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

// Port is the port of Prometheus on the node.
const Port = 9090

// scrapeInterval is short, so that a window of a few seconds contains several samples.
const scrapeInterval = "1s"

// WriteConfig creates Prometheus' folder and configuration and returns its arguments. The key of a static target is the name
// of its job.
func WriteConfig(folder string, static map[string]string) ([]string, error) {
	type object = map[string]any
	jobs := []object{{
		"job_name": "pods", "file_sd_configs": []object{{"files": []string{targetsFile(folder)}}},
	}}
	for _, name := range slices.Sorted(maps.Keys(static)) {
		jobs = append(jobs, object{"job_name": name, "static_configs": []object{{"targets": []string{static[name]}}}})
	}
	config, err := yaml.Marshal(object{
		"global":         object{"scrape_interval": scrapeInterval, "scrape_timeout": scrapeInterval, "evaluation_interval": scrapeInterval},
		"scrape_configs": jobs,
	})
	if err != nil {
		return nil, fmt.Errorf("configure Prometheus: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("configure Prometheus: %w", err)
	}
	file := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return nil, fmt.Errorf("configure Prometheus: %w", err)
	}
	if err := writeTargets(folder, nil); err != nil {
		return nil, err
	}
	return []string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(folder, "data"), "--storage.tsdb.retention.time=6h",
		"--web.listen-address=:" + strconv.Itoa(Port), "--log.level=warn",
		// New pods are scraped at once instead of within 5 s.
		"--scrape.discovery-reload-interval=200ms",
	}, nil
}

func targetsFile(folder string) string { return filepath.Join(folder, "targets.json") }

// Discovery updates the file of targets when pods change. It replaces the service discovery of Prometheus, which links the
// clients of all clouds.
type Discovery struct {
	folder  string
	pods    corelisters.PodLister
	synced  cache.InformerSynced
	changed chan struct{}
}

// NewDiscovery registers event handlers with informers, which the caller must start afterwards.
func NewDiscovery(factory informers.SharedInformerFactory, folder string) (*Discovery, error) {
	pods := factory.Core().V1().Pods()
	d := &Discovery{folder: folder, pods: pods.Lister(), changed: make(chan struct{}, 1)}
	notify := func() {
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
	registration, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	d.synced = registration.HasSynced
	return d, nil
}

// Run writes the file of targets whenever they change, until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), d.synced) {
		return nil
	}
	var last []Target
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.changed:
		}
		pods, err := d.pods.List(labels.Everything())
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		targets := PodTargets(pods)
		if slices.EqualFunc(last, targets, Target.equal) {
			continue
		}
		if err := writeTargets(d.folder, targets); err != nil {
			return err
		}
		last = targets
	}
}

// Target is one entry of Prometheus' file format.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (t Target) equal(other Target) bool {
	return slices.Equal(t.Targets, other.Targets) && maps.Equal(t.Labels, other.Labels)
}

// Annotations of pods that Prometheus scrapes, as in most clusters. The port defaults to the first container port, the path to
// /metrics.
const (
	ScrapeAnnotation = "prometheus.io/scrape"
	PortAnnotation   = "prometheus.io/port"
	PathAnnotation   = "prometheus.io/path"
)

// PodTargets returns the running pods that have the annotation, with the labels kubernetes_namespace, kubernetes_pod_name,
// and the pod's labels, with characters that Prometheus does not permit replaced.
func PodTargets(pods []*corev1.Pod) []Target {
	var all []Target
	for _, pod := range pods {
		if pod.Annotations[ScrapeAnnotation] != "true" || pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		port := pod.Annotations[PortAnnotation]
		if port == "" {
			port = firstContainerPort(pod)
		}
		if port == "" {
			continue
		}
		labels := map[string]string{}
		for name, value := range pod.Labels {
			labels[invalidLabelCharacters.ReplaceAllString(name, "_")] = value
		}
		labels["kubernetes_namespace"] = pod.Namespace
		labels["kubernetes_pod_name"] = pod.Name
		labels["__metrics_path__"] = cmp.Or(pod.Annotations[PathAnnotation], "/metrics")
		all = append(all, Target{Targets: []string{net.JoinHostPort(pod.Status.PodIP, port)}, Labels: labels})
	}
	slices.SortFunc(all, func(a, b Target) int { return cmp.Compare(a.Targets[0], b.Targets[0]) })
	return all
}

var invalidLabelCharacters = regexp.MustCompile(`[^a-zA-Z0-9_]`)

func firstContainerPort(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if len(container.Ports) > 0 {
			return strconv.Itoa(int(container.Ports[0].ContainerPort))
		}
	}
	return ""
}

// writeTargets replaces the file atomically, because Prometheus reads it whenever it changes.
func writeTargets(folder string, targets []Target) error {
	text, err := json.Marshal(append([]Target{}, targets...))
	if err != nil {
		return fmt.Errorf("write Prometheus' targets: %w", err)
	}
	fresh := targetsFile(folder) + ".new"
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return fmt.Errorf("write Prometheus' targets: %w", err)
	}
	if err := os.Rename(fresh, targetsFile(folder)); err != nil {
		return fmt.Errorf("write Prometheus' targets: %w", err)
	}
	return nil
}
