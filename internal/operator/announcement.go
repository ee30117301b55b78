package operator

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// flagsAnnotation is the annotation of the leader Lease that contains the flags of its holder: a JSON array of arguments.
const flagsAnnotation = "serin.dev/flags"

// announcedFlags are the flags that change what commands show. None of them contains a secret or an address with one.
var announcedFlags = []string{
	"adopt-while-peer-runs", "ambassador-api-version", "apis", "aws-target-group-binding-api-version", "drain-delay", "enable-config-tracking",
	"include-label-prefix", "ingress-annotations-prefix", "ingress-class", "instance-id", "istio-api-version",
	"istio-primary-secret-namespace", "max-moving", "max-moving-per-namespace", "mesh-provider", "min-analysis-interval", "namespace",
	"no-cross-namespace-refs", "other-controller-namespaces", "selector-labels", "traefik-api-version", "traffic-split-api-version",
}

// AnnouncedArguments returns the flags that a controller announces on its Lease, as arguments. Those with their default value
// are included, because the defaults of the version that reads them may differ.
func AnnouncedArguments(set *pflag.FlagSet) []string {
	args := make([]string, 0, len(announcedFlags))
	for _, name := range announcedFlags {
		flag := set.Lookup(name)
		value := flag.Value.String()
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		args = append(args, "--"+name+"="+value)
	}
	return args
}

// ArgumentsOf returns the arguments that the holder of a Lease announces; nil: it announces none.
func ArgumentsOf(lease *coordinationv1.Lease) []string {
	var args []string
	if json.Unmarshal([]byte(lease.Annotations[flagsAnnotation]), &args) != nil {
		return nil
	}
	return args
}

// announcingLeases are Leases that announce the flags of the process that writes them. An announcement is part of the write that
// acquires or renews a Lease, so it always belongs to the holder. The renewals of a group of replicas do not announce their flags,
// because they patch a single field; commands find those flags in the Deployment of the replicas.
type announcingLeases struct {
	coordinationclient.LeasesGetter
	args []string
}

// Leases implements coordinationclient.LeasesGetter.
func (l announcingLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return announcingNamespace{l.LeasesGetter.Leases(namespace), l.args}
}

type announcingNamespace struct {
	coordinationclient.LeaseInterface
	args []string
}

// Create implements coordinationclient.LeaseInterface.
func (l announcingNamespace) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Create(ctx, l.announced(lease), options)
}

// Update implements coordinationclient.LeaseInterface.
func (l announcingNamespace) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Update(ctx, l.announced(lease), options)
}

func (l announcingNamespace) announced(lease *coordinationv1.Lease) *coordinationv1.Lease {
	text, err := json.Marshal(l.args)
	if err != nil || len(l.args) == 0 {
		return lease
	}
	lease = lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, flagsAnnotation, string(text))
	return lease
}
