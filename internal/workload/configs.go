package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// The two kinds of tracked configuration.
const (
	configMapKind = "ConfigMap"
	secretKind    = "Secret"
)

// ConfigRef is a ConfigMap or Secret that a pod template refers to.
type ConfigRef struct {
	// Kind is ConfigMap or Secret.
	Kind string
	// Name in the namespace of the workload.
	Name string
	// Optional is true when all references are optional.
	Optional bool
}

// Key returns the key in status.trackedConfigs: configmap/NAME or secret/NAME.
func (r ConfigRef) Key() string { return strings.ToLower(r.Kind) + "/" + r.Name }

// ListConfigRefs returns the ConfigMaps and Secrets that a pod template reads, each once, in order of appearance: in volumes,
// projected volumes, env and envFrom of containers and init containers. Image pull secrets and Secrets of CSI drivers
// are not included.
func ListConfigRefs(template map[string]any) []ConfigRef {
	var refs []ConfigRef
	at := map[string]int{}
	visitConfigRefs(template, func(ref ConfigRef, _ func(name string)) {
		if i, seen := at[ref.Key()]; seen {
			refs[i].Optional = refs[i].Optional && ref.Optional
			return
		}
		at[ref.Key()] = len(refs)
		refs = append(refs, ref)
	})
	return refs
}

// visitConfigRefs visits every reference to a ConfigMap or Secret in a pod template. rename changes the reference in place.
func visitConfigRefs(template map[string]any, visit func(ref ConfigRef, rename func(name string))) {
	at := func(holder map[string]any, field, nameField, kind string) {
		source, ok := holder[field].(map[string]any)
		if !ok {
			return
		}
		name, _ := source[nameField].(string)
		if name == "" {
			return
		}
		optional, _ := source["optional"].(bool)
		visit(ConfigRef{Kind: kind, Name: name, Optional: optional}, func(name string) { source[nameField] = name })
	}
	spec, _ := template["spec"].(map[string]any)
	for _, volume := range jsonObjects(spec["volumes"]) {
		at(volume, "configMap", "name", configMapKind)
		at(volume, "secret", "secretName", secretKind)
		projected, _ := volume["projected"].(map[string]any)
		for _, source := range jsonObjects(projected["sources"]) {
			at(source, "configMap", "name", configMapKind)
			at(source, "secret", "name", secretKind)
		}
	}
	for _, field := range []string{"initContainers", "containers"} {
		for _, container := range jsonObjects(spec[field]) {
			for _, from := range jsonObjects(container["envFrom"]) {
				at(from, "configMapRef", "name", configMapKind)
				at(from, "secretRef", "name", secretKind)
			}
			for _, env := range jsonObjects(container["env"]) {
				from, _ := env["valueFrom"].(map[string]any)
				at(from, "configMapKeyRef", "name", configMapKind)
				at(from, "secretKeyRef", "name", secretKind)
			}
		}
	}
}

// jsonObjects returns the objects in a JSON list.
func jsonObjects(list any) []map[string]any {
	items, _ := list.([]any)
	found := make([]map[string]any, 0, len(items))
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			found = append(found, object)
		}
	}
	return found
}

// configSource is the current state of a tracked source.
type configSource struct {
	ConfigRef
	checksums checksums
}

// readConfigs returns the current tracked sources of a template. problem is a message for the user about a required
// source that does not exist.
func (w *Workloads) readConfigs(ctx context.Context, c *flaggerv1.Canary, template map[string]any) (configs []configSource, problem string, err error) {
	if !w.Options.ConfigTracking {
		return nil, "", nil
	}
	for _, ref := range ListConfigRefs(template) {
		found, sums, err := w.readChecksums(ctx, c, ref)
		switch {
		case err != nil:
			return nil, "", err
		case !found && ref.Optional:
			continue
		case !found:
			kind := strings.ToLower(ref.Kind)
			cause := apierrors.NewNotFound(schema.GroupResource{Resource: kind + "s"}, ref.Name)
			return nil, fmt.Sprintf("GetTargetConfigs failed: %[1]s %[2]s.%[3]s get query error: %[1]s %[2]s.%[3]s get query error: %[4]v",
				kind, ref.Name, c.Namespace, cause), nil
		case !sums.isTracked:
			continue
		}
		configs = append(configs, configSource{ConfigRef: ref, checksums: sums})
	}
	return configs, "", nil
}

// readChecksums returns the checksums of a ConfigMap or Secret. The content is read from the API server only when its
// resourceVersion has changed; only metadata is watched and cached.
func (w *Workloads) readChecksums(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef) (found bool, known checksums, err error) {
	meta, err := w.metadataOf(ctx, c, ref)
	if meta == nil || err != nil {
		return false, checksums{}, err
	}
	if strings.HasPrefix(meta.Annotations[trackingAnnotation], "disable") {
		return true, checksums{}, nil
	}
	if known, ok := w.cache.checksumsFor(objectKey(c), meta); ok {
		return true, known, nil
	}
	live, err := w.readConfigContent(ctx, c, ref)
	if live == nil || err != nil {
		return false, checksums{}, err
	}
	known = live.checksums()
	known.version = live.obj.GetResourceVersion()
	w.cache.store(objectKey(c), live.obj, known)
	return true, known, nil
}

