package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
)

// custom is a compiled definition: the code of the real API server, which sets defaults, prunes and validates, and a tree that
// recognises objects that are certainly valid, because validation is slow.
type custom struct {
	root       *node
	structural *structural.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
	status     bool

	mu sync.Mutex
	// results caches the results of the slow path by their input, because runs are similar.
	results map[string]field.ErrorList
}

// The cost limits of rules, as in the API server.
const (
	costOfRule = 1000000
	costOfAll  = 10000000
)

// maxResults is the maximum number of cached results.
const maxResults = 50000

func compileCustom(resource *apiextensionsv1.CustomResourceDefinition) (*custom, error) {
	var stored *apiextensionsv1.CustomResourceDefinitionVersion
	for i := range resource.Spec.Versions {
		if resource.Spec.Versions[i].Storage {
			stored = &resource.Spec.Versions[i]
		}
	}
	if stored == nil || stored.Schema == nil {
		return nil, fmt.Errorf("definition %s stores no version with a schema", resource.Name)
	}
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(stored.Schema, &internal, nil); err != nil {
		return nil, fmt.Errorf("definition %s: %w", resource.Name, err)
	}
	s, err := structural.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", resource.Name, err)
	}
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", resource.Name, err)
	}
	root, err := compileNode(s)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", resource.Name, err)
	}
	return &custom{
		root: root, structural: s, schema: validator, rules: cel.NewValidator(s, true, costOfRule),
		status: stored.Subresources != nil && stored.Subresources.Status != nil, results: map[string]field.ErrorList{},
	}, nil
}

// node is one location of a schema.
type node struct {
	kind        string // of JSON; empty: any
	intOrString bool
	nullable    bool
	fields      map[string]*node
	others      *node // of fields without a name of their own
	items       *node
	required    []string
	enum        []any
	pattern     *regexp.Regexp
	least, most *float64
	shortest    int64
	longest     int64
	fewest      int64
	mostItems   int64
	dateTime    bool
	keys        []string // of a list of type map: no two items have the same
	// unsure is true if the tree does not implement all constraints of the schema.
	unsure bool
}

// trivialFormats are formats for which the API server checks nothing except the type.
var trivialFormats = []string{"", "int32", "int64", "double", "float", "string"}

func compileNode(s *structural.Structural) (*node, error) {
	n := &node{
		kind: s.Type, intOrString: s.XIntOrString, nullable: s.Nullable, longest: math.MaxInt64, mostItems: math.MaxInt64,
	}
	if s.XEmbeddedResource {
		return nil, errors.New("embedded resources are not simulated")
	}
	n.keys = s.XListMapKeys
	n.unsure = len(s.XValidations) > 0 || s.XListType != nil && *s.XListType == "set"
	if err := n.readConstraints(s.ValueValidation, s.XIntOrString); err != nil {
		return nil, err
	}
	if len(s.Properties) > 0 {
		n.fields = make(map[string]*node, len(s.Properties))
	}
	for name := range s.Properties {
		property := s.Properties[name]
		child, err := compileNode(&property)
		if err != nil {
			return nil, err
		}
		n.fields[name] = child
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		child, err := compileNode(s.AdditionalProperties.Structural)
		if err != nil {
			return nil, err
		}
		n.others = child
	}
	if s.Items != nil {
		child, err := compileNode(s.Items)
		if err != nil {
			return nil, err
		}
		n.items = child
	}
	return n, nil
}

