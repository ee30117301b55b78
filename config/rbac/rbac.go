// Package rbac contains the permissions of the controller, from this folder.
//
// Commands review whether they are granted. It must not know what a permission is for: docs/install.md lists that.
package rbac

import (
	_ "embed"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

//go:embed role.yaml
var always []byte

//go:embed canaries.yaml
var canaries []byte

//go:embed rollouts.yaml
var rollouts []byte

// Always returns the permissions for both APIs, including those for the objects of all traffic providers.
func Always() ([]rbacv1.PolicyRule, error) { return rulesIn(always) }

// ForAPI returns the permissions for one API: canary or rollout.
func ForAPI(api string) ([]rbacv1.PolicyRule, error) {
	switch api {
	case "canary":
		return rulesIn(canaries)
	case "rollout":
		return rulesIn(rollouts)
	default:
		return nil, fmt.Errorf("there are permissions for the APIs canary and rollout, none for %q", api)
	}
}

func rulesIn(text []byte) ([]rbacv1.PolicyRule, error) {
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(text, &role); err != nil {
		return nil, fmt.Errorf("read the permissions of the controller: %w", err)
	}
	return role.Rules, nil
}