// metadataOf returns the cached metadata of a ConfigMap or Secret; nil when there is none.
func (w *Workloads) metadataOf(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: ref.Kind})
	err := w.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: ref.Name}, meta)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s.%s: %w", ref.Kind, ref.Name, c.Namespace, err)
	}
	return meta, nil
}

// configContent is a ConfigMap or Secret with its data. It is never retained after the write that needs it.
type configContent struct {
	obj    client.Object
	config *corev1.ConfigMap
	secret *corev1.Secret
}

// readConfigContent reads a ConfigMap or Secret live; nil when there is none.
func (w *Workloads) readConfigContent(ctx context.Context, c *flaggerv1.Canary, ref ConfigRef) (*configContent, error) {
	var read configContent
	if ref.Kind == secretKind {
		read.secret = &corev1.Secret{}
		read.obj = read.secret
	} else {
		read.config = &corev1.ConfigMap{}
		read.obj = read.config
	}
	err := w.APIReader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: ref.Name}, read.obj)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s.%s: %w", ref.Kind, ref.Name, c.Namespace, err)
	}
	return &read, nil
}

// copyWithName returns a new object with the same kind and content, under another name.
func (from *configContent) copyWithName(namespace, name string) *configContent {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if from.secret != nil {
		copied := from.secret.DeepCopy()
		secret := &corev1.Secret{ObjectMeta: meta, Type: copied.Type, Data: copied.Data, Immutable: copied.Immutable}
		return &configContent{obj: secret, secret: secret}
	}
	copied := from.config.DeepCopy()
	config := &corev1.ConfigMap{ObjectMeta: meta, Data: copied.Data, BinaryData: copied.BinaryData, Immutable: copied.Immutable}
	return &configContent{obj: config, config: config}
}

// withContentOf returns this object with the content of another: data, type and immutability.
func (into *configContent) withContentOf(from *configContent) *configContent {
	if into.secret != nil {
		secret := into.secret.DeepCopy()
		secret.Data, secret.Type, secret.Immutable = from.secret.Data, from.secret.Type, from.secret.Immutable
		return &configContent{obj: secret, secret: secret}
	}
	config := into.config.DeepCopy()
	config.Data, config.BinaryData, config.Immutable = from.config.Data, from.config.BinaryData, from.config.Immutable
	return &configContent{obj: config, config: config}
}

// isImmutable reports whether Kubernetes rejects a change of the content.
func (from *configContent) isImmutable() bool {
	flag := from.immutableFlag()
	return flag != nil && *flag
}

func (from *configContent) immutableFlag() *bool {
	if from.secret != nil {
		return from.secret.Immutable
	}
	return from.config.Immutable
}

// checksums are the cached checksums and properties of the content of a ConfigMap or Secret.
type checksums struct {
	// serinSum covers data and binaryData.
	serinSum string
	// flaggerSum is Flagger's checksum: the first eight bytes of the SHA-256 of the JSON of data alone.
	flaggerSum string
	// hasBinaryData is true for content with binaryData, which Flagger ignores and does not copy.
	hasBinaryData bool
	// version is the resourceVersion of the object; empty for one that was just written.
	version string
	// isTracked is false for Secrets with a type that another controller manages; the primary shares them with the
	// target.
	isTracked bool
}

func (from *configContent) checksums() checksums {
	if from.secret != nil {
		known := checksums{flaggerSum: jsonChecksum(from.secret.Data, 8), serinSum: jsonChecksum(map[string]any{"data": emptyIfNil(from.secret.Data)}, 16)}
		switch from.secret.Type {
		case corev1.SecretTypeOpaque, corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeTLS:
			known.isTracked = true
		default: // tokens, Helm's releases, image pull secrets: not configuration
		}
		return known
	}
	ours := map[string]any{"data": emptyIfNil(from.config.Data)}
	if len(from.config.BinaryData) > 0 {
		ours["binaryData"] = from.config.BinaryData
	}
	return checksums{
		flaggerSum: jsonChecksum(from.config.Data, 8), serinSum: jsonChecksum(ours, 16),
		hasBinaryData: len(from.config.BinaryData) > 0, isTracked: true,
	}
}

func emptyIfNil[V any](data map[string]V) map[string]V {
	if data == nil {
		return map[string]V{}
	}
	return data
}

// jsonChecksum returns the first digits of the SHA-256 of the JSON of a value, in hexadecimal.
func jsonChecksum(value any, bytes int) string {
	text, _ := json.Marshal(value) // maps of strings and bytes can always be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:bytes])
}