// readConstraints reads the value constraints of a schema. An unknown constraint makes the node unsure.
func (n *node) readConstraints(v *structural.ValueValidation, intOrString bool) error {
	if v == nil {
		return nil
	}
	if len(v.AllOf) > 0 || len(v.OneOf) > 0 || v.Not != nil || v.MultipleOf != nil || v.UniqueItems || v.ExclusiveMinimum || v.ExclusiveMaximum ||
		v.MinProperties != nil || v.MaxProperties != nil || len(v.AnyOf) > 0 && !intOrString {
		n.unsure = true
	}
	if !slices.Contains(trivialFormats, v.Format) {
		if v.Format == "date-time" {
			n.dateTime = true
		} else {
			n.unsure = true
		}
	}
	if v.Pattern != "" {
		pattern, err := regexp.Compile(v.Pattern)
		if err != nil {
			return fmt.Errorf("pattern %q: %w", v.Pattern, err)
		}
		n.pattern = pattern
	}
	for _, value := range v.Enum {
		n.enum = append(n.enum, clone(value.Object))
	}
	n.required = v.Required
	n.least, n.most = v.Minimum, v.Maximum
	set := func(into *int64, from *int64) {
		if from != nil {
			*into = *from
		}
	}
	set(&n.shortest, v.MinLength)
	set(&n.longest, v.MaxLength)
	set(&n.fewest, v.MinItems)
	set(&n.mostItems, v.MaxItems)
	return nil
}

// complete prunes unknown fields and sets defaults, in place.
func (c *custom) complete(fields map[string]any) {
	pruning.Prune(fields, c.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(fields, c.structural)
	defaulting.Default(fields, c.structural)
}

// verdict is a result of the quick path.
type verdict int

const (
	valid verdict = iota
	doubtful
)

// check validates the parts that differ from the old value: stored values remain valid.
func (n *node) check(value, old any) verdict {
	if old != nil && identical(value, old) {
		return valid
	}
	if n.unsure {
		return doubtful
	}
	switch v := value.(type) {
	case nil:
		if n.nullable {
			return valid
		}
		return doubtful
	case map[string]any:
		return n.checkMap(v, old, false)
	case []any:
		return n.checkList(v, old)
	case string:
		if n.kind != "string" && !n.intOrString && !n.acceptsAnyType() {
			return doubtful
		}
		return n.checkString(v)
	case bool:
		if n.kind != "boolean" && !n.acceptsAnyType() {
			return doubtful
		}
	case int64:
		if n.kind != "integer" && n.kind != "number" && !n.intOrString && !n.acceptsAnyType() {
			return doubtful
		}
		return n.checkNumber(float64(v), v)
	case float64:
		if n.kind != "number" && !n.acceptsAnyType() {
			return doubtful
		}
		return n.checkNumber(v, v)
	}
	return n.checkEnum(value)
}

// acceptsAnyType reports whether a node has no type and accepts any value.
func (n *node) acceptsAnyType() bool { return n.kind == "" && !n.intOrString }

func (n *node) checkEnum(value any) verdict {
	if n.enum == nil || slices.Contains(n.enum, value) {
		return valid
	}
	return doubtful
}

func (n *node) checkString(v string) verdict {
	if n.shortest > 0 || n.longest < math.MaxInt64 {
		if length := int64(utf8.RuneCountInString(v)); length < n.shortest || length > n.longest {
			return doubtful
		}
	}
	if n.pattern != nil && !n.pattern.MatchString(v) {
		return doubtful
	}
	if n.dateTime {
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return doubtful
		}
	}
	if n.enum == nil {
		return valid
	}
	return n.checkEnum(v)
}

func (n *node) checkNumber(f float64, value any) verdict {
	if n.least != nil && f < *n.least || n.most != nil && f > *n.most {
		return doubtful
	}
	return n.checkEnum(value)
}

func (n *node) checkMap(v map[string]any, old any, root bool) verdict {
	if n.kind != "object" && !n.acceptsAnyType() {
		return doubtful
	}
	before, _ := old.(map[string]any)
	for _, name := range n.required {
		if _, found := v[name]; !found {
			return doubtful
		}
	}
	for name, item := range v {
		if root && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		child := n.fields[name]
		if child == nil {
			child = n.others
		}
		if child == nil {
			continue
		}
		if child.check(item, before[name]) != valid {
			return doubtful
		}
	}
	return valid
}

