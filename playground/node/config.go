//go:build linux

package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/serin-dev/serin/playground/network"
	"github.com/serin-dev/serin/playground/podroot"
)

// probeTLSConfig accepts every certificate, as the probes of a kubelet do.
func probeTLSConfig() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true}
}

// environmentVariables maps the names of environment variables to their values.
type environmentVariables map[string]string

func (v environmentVariables) list() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		all = append(all, name+"="+v[name])
	}
	return all
}

// expandVariables replaces $(NAME) by the variable's value and $$ by a dollar sign. References to unknown variables are
// unchanged, as the API specifies for command, args and env.
func expandVariables(text string, v environmentVariables) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		if text[i+1] == '$' {
			out.WriteByte('$')
			i++
			continue
		}
		name, _, closed := strings.Cut(text[i+1:], ")")
		value, known := v[strings.TrimPrefix(name, "(")]
		if !strings.HasPrefix(name, "(") || !closed || !known {
			out.WriteByte('$')
			continue
		}
		out.WriteString(value)
		i += len(name) + 1
	}
	return out.String()
}

// resolveEnvironment returns the environment of a container, with the current contents of ConfigMaps and Secrets.
func (w *worker) resolveEnvironment(ctx context.Context, spec corev1.Container, image Image, tag string) (environmentVariables, error) {
	v := environmentVariables{"PATH": "/", "HOSTNAME": w.pod.Name}
	if image.TagVariable != "" {
		v[image.TagVariable] = tag
	}
	for _, from := range spec.EnvFrom {
		var data map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = w.readConfigMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = w.readSecret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			v[from.Prefix+key] = value
		}
	}
	for _, e := range spec.Env {
		if e.ValueFrom == nil {
			v[e.Name] = expandVariables(e.Value, v)
			continue
		}
		value, found, err := w.resolveValue(ctx, e.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		if found {
			v[e.Name] = value
		}
	}
	return v, nil
}

func (w *worker) resolveValue(ctx context.Context, from *corev1.EnvVarSource) (value string, found bool, err error) {
	selectKey := func(kind, name, key string, optional *bool, data map[string]string, err error) (string, bool, error) {
		if err != nil {
			return "", false, err
		}
		value, found := data[key]
		if !found && !ptr.Deref(optional, false) {
			return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, w.pod.Namespace, name)
		}
		return value, found, nil
	}
	switch {
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := w.readConfigMap(ctx, ref.Name, ref.Optional)
		return selectKey("ConfigMap", ref.Name, ref.Key, ref.Optional, data, err)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := w.readSecret(ctx, ref.Name, ref.Optional)
		return selectKey("Secret", ref.Name, ref.Key, ref.Optional, data, err)
	case from.FieldRef != nil:
		return w.resolveFieldRef(from.FieldRef.FieldPath)
	default:
		return "", false, fmt.Errorf("the playground supports only configMapKeyRef, secretKeyRef and fieldRef in valueFrom")
	}
}

// resolveFieldRef returns the value of a field of the downward API.
func (w *worker) resolveFieldRef(path string) (string, bool, error) {
	fields := map[string]string{
		"metadata.name": w.pod.Name, "metadata.namespace": w.pod.Namespace, "metadata.uid": string(w.pod.UID),
		"spec.nodeName": w.node.Name, "spec.serviceAccountName": w.pod.Spec.ServiceAccountName,
		"status.podIP": w.address.String(), "status.podIPs": w.address.String(),
		"status.hostIP": network.NodeAddress.String(), "status.hostIPs": network.NodeAddress.String(),
	}
	if value, found := fields[path]; found {
		return value, true, nil
	}
	for prefix, values := range map[string]map[string]string{
		"metadata.labels": w.pod.Labels, "metadata.annotations": w.pod.Annotations,
	} {
		key, found := strings.CutPrefix(path, prefix+"['")
		if found {
			value, found := values[strings.TrimSuffix(key, "']")]
			return value, found, nil
		}
	}
	return "", false, fmt.Errorf("the pod has no field %s", path)
}

