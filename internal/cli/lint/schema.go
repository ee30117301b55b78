package lint

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/config/crd/crdschema"
	"github.com/serin-dev/serin/internal/cli/similar"
)

// schemas are the schemas of the kinds that were needed so far.
type schemas struct {
	definitions map[string]map[string]*apiextensions.CustomResourceDefinition
	byVersion   map[string]versionSchema
}

// versionSchema is the schema of one version of a kind.
type versionSchema struct {
	crdschema.Schema

	// rules are the CEL rules of the schema; nil: none applies to an object without a previous version.
	rules *cel.Validator
}

func newSchemas() *schemas {
	return &schemas{definitions: map[string]map[string]*apiextensions.CustomResourceDefinition{}, byVersion: map[string]versionSchema{}}
}

// definitionsOf returns the definitions of a group by kind.
func (s *schemas) definitionsOf(group string) (map[string]*apiextensions.CustomResourceDefinition, error) {
	if found, ok := s.definitions[group]; ok {
		return found, nil
	}
	found, err := crdschema.Definitions(group)
	s.definitions[group] = found
	return found, err
}

func (s *schemas) schemaOf(definition *apiextensions.CustomResourceDefinition, version string) (versionSchema, error) {
	key := definition.Name + "/" + version
	if found, ok := s.byVersion[key]; ok {
		return found, nil
	}
	schema, err := crdschema.New(definition, version)
	if err != nil {
		return versionSchema{}, err
	}
	found := versionSchema{Schema: schema}
	if hasRules(schema.Structural) { // only their compilation takes noticeable time
		found.rules = cel.NewValidator(schema.Structural, true, celconfig.PerCallLimit)
	}
	s.byVersion[key] = found
	return found, nil
}

// hasRules reports whether a schema has a CEL rule that applies to an object without a previous version. Rules about changes, such as
// those of immutable fields, refer to oldSelf.
func hasRules(s *structuralschema.Structural) bool {
	if s == nil {
		return false
	}
	isAboutObject := func(rule apiextensionsv1.ValidationRule) bool { return !strings.Contains(rule.Rule, "oldSelf") }
	for _, property := range s.Properties {
		if hasRules(&property) {
			return true
		}
	}
	return slices.ContainsFunc(s.XValidations, isAboutObject) || hasRules(s.Items) || s.AdditionalProperties != nil && hasRules(s.AdditionalProperties.Structural)
}

// checkSchema checks an object with the schema of its kind, and prunes and defaults it as the API server does. It reports whether
// the object can be decoded.
func (l *linter) checkSchema(ctx context.Context, all *schemas, d *document) (usable bool, err error) {
	if !slices.Contains(crd.Groups(), d.group) {
		return false, nil // context for references
	}
	for _, twice := range duplicates(d.node, "") {
		l.report(d, ruleDuplicateField, twice.path, fmt.Sprintf("%s is already set on line %d", twice.path, d.firstLine+twice.line), "")
		last := &l.findings[len(l.findings)-1]
		last.Line, last.Column = d.firstLine+twice.node.Line, twice.node.Column
	}
	definitions, err := all.definitionsOf(d.group)
	if err != nil {
		return false, err
	}
	definition, found := definitions[d.kind]
	if !found {
		l.report(d, ruleUnknownKind, "kind", fmt.Sprintf("%s has no kind %s", d.group, d.kind), suggest(d.kind, slices.Sorted(maps.Keys(definitions))))
		return false, nil
	}
	var versions []string
	for _, version := range definition.Spec.Versions {
		versions = append(versions, version.Name)
	}
	if !slices.Contains(versions, d.version) {
		l.report(d, ruleUnknownKind, "apiVersion", fmt.Sprintf("%s has no version %s", d.kind, d.version), "use "+d.group+"/"+versions[0])
		return false, nil
	}
	schema, err := all.schemaOf(definition, d.version)
	if err != nil {
		return false, err
	}
	unknown := pruning.PruneWithOptions(d.object, schema.Structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		l.report(d, ruleUnknownField, path, fmt.Sprintf("unknown field %s", path), cmp.Or(l.suggestPlugin(path), suggestField(schema.Structural, path)))
	}
	defaulting.Default(d.object, schema.Structural)
	invalid := validation.ValidateCustomResource(nil, d.object, schema.Validator)
	if len(invalid) == 0 { // as in the API server: rules assume values that the rest of the schema permits
		invalid = schema.violatedRules(ctx, d.object)
	}
	invalid = append(invalid, validateMetadata(d, definition.Spec.Scope == apiextensions.NamespaceScoped)...)
	return l.reportInvalidFields(d, invalid), nil
}