func (n *node) checkList(v []any, old any) verdict {
	if n.kind != "array" && !n.acceptsAnyType() || int64(len(v)) < n.fewest || int64(len(v)) > n.mostItems {
		return doubtful
	}
	if len(n.keys) > 0 && !n.hasDistinctKeys(v) {
		return doubtful
	}
	before, _ := old.([]any)
	for i, item := range v {
		if n.items == nil {
			break
		}
		var was any
		if i < len(before) {
			was = before[i]
		}
		if n.items.check(item, was) != valid {
			return doubtful
		}
	}
	return valid
}

// hasDistinctKeys reports whether the items of a list certainly differ in their keys.
func (n *node) hasDistinctKeys(list []any) bool {
	known := map[string]bool{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		var key strings.Builder
		for _, name := range n.keys {
			value, ok := fields[name].(string)
			if !ok {
				return false
			}
			fmt.Fprintf(&key, "%q", value)
		}
		if known[key.String()] {
			return false
		}
		known[key.String()] = true
	}
	return true
}

// validate returns the errors of an object. old is nil for a creation; otherwise the object shares its unchanged parts with
// old.
func (c *custom) validate(content, old map[string]any) field.ErrorList {
	var before any
	if old != nil {
		before = old
	}
	if !c.root.unsure && c.root.checkMap(content, before, true) == valid {
		return nil
	}
	key := c.cacheKey(content, old)
	c.mu.Lock()
	defer c.mu.Unlock()
	if faults, known := c.results[key]; known {
		return faults
	}
	if len(c.results) >= maxResults {
		clear(c.results)
	}
	faults := c.validateSlowly(content, old)
	c.results[key] = faults
	return faults
}

// cacheKey returns the cache key of a result. A stored spec or status remains valid, as in check.
func (c *custom) cacheKey(content, old map[string]any) string {
	var key strings.Builder
	for _, of := range []map[string]any{content, old} {
		parts := []any{object(of, "metadata")["name"], nil, nil, unusualFields(of)}
		for i, part := range []string{"spec", "status"} {
			if c.root.unsure || old == nil || !identical(content[part], old[part]) {
				parts[i+1] = of[part]
			}
		}
		text, err := json.Marshal(parts)
		if err != nil {
			panic(fmt.Sprintf("store: a stored object has no JSON: %v", err))
		}
		key.Write(text)
	}
	return key.String()
}

// unusualFields returns the fields of an object other than the usual ones.
func unusualFields(content map[string]any) map[string]any {
	var out map[string]any
	for name, value := range content {
		switch name {
		case "apiVersion", "kind", "metadata", "spec", "status":
		default:
			if out == nil {
				out = map[string]any{}
			}
			out[name] = value
		}
	}
	return out
}

// validateSlowly validates with the code of the real API server. The cost limits bound it, and its result is cached for all
// callers, so it uses no caller's context.
//
//nolint:contextcheck,nolintlint // contextcheck is silenced here for the callers, which nolintlint does not see
func (c *custom) validateSlowly(content, old map[string]any) field.ErrorList {
	ctx := context.Background()
	var faults field.ErrorList
	if old == nil {
		faults = append(faults, validation.ValidateCustomResource(nil, content, c.schema)...)
		faults = append(faults, listtype.ValidateListSetsAndMaps(nil, c.structural, content)...)
		if len(faults) > 0 {
			return faults
		}
		broken, _ := c.rules.Validate(ctx, nil, c.structural, content, nil, costOfAll)
		return broken
	}
	correlated := common.NewCorrelatedObject(content, old, &model.Structural{Structural: c.structural})
	faults = append(faults, validation.ValidateCustomResourceUpdate(nil, content, old, c.schema, validation.WithRatcheting(correlated))...)
	if lists := listtype.ValidateListSetsAndMaps(nil, c.structural, content); len(lists) > 0 {
		if len(listtype.ValidateListSetsAndMaps(nil, c.structural, old)) == 0 {
			faults = append(faults, lists...)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	broken, _ := c.rules.Validate(ctx, nil, c.structural, content, old, costOfAll, cel.WithRatcheting(correlated))
	return broken
}
