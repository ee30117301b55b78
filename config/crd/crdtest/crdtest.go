// Package crdtest does with objects what an API server does that has the definitions of config/crd: it defaults, prunes
// and validates them.
//
// It is for tests of the types. It must not know a kind, nor what its fields mean.
package crdtest

import (
	"context"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/serin-dev/serin/config/crd/crdschema"
)

// Definitions reads the definitions of a group by kind, as the API server holds them.
func Definitions(t *testing.T, group string) map[string]*apiextensions.CustomResourceDefinition {
	t.Helper()
	found, err := crdschema.Definitions(group)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Server does with an object of one version what the API server does when it is written.
type Server struct {
	Structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *schemacel.Validator
}

// Servers makes a server for each version of each definition of a group, by "version/kind".
func Servers(t *testing.T, group string) map[string]Server {
	t.Helper()
	all := map[string]Server{}
	for kind, definition := range Definitions(t, group) {
		for _, version := range definition.Spec.Versions {
			schema, err := crdschema.New(definition, version.Name)
			if err != nil {
				t.Fatal(err)
			}
			all[version.Name+"/"+kind] = Server{schema.Structural, schema.Validator, schemacel.NewValidator(schema.Structural, true, celconfig.PerCallLimit)}
		}
	}
	return all
}

// Create gives what would be stored of a new object, and why it would not be.
func (s Server) Create(ctx context.Context, object map[string]any) (map[string]any, error) {
	return s.Update(ctx, object, nil)
}

// Update gives what would be stored of an object in the place of an old one, and why it would not be.
func (s Server) Update(ctx context.Context, object, old map[string]any) (map[string]any, error) {
	stored := s.Pruned(object)
	defaulting.Default(stored, s.Structural)
	refusals := validation.ValidateCustomResource(nil, stored, s.validator)
	if s.rules != nil {
		var before any // a nil map would be an old object without fields
		if old != nil {
			before = old
		}
		ruled, _ := s.rules.Validate(ctx, nil, s.Structural, stored, before, celconfig.RuntimeCELCostBudget)
		refusals = append(refusals, ruled...)
	}
	return stored, refusals.ToAggregate()
}

// Pruned gives the object without the fields that the schema does not know.
func (s Server) Pruned(object map[string]any) map[string]any {
	kept := runtime.DeepCopyJSON(object)
	pruning.Prune(kept, s.Structural, true)
	return kept
}

// CheckSchemas finds schemas that an API server would not take.
func CheckSchemas(t *testing.T, group string) {
	t.Helper()
	for version, s := range Servers(t, group) {
		if refusals := structuralschema.ValidateStructural(nil, s.Structural); len(refusals) > 0 {
			t.Errorf("schema of %s: %v", version, refusals.ToAggregate())
		}
		refusals, err := defaulting.ValidateDefaults(t.Context(), nil, s.Structural, true, true)
		if err != nil || len(refusals) > 0 {
			t.Errorf("defaults of %s: %v %v", version, refusals.ToAggregate(), err)
		}
	}
}
