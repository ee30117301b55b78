package replicaset

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultTemplate returns a template as the API server stores it in a ReplicaSet: with the default of each field that
// is not set. Defaults that only a newer API server sets are missing here; see containsTemplate.
func defaultTemplate(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template = *template.DeepCopy()
	template.CreationTimestamp.Reset()
	spec := &template.Spec
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.SecurityContext, &corev1.PodSecurityContext{})
	setDefault(&spec.TerminationGracePeriodSeconds, new(int64(corev1.DefaultTerminationGracePeriodSeconds)))
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = "" // the former name of serviceAccountName
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
	spec.EphemeralContainers = nil // not permitted in a template
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	return template
}

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setDefault(&from.FieldRef.APIVersion, "v1")
		}
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
			setDefault(&from.FileKeyRef.Optional, new(false))
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle == nil {
		return
	}
	for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if handler != nil {
			defaultRequest(handler.HTTPGet)
		}
	}
}

// pullPolicy returns the default pull policy of an image: Always for the tag latest, explicit or implied, else
// IfNotPresent.
func pullPolicy(image string) corev1.PullPolicy {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !tagged && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	defaultRequest(p.HTTPGet)
	if p.GRPC != nil {
		setDefault(&p.GRPC.Service, new(""))
	}
}

func defaultRequest(get *corev1.HTTPGetAction) {
	if get == nil {
		return
	}
	setDefault(&get.Path, "/")
	setDefault(&get.Scheme, corev1.URISchemeHTTP)
}

func defaultVolume(v *corev1.VolumeSource) {
	if reflect.ValueOf(*v).IsZero() {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		setDefault(&v.HostPath.Type, new(corev1.HostPathUnset))
	case v.Secret != nil:
		setDefault(&v.Secret.DefaultMode, new(corev1.SecretVolumeSourceDefaultMode))
	case v.ConfigMap != nil:
		setDefault(&v.ConfigMap.DefaultMode, new(corev1.ConfigMapVolumeSourceDefaultMode))
	case v.DownwardAPI != nil:
		setDefault(&v.DownwardAPI.DefaultMode, new(corev1.DownwardAPIVolumeSourceDefaultMode))
		defaultFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.Image != nil:
		setDefault(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		setDefault(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, new(corev1.PersistentVolumeFilesystem))
	case v.ISCSI != nil:
		setDefault(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		setDefault(&v.RBD.RBDPool, "rbd")
		setDefault(&v.RBD.RadosUser, "admin")
		setDefault(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.AzureDisk != nil:
		setDefault(&v.AzureDisk.CachingMode, new(corev1.AzureDataDiskCachingReadWrite))
		setDefault(&v.AzureDisk.FSType, new("ext4"))
		setDefault(&v.AzureDisk.ReadOnly, new(false))
		setDefault(&v.AzureDisk.Kind, new(corev1.AzureSharedBlobDisk))
	case v.ScaleIO != nil:
		setDefault(&v.ScaleIO.StorageMode, "ThinProvisioned")
		setDefault(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	setDefault(&p.DefaultMode, new(corev1.ProjectedVolumeSourceDefaultMode))
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			defaultFiles(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			setDefault(&t.ExpirationSeconds, new(int64(3600)))
		}
	}
}

func defaultFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if ref := files[i].FieldRef; ref != nil {
			setDefault(&ref.APIVersion, "v1")
		}
	}
}