// validateMetadata validates the metadata as the API server does, which completes a missing namespace and a generated name first.
func validateMetadata(d *document, isNamespaced bool) field.ErrorList {
	var object metav1.PartialObjectMetadata
	if d.decode(&object) != nil {
		return nil // reported when the object is decoded
	}
	object.Namespace = ""
	if isNamespaced {
		object.Namespace = cmp.Or(d.namespace, metav1.NamespaceDefault)
	}
	if object.Name == "" && object.GenerateName != "" {
		object.Name = "generated"
	}
	return apivalidation.ValidateObjectMeta(&object.ObjectMeta, isNamespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// violatedRules returns the errors of the CEL rules.
func (s versionSchema) violatedRules(ctx context.Context, object map[string]any) field.ErrorList {
	if s.rules == nil {
		return nil
	}
	violated, _ := s.rules.Validate(ctx, nil, s.Structural, object, nil, celconfig.RuntimeCELCostBudget)
	return violated
}

// inBody matches the part of a message of the schema validator that repeats the path.
var inBody = regexp.MustCompile(`^\S* in body `)

// reportInvalidFields reports the errors of the schema validator, and whether the object can be decoded.
func (l *linter) reportInvalidFields(d *document, invalid field.ErrorList) (usable bool) {
	usable = true
	for _, problem := range invalid {
		rule, message, fix := ruleInvalidValue, inBody.ReplaceAllString(problem.Detail, ""), ""
		switch problem.Type {
		case field.ErrorTypeRequired:
			rule, message = ruleRequiredField, "the field is required"
		case field.ErrorTypeTypeInvalid:
			rule, usable = ruleWrongType, false
		case field.ErrorTypeNotSupported:
			rule, message = ruleUnsupportedValue, problem.ErrorBody()
		default:
			if strings.Contains(message, "must be of type") {
				rule, usable = ruleWrongType, false
			}
		}
		l.report(d, rule, problem.Field, problem.Field+": "+message, fix)
	}
	return usable
}

// suggestPlugin returns the fix for a router that is a field of trafficRouting but is a built-in plugin; empty: it is none.
func (l *linter) suggestPlugin(path string) string {
	parent, router, _ := strings.Cut(path, ".trafficRouting.")
	name := "argoproj-labs/" + router
	if parent == path || strings.Contains(router, ".") || len(l.options.ExternalPlugins(&argov1.RolloutTrafficRouting{Plugins: map[string]json.RawMessage{name: nil}})) > 0 {
		return ""
	}
	return "write it under plugins: " + name
}

// suggestField returns the fix for an unknown field.
func suggestField(s *structuralschema.Structural, path string) string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for _, part := range parts[:len(parts)-1] {
		switch {
		case s == nil:
			return ""
		case s.Items != nil:
			s = s.Items
		case s.AdditionalProperties != nil:
			s = s.AdditionalProperties.Structural
		default:
			property, found := s.Properties[part]
			if !found {
				return ""
			}
			s = &property
		}
	}
	if s == nil {
		return ""
	}
	return suggest(parts[len(parts)-1], slices.Sorted(maps.Keys(s.Properties)))
}

// suggest returns a question for the most similar name; empty: none is similar.
func suggest(name string, existing []string) string {
	if nearest := similar.To(name, existing); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return ""
}
