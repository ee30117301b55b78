package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/config/crd/crdschema"
	"github.com/serin-dev/serin/internal/cli/similar"
)

// schemas are the schemas of the kinds that were needed so far.
type schemas struct {
	definitions map[string]map[string]*apiextensions.CustomResourceDefinition
	byVersion   map[string]crdschema.Schema
}

func newSchemas() *schemas {
	return &schemas{definitions: map[string]map[string]*apiextensions.CustomResourceDefinition{}, byVersion: map[string]crdschema.Schema{}}
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

func (s *schemas) schemaOf(definition *apiextensions.CustomResourceDefinition, version string) (crdschema.Schema, error) {
	key := definition.Name + "/" + version
	if found, ok := s.byVersion[key]; ok {
		return found, nil
	}
	found, err := crdschema.New(definition, version)
	s.byVersion[key] = found
	return found, err
}

// checkSchema checks an object with the schema of its kind, and prunes and defaults it as the API server does. It reports whether
// the object can be decoded.
func (l *linter) checkSchema(all *schemas, d *document) (usable bool, err error) {
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
		l.report(d, ruleUnknownField, path, fmt.Sprintf("unknown field %s", path), suggestField(schema.Structural, path))
	}
	defaulting.Default(d.object, schema.Structural)
	return l.reportInvalidFields(d, validation.ValidateCustomResource(nil, d.object, schema.Validator)), nil
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
