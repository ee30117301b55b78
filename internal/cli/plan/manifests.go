package plan

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/manifest"
	"github.com/serin-dev/serin/internal/plugin"
)

// Manifests are the objects of a file that plans depend on.
type Manifests struct {
	canaries          []*flaggerv1.Canary
	rollouts          []*argov1.Rollout
	order             []string // kind and name of each release
	workloads         map[string]*Workload
	metricTemplates   map[string]flaggerv1.MetricTemplateSpec
	analysisTemplates map[string]argov1.AnalysisTemplateSpec
	// plugins is the configuration of plugins; nil: the file does not contain it.
	plugins *plugin.Config
}

// ReadManifests reads a file with one or several YAML or JSON documents. Objects without a namespace are in the one that is given.
func ReadManifests(in io.Reader, namespace string) (*Manifests, error) {
	m := &Manifests{
		workloads: map[string]*Workload{}, metricTemplates: map[string]flaggerv1.MetricTemplateSpec{}, analysisTemplates: map[string]argov1.AnalysisTemplateSpec{},
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	for i, document := range manifest.Read(text) {
		err := document.Err
		if err == nil && document.Node != nil {
			err = m.add(document.Text, namespace)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	if len(m.order) == 0 {
		return nil, errors.New("it contains no Canary of flagger.app and no Rollout of argoproj.io")
	}
	return m, nil
}

// objectHead is the part of a document that every object has.
type objectHead struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []runtime.RawExtension `json:"items"`
}

// add reads one document. Kinds that no plan depends on are ignored.
func (m *Manifests) add(text []byte, namespace string) error {
	var head objectHead
	if err := yaml.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("it is not YAML of an object: %w", err)
	}
	if head.Kind == "" {
		return errors.New("it has no kind")
	}
	if head.Kind == "List" {
		for _, item := range head.Items {
			if err := m.add(item.Raw, namespace); err != nil {
				return err
			}
		}
		return nil
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return fmt.Errorf("%s %s: %w", head.Kind, head.Metadata.Name, err)
	}
	if err := m.addObject(gv.Group, head, text, cmp.Or(head.Metadata.Namespace, namespace)); err != nil {
		return fmt.Errorf("%s %s: %w", head.Kind, cmp.Or(head.Metadata.Name, "without name"), err)
	}
	return nil
}

func (m *Manifests) addObject(group string, head objectHead, text []byte, namespace string) error {
	name := head.Metadata.Name
	if name == "" {
		return errors.New("set metadata.name")
	}
	switch key := objectKey(namespace, name); group + "/" + head.Kind {
	case flaggerv1.GroupName + "/" + flaggerv1.CanaryKind:
		c := &flaggerv1.Canary{}
		if err := yaml.Unmarshal(text, c); err != nil {
			return err
		}
		c.Namespace = namespace
		m.canaries, m.order = append(m.canaries, c), append(m.order, flaggerv1.CanaryKind+" "+key)
	case argov1.GroupName + "/" + argov1.RolloutKind:
		r := &argov1.Rollout{}
		if err := yaml.Unmarshal(text, r); err != nil {
			return err
		}
		r.Namespace = namespace
		m.rollouts, m.order = append(m.rollouts, r), append(m.order, argov1.RolloutKind+" "+key)
	case flaggerv1.GroupName + "/" + flaggerv1.MetricTemplateKind:
		var t flaggerv1.MetricTemplate
		if err := yaml.Unmarshal(text, &t); err != nil {
			return err
		}
		m.metricTemplates[key] = t.Spec
	case argov1.GroupName + "/" + argov1.AnalysisTemplateKind, argov1.GroupName + "/" + argov1.ClusterAnalysisTemplateKind:
		var t argov1.AnalysisTemplate
		if err := yaml.Unmarshal(text, &t); err != nil {
			return err
		}
		if head.Kind == argov1.ClusterAnalysisTemplateKind {
			key = objectKey("", name)
		}
		m.analysisTemplates[key] = t.Spec
	case "/ConfigMap": // that of plugins is in the namespace of the controller, which a file does not show
		var c corev1.ConfigMap
		if name != plugin.ConfigMapName {
			return nil
		}
		if err := yaml.Unmarshal(text, &c); err != nil {
			return err
		}
		m.plugins = new(plugin.ParseConfig(c.Data))
	case "apps/Deployment", "apps/DaemonSet", "apps/ReplicaSet": // the fields of a Deployment that matter are those of all of them
		var d appsv1.Deployment
		if err := yaml.Unmarshal(text, &d); err != nil {
			return err
		}
		replicas := d.Spec.Replicas
		if replicas == nil && head.Kind != "DaemonSet" {
			replicas = new(int32(1))
		}
		m.workloads[head.Kind+" "+key] = &Workload{Source: head.Kind + " " + name, Replicas: replicas, Template: d.Spec.Template, Selector: d.Spec.Selector}
	}
	return nil
}

func objectKey(namespace, name string) string { return namespace + "/" + name }

// Inputs returns the input of the plan of each release, in the order of the documents.
func (m *Manifests) Inputs(c Controller) []Input {
	c.Plugins.Config = m.plugins
	var out []Input
	for _, object := range m.canaries {
		target := object.Spec.TargetRef
		out = append(out, Input{
			Canary: object, Settings: c.Settings(object), Routers: c.Routers,
			Workload: m.workloads[target.Kind+" "+objectKey(object.Namespace, target.Name)],
			MetricTemplate: func(namespace, name string) (flaggerv1.MetricTemplateSpec, bool) {
				t, found := m.metricTemplates[objectKey(namespace, name)]
				return t, found
			},
		})
	}
	for _, r := range m.rollouts {
		in := Input{Rollout: r, Routers: c.Routers, Plugins: c.Plugins, AnalysisTemplate: func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
			namespace, kind := r.Namespace, argov1.AnalysisTemplateKind
			if cluster {
				namespace, kind = "", argov1.ClusterAnalysisTemplateKind
			}
			t, found := m.analysisTemplates[objectKey(namespace, name)]
			if !found {
				return t, fmt.Errorf("%s %s is not in the file", kind, name)
			}
			return t, nil
		}}
		if ref := r.Spec.WorkloadRef; ref != nil {
			in.Workload = m.workloads[ref.Kind+" "+objectKey(r.Namespace, ref.Name)]
		}
		out = append(out, in)
	}
	slices.SortStableFunc(out, func(a, b Input) int { return slices.Index(m.order, a.key()) - slices.Index(m.order, b.key()) })
	return out
}

// key returns kind, namespace and name of the release.
func (in *Input) key() string {
	if in.Canary != nil {
		return flaggerv1.CanaryKind + " " + objectKey(in.Canary.Namespace, in.Canary.Name)
	}
	return argov1.RolloutKind + " " + objectKey(in.Rollout.Namespace, in.Rollout.Name)
}
