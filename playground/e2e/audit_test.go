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

// accounts are the service accounts with the documented permissions: all of them, those for one namespace, or those that the chart
// grants if features are off.
var accounts = []string{
	serinAccount("default"), serinAccount("one-namespace"),
	serinAccount("only-canaries"), serinAccount("only-rollouts"),
}

// serinAccount returns the user name of the service account serin of a namespace.
func serinAccount(namespace string) string { return "system:serviceaccount:" + namespace + ":serin" }

// permission is a documented permission. The name is empty for all objects of the resource.
type permission struct{ group, resource, name, verb string }

func (r permission) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s/%s %s", r.verb, r.group, r.resource, r.name)), " ")
}

// unusedPermissions are documented permissions that a run of all tests does not use, with the reason why Serin needs them.
var unusedPermissions = []exception{
	{
		"an API server that supports streaming lists receives no list request; an older one does, and so may a restarted watch",
		func(r permission, granted map[permission]bool) bool {
			return r.verb == "list" && granted[permission{r.group, r.resource, r.name, "watch"}]
		},
	},
	{
		"a watched object is read directly only if the watch has not returned an own write yet; list permits as much",
		func(r permission, granted map[permission]bool) bool {
			return r.verb == "get" && granted[permission{r.group, r.resource, r.name, "watch"}]
		},
	},
	{
		"admission plugin OwnerReferencesPermissionEnforcement checks whether the owner's finalizers may be updated",
		func(r permission, _ map[permission]bool) bool {
			return r.verb == "update" && strings.HasSuffix(r.resource, "/finalizers")
		},
	},
	{
		"each Serin in these tests serves one namespace, and reads cluster-scoped objects when it needs them",
		matchPermissions("watch", "argoproj.io/clusteranalysistemplates"),
	},
	{
		"Knative cannot run here, and no module contains its CRDs and those of the former group of Ambassador",
		matchPermissions("watch create patch delete", "serving.knative.dev/services", "serving.knative.dev/revisions", "x.getambassador.io/ambassadormappings"),
	},
	{
		"target groups are compared with TargetGroupBindings only if AWS is reachable",
		matchPermissions("list", "elbv2.k8s.aws/targetgroupbindings"),
	},
	{
		"these routes are written with the same code as HTTPRoutes",
		matchPermissions("watch create patch", "gateway.networking.k8s.io/grpcroutes", "gateway.networking.k8s.io/tcproutes", "gateway.networking.k8s.io/tlsroutes"),
	},
	{
		"the router of Gloo writes a VirtualService with the same code as the RouteTable of the example",
		matchPermissions("watch patch", "gateway.solo.io/virtualservices"),
	},
	{
		"no test exceeds the history limits, or has an experiment step",
		matchPermissions("create delete", "apps/replicasets", "argoproj.io/analysisruns", "argoproj.io/experiments"),
	},
	{
		"no test changes the source of an Upstream or a VirtualService of a provider that cannot run, or stops using Gloo",
		func(r permission, _ map[permission]bool) bool {
			return r == permission{"appmesh.k8s.aws", "virtualservices", "", "patch"} || r.group == "gloo.solo.io" && r.resource == "upstreams" && (r.verb == "patch" || r.verb == "delete")
		},
	},
	{
		"no test has a workloadRef to a PodTemplate, or an alert of a Canary",
		matchPermissions("watch", "/podtemplates", "flagger.app/alertproviders"),
	},
	{
		"the revisions of a DaemonSet are listed, and a HorizontalPodAutoscaler is patched, only in rare cases",
		func(r permission, _ map[permission]bool) bool {
			return r == permission{"apps", "controllerrevisions", "", "list"} || r == permission{"autoscaling", "horizontalpodautoscalers", "", "patch"}
		},
	},
}

// matchPermissions matches permissions with one of the verbs for one of the resources, which include their group.
func matchPermissions(verbs string, resources ...string) func(permission, map[permission]bool) bool {
	return func(r permission, _ map[permission]bool) bool {
		return slices.Contains(strings.Fields(verbs), r.verb) && slices.Contains(resources, r.group+"/"+r.resource)
	}
}

// exception is the reason why permissions are documented that no test uses.
type exception struct {
	reason string
	covers func(r permission, granted map[permission]bool) bool
}

// documentedPermissions returns all permissions in the documentation.
func documentedPermissions() (map[permission]bool, error) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "examples", "permissions.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the documented permissions: %w", err)
	}
	found := map[permission]bool{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role rbacv1.ClusterRole // or a Role, or an object without rules
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the documented permissions: %w", err)
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
							found[permission{group, resource, name, verb}] = true
						}
					}
				}
			}
		}
	}
}

// checkPermissionsUsed compares the requests of Serin during the tests with the documented permissions. An unused permission
// is an error only if all tests ran.
func checkPermissionsUsed(all bool) error {
	requests, err := shared.Requests()
	if err != nil {
		return err
	}
	granted, err := documentedPermissions()
	if err != nil {
		return err
	}
	forbidden, used := map[string]bool{}, map[permission]bool{}
	for _, r := range requests {
		if r.Forbidden {
			forbidden[fmt.Sprintf("%s may not %s %s", r.User, r.Verb, r.Path)] = true
			continue
		}
		used[permission{r.Group, r.Resource, "", r.Verb}] = true
		used[permission{r.Group, r.Resource, r.Name, r.Verb}] = true
	}
	var wrong []error
	for _, text := range slices.Sorted(maps.Keys(forbidden)) {
		wrong = append(wrong, errors.New(text))
	}
	if all {
		wrong = append(wrong, checkUnused(granted, used)...)
	}
	return errors.Join(wrong...)
}

func checkUnused(granted, used map[permission]bool) (wrong []error) {
	needed := make([]bool, len(unusedPermissions))
	for r := range granted {
		switch i := slices.IndexFunc(unusedPermissions, func(e exception) bool { return e.covers(r, granted) }); {
		case i >= 0:
			needed[i] = true
		case !used[r]:
			wrong = append(wrong, fmt.Errorf("docs/examples/permissions.yaml allows %s, which no test used", r))
		}
	}
	for i, e := range unusedPermissions {
		if !needed[i] {
			wrong = append(wrong, fmt.Errorf("docs/examples/permissions.yaml has no permission for this exception: %s", e.reason))
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return wrong
}
