//go:build linux

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// accounts have what is installed of the documented rights: all of them, or those of one namespace.
var accounts = []string{"system:serviceaccount:default:serin", "system:serviceaccount:one-namespace:serin"}

// right is a documented one. Name is empty for all objects of the resource.
type right struct{ group, resource, name, verb string }

func (r right) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s/%s %s", r.verb, r.group, r.resource, r.name)), " ")
}

// unexercised are the documented rights that a run of all tests does not need, by the reason for having them all the same.
var unusedPermissions = []excuse{
	{
		"an API server that streams what is watched is not asked to list it; an older one is, and a watch that begins anew may be",
		func(r right, granted map[right]bool) bool {
			return r.verb == "list" && granted[right{r.group, r.resource, r.name, "watch"}]
		},
	},
	{
		"what is watched is read by itself only where the watch has not told of an own write yet; list allows as much",
		func(r right, granted map[right]bool) bool {
			return r.verb == "get" && granted[right{r.group, r.resource, r.name, "watch"}]
		},
	},
	{
		"admission plugin OwnerReferencesPermissionEnforcement looks itself whether the owner's finalizers may be updated",
		func(r right, _ map[right]bool) bool {
			return r.verb == "update" && strings.HasSuffix(r.resource, "/finalizers")
		},
	},
	{
		"each Serin here serves one namespace, and reads what belongs to none when it needs it",
		rights("watch", "argoproj.io/clusteranalysistemplates"),
	},
	{
		"Knative cannot run here, and its definitions and those of the former group of Ambassador are in no module",
		rights("watch create patch delete", "serving.knative.dev/services", "serving.knative.dev/revisions", "x.getambassador.io/ambassadormappings"),
	},
	{
		"target groups are compared with TargetGroupBindings where AWS can be asked",
		rights("list", "elbv2.k8s.aws/targetgroupbindings"),
	},
	{
		"the plugin gatewayAPI has these routes for what is not HTTP; they are the same code as HTTPRoute",
		rights("watch patch", "gateway.networking.k8s.io/grpcroutes", "gateway.networking.k8s.io/tcproutes", "gateway.networking.k8s.io/tlsroutes"),
	},
	{
		"no test here makes more than the limits of history keep, or has a step experiment",
		rights("create delete", "apps/replicasets", "argoproj.io/analysisruns", "argoproj.io/experiments"),
	},
	{
		"no test here changes what an Upstream or a VirtualService of a provider that cannot run is made from, or leaves Gloo",
		func(r right, _ map[right]bool) bool {
			return r == right{"appmesh.k8s.aws", "virtualservices", "", "patch"} || r.group == "gloo.solo.io" && r.resource == "upstreams" && (r.verb == "patch" || r.verb == "delete")
		},
	},
	{
		"no test here has a workloadRef to a PodTemplate, or an alert of a Canary",
		rights("watch", "/podtemplates", "flagger.app/alertproviders"),
	},
	{
		"a template of a DaemonSet is looked for among its revisions, and a HorizontalPodAutoscaler changed, after rare moves",
		func(r right, _ map[right]bool) bool {
			return r == right{"apps", "controllerrevisions", "", "list"} || r == right{"autoscaling", "horizontalpodautoscalers", "", "patch"}
		},
	},
}

// rights are those with one of the verbs on one of the resources, each with its group.
func rights(verbs string, resources ...string) func(right, map[right]bool) bool {
	return func(r right, _ map[right]bool) bool {
		return slices.Contains(strings.Fields(verbs), r.verb) && slices.Contains(resources, r.group+"/"+r.resource)
	}
}

// excuse is why some rights are granted that no test needs.
type excuse struct {
	reason string
	covers func(r right, granted map[right]bool) bool
}

// documented are all rights of the documentation.
func documented() (map[right]bool, error) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "examples", "rights.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the documented rights: %w", err)
	}
	rights := map[right]bool{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role rbacv1.ClusterRole // or a Role, or what has no rules
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return rights, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the documented rights: %w", err)
		}
		for _, rule := range role.Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						for _, verb := range rule.Verbs {
							rights[right{group, resource, name, verb}] = true
						}
					}
				}
			}
		}
	}
}

// judgeRights compares what Serin asked of the API server during all tests with what the documentation allows it. A right
// that nothing used is a mistake only where all tests ran.
func checkPermissionsUsed(all bool) error {
	requests, err := shared.Requests()
	if err != nil {
		return err
	}
	granted, err := documented()
	if err != nil {
		return err
	}
	forbidden, used := map[string]bool{}, map[right]bool{}
	for _, r := range requests {
		if r.Forbidden {
			forbidden[fmt.Sprintf("%s may not %s %s", r.User, r.Verb, r.Path)] = true
			continue
		}
		used[right{r.Group, r.Resource, "", r.Verb}] = true
		used[right{r.Group, r.Resource, r.Name, r.Verb}] = true
	}
	var wrong []error
	for _, text := range slices.Sorted(maps.Keys(forbidden)) {
		wrong = append(wrong, errors.New(text))
	}
	if all {
		wrong = append(wrong, judgeUnused(granted, used)...)
	}
	return errors.Join(wrong...)
}

func judgeUnused(granted, used map[right]bool) (wrong []error) {
	needed := make([]bool, len(unusedPermissions))
	for r := range granted {
		switch i := slices.IndexFunc(unusedPermissions, func(e excuse) bool { return e.covers(r, granted) }); {
		case i >= 0:
			needed[i] = true
		case !used[r]:
			wrong = append(wrong, fmt.Errorf("docs/examples/rights.yaml allows %s, which no test needed", r))
		}
	}
	for i, e := range unusedPermissions {
		if !needed[i] {
			wrong = append(wrong, fmt.Errorf("docs/examples/rights.yaml has no right any more with this excuse: %s", e.reason))
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return wrong
}
