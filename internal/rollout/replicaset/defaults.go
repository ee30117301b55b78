package replicaset

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaulted returns a template as the API server stores it in a ReplicaSet: with the default value of each field that
// is not set. Defaults that only a newer API server sets are missing here; see contains for those.
func defaulted(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template = *template.DeepCopy()
	template.CreationTimestamp.Reset()
	spec := &template.Spec
	fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&spec.SecurityContext, &corev1.PodSecurityContext{})
	fill(&spec.TerminationGracePeriodSeconds, new(int64(corev1.DefaultTerminationGracePeriodSeconds)))
	fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
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

// fill sets a field that has its zero value.
func fill[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			fill(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			fill(&from.FieldRef.APIVersion, "v1")
		}
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
			fill(&from.FileKeyRef.Optional, new(false))
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
	fill(&p.TimeoutSeconds, 1)
	fill(&p.PeriodSeconds, 10)
	fill(&p.SuccessThreshold, 1)
	fill(&p.FailureThreshold, 3)
	defaultRequest(p.HTTPGet)
	if p.GRPC != nil {
		fill(&p.GRPC.Service, new(""))
	}
}

func defaultRequest(get *corev1.HTTPGetAction) {
	if get == nil {
		return
	}
	fill(&get.Path, "/")
	fill(&get.Scheme, corev1.URISchemeHTTP)
}

func defaultVolume(v *corev1.VolumeSource) {
	if reflect.ValueOf(*v).IsZero() {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		fill(&v.HostPath.Type, new(corev1.HostPathUnset))
	case v.Secret != nil:
		fill(&v.Secret.DefaultMode, new(corev1.SecretVolumeSourceDefaultMode))
	case v.ConfigMap != nil:
		fill(&v.ConfigMap.DefaultMode, new(corev1.ConfigMapVolumeSourceDefaultMode))
	case v.DownwardAPI != nil:
		fill(&v.DownwardAPI.DefaultMode, new(corev1.DownwardAPIVolumeSourceDefaultMode))
		defaultFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.Image != nil:
		fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		fill(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, new(corev1.PersistentVolumeFilesystem))
	case v.ISCSI != nil:
		fill(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		fill(&v.RBD.RBDPool, "rbd")
		fill(&v.RBD.RadosUser, "admin")
		fill(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.AzureDisk != nil:
		fill(&v.AzureDisk.CachingMode, new(corev1.AzureDataDiskCachingReadWrite))
		fill(&v.AzureDisk.FSType, new("ext4"))
		fill(&v.AzureDisk.ReadOnly, new(false))
		fill(&v.AzureDisk.Kind, new(corev1.AzureSharedBlobDisk))
	case v.ScaleIO != nil:
		fill(&v.ScaleIO.StorageMode, "ThinProvisioned")
		fill(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	fill(&p.DefaultMode, new(corev1.ProjectedVolumeSourceDefaultMode))
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			defaultFiles(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			fill(&t.ExpirationSeconds, new(int64(3600)))
		}
	}
}

func defaultFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if ref := files[i].FieldRef; ref != nil {
			fill(&ref.APIVersion, "v1")
		}
	}
}