func (w *worker) readConfigMap(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	object, err := w.node.Client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	data := maps.Clone(object.Data)
	for key, value := range object.BinaryData {
		if data == nil {
			data = map[string]string{}
		}
		data[key] = string(value)
	}
	return data, nil
}

func (w *worker) readSecret(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	object, err := w.node.Client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	data := map[string]string{}
	for key, value := range object.Data {
		data[key] = string(value)
	}
	return data, nil
}

// writeMounts writes the volumes that a container uses, with the current contents of their sources, and returns their mounts.
func (w *worker) writeMounts(ctx context.Context, spec corev1.Container, env environmentVariables) ([]podroot.Mount, error) {
	var all []podroot.Mount
	for _, mount := range spec.VolumeMounts {
		i := slices.IndexFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s mounts volume %s, which the pod does not have", spec.Name, mount.Name)
		}
		source, err := w.prepareVolume(ctx, w.pod.Spec.Volumes[i])
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", mount.Name, err)
		}
		subPath := mount.SubPath
		if mount.SubPathExpr != "" {
			subPath = expandVariables(mount.SubPathExpr, env)
		}
		if !filepath.IsLocal(subPath) && subPath != "" {
			return nil, fmt.Errorf("volume %s: subPath %s is outside the volume", mount.Name, subPath)
		}
		all = append(all, podroot.Mount{Source: filepath.Join(source, subPath), Target: mount.MountPath, ReadOnly: mount.ReadOnly})
	}
	return all, nil
}

// prepareVolume writes the files of a volume and returns its folder on the machine.
func (w *worker) prepareVolume(ctx context.Context, volume corev1.Volume) (string, error) {
	folder := filepath.Join(w.folder(), "volumes", volume.Name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	source := volume.VolumeSource
	switch {
	case source.EmptyDir != nil:
		return folder, nil
	case source.HostPath != nil:
		return source.HostPath.Path, nil
	case source.ConfigMap != nil:
		data, err := w.readConfigMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
		if err != nil {
			return "", err
		}
		return folder, writeFiles(folder, data, source.ConfigMap.Items)
	case source.Secret != nil:
		data, err := w.readSecret(ctx, source.Secret.SecretName, source.Secret.Optional)
		if err != nil {
			return "", err
		}
		return folder, writeFiles(folder, data, source.Secret.Items)
	case source.Projected != nil:
		for _, part := range source.Projected.Sources {
			var data map[string]string
			var items []corev1.KeyToPath
			var err error
			switch {
			case part.ConfigMap != nil:
				data, err = w.readConfigMap(ctx, part.ConfigMap.Name, part.ConfigMap.Optional)
				items = part.ConfigMap.Items
			case part.Secret != nil:
				data, err = w.readSecret(ctx, part.Secret.Name, part.Secret.Optional)
				items = part.Secret.Items
			default:
				err = fmt.Errorf("the playground supports only ConfigMaps and Secrets in projected volumes")
			}
			if err != nil {
				return "", err
			}
			if err := writeFiles(folder, data, items); err != nil {
				return "", err
			}
		}
		return folder, nil
	default:
		return "", fmt.Errorf("the playground supports only configMap, secret, projected, emptyDir and hostPath volumes")
	}
}

// writeFiles writes one file for each item, or for each key if there are no items.
func writeFiles(folder string, data map[string]string, items []corev1.KeyToPath) error {
	files := data
	if len(items) > 0 {
		files = map[string]string{}
		for _, item := range items {
			value, found := data[item.Key]
			if !found {
				return fmt.Errorf("references non-existent config key: %s", item.Key)
			}
			files[item.Path] = value
		}
	}
	for path, text := range files {
		if !filepath.IsLocal(path) {
			return fmt.Errorf("path %s is outside the volume", path)
		}
		target := filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
