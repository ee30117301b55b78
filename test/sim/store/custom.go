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
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
)

// custom is what a definition says, in the form in which it is fast: a tree that fills in, prunes, and recognises what is
// surely valid. What the tree is not sure of is given to the code of the real API server, which also words the errors.
type custom struct {
	root       *node
	structural *structural.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
	status     bool

	mu sync.Mutex
	// judged caches the results of the slow way by their input: runs are much alike.
	judged map[string]field.ErrorList
}

// Bounds of the cost of rules, those of the API server.
const (
	costOfRule = 1000000
	costOfAll  = 10000000
)

// judgedMost bounds what is remembered of slow results.
const judgedMost = 50000

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
		status: stored.Subresources != nil && stored.Subresources.Status != nil, judged: map[string]field.ErrorList{},
	}, nil
}

// node is one place of a schema.
type node struct {
	kind        string // of JSON; empty: any
	intOrString bool
	nullable    bool
	preserve    bool
	fields      map[string]*node
	others      *node // of fields without a name of their own
	anyOther    bool  // fields without a name of their own are kept
	items       *node
	initial     any // the default
	defaults    []string
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
	// unsure is true where the tree does not know all that the schema says.
	unsure bool
}

// trivialFormats are formats that the API server has no opinion on beyond the type.
var trivialFormats = []string{"", "int32", "int64", "double", "float", "string"}

func compileNode(s *structural.Structural) (*node, error) {
	n := &node{
		kind: s.Type, intOrString: s.XIntOrString, nullable: s.Nullable, preserve: s.XPreserveUnknownFields,
		initial: clone(s.Default.Object), longest: math.MaxInt64, mostItems: math.MaxInt64,
	}
	if s.XEmbeddedResource {
		return nil, errors.New("embedded resources are not simulated")
	}
	n.keys = s.XListMapKeys
	n.unsure = len(s.XValidations) > 0 || s.XListType != nil && *s.XListType == "set"
	if err := n.values(s.ValueValidation, s.XIntOrString); err != nil {
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
		if child.initial != nil {
			n.defaults = append(n.defaults, name)
		}
	}
	slices.Sort(n.defaults)
	if s.AdditionalProperties != nil {
		n.anyOther = s.AdditionalProperties.Bool
		if s.AdditionalProperties.Structural != nil {
			child, err := compileNode(s.AdditionalProperties.Structural)
			if err != nil {
				return nil, err
			}
			n.others = child
		}
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

// values takes over what a schema says about values. What this does not know makes the node unsure.
func (n *node) values(v *structural.ValueValidation, intOrString bool) error {
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

// complete drops what the schema does not know and fills in defaults, in place. What is the very same as before was
// completed then, and is not touched.
func (n *node) complete(value, old any) any {
	if old != nil && same(value, old) {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		before, _ := old.(map[string]any)
		for name, item := range v {
			n.completeField(v, name, item, before[name])
		}
		n.fillIn(v)
	case []any:
		if n.items == nil {
			if !n.preserve {
				strip(v)
			}
			return value
		}
		before, _ := old.([]any)
		for i, item := range v {
			if item == nil && !n.items.nullable && n.items.initial != nil {
				item = copied(n.items.initial)
			}
			var was any
			if i < len(before) {
				was = before[i]
			}
			v[i] = n.items.complete(item, was)
		}
	}
	return value
}

// strip empties what is in a place that the schema says nothing of.
func strip(value any) {
	switch v := value.(type) {
	case map[string]any:
		clear(v)
	case []any:
		for _, item := range v {
			strip(item)
		}
	}
}

// completeRoot is complete for a whole object, but for its metadata.
func (n *node) completeRoot(v, old map[string]any) {
	for name, item := range v {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			n.completeField(v, name, item, old[name])
		}
	}
	n.fillIn(v)
}

func (n *node) completeField(v map[string]any, name string, item, old any) {
	child := n.fields[name]
	if child == nil {
		child = n.others
	}
	switch {
	case child == nil && n.preserve:
	case child == nil && n.anyOther:
		strip(item)
	case child == nil, item == nil && !child.nullable && child.initial == nil:
		delete(v, name)
	case item == nil && !child.nullable:
		v[name] = child.complete(copied(child.initial), nil)
	default:
		v[name] = child.complete(item, old)
	}
}

// fillIn sets the defaults of what is absent.
func (n *node) fillIn(v map[string]any) {
	for _, name := range n.defaults {
		if _, found := v[name]; !found {
			v[name] = n.fields[name].complete(copied(n.fields[name].initial), nil)
		}
	}
}

// verdict of the quick way.
type verdict int

const (
	valid verdict = iota
	doubtful
)

// check validates what differs from the old value: stored values remain valid.
func (n *node) check(value, old any) verdict {
	if old != nil && same(value, old) {
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
		if n.kind != "string" && !n.intOrString && !n.free() {
			return doubtful
		}
		return n.checkString(v)
	case bool:
		if n.kind != "boolean" && !n.free() {
			return doubtful
		}
	case int64:
		if n.kind != "integer" && n.kind != "number" && !n.intOrString && !n.free() {
			return doubtful
		}
		return n.checkNumber(float64(v), v)
	case float64:
		if n.kind != "number" && !n.free() {
			return doubtful
		}
		return n.checkNumber(v, v)
	}
	return n.among(value)
}

// free is true for a place without a type, which accepts any value.
func (n *node) free() bool { return n.kind == "" && !n.intOrString }

func (n *node) among(value any) verdict {
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
	return n.among(v)
}

func (n *node) checkNumber(f float64, value any) verdict {
	if n.least != nil && f < *n.least || n.most != nil && f > *n.most {
		return doubtful
	}
	return n.among(value)
}

func (n *node) checkMap(v map[string]any, old any, root bool) verdict {
	if n.kind != "object" && !n.free() {
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
	if n.kind != "array" && !n.free() || int64(len(v)) < n.fewest || int64(len(v)) > n.mostItems {
		return doubtful
	}
	if len(n.keys) > 0 && !n.distinct(v) {
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

// distinct is true of items that surely differ in their keys.
func (n *node) distinct(list []any) bool {
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

// validate says what is wrong with an object; old is nil at creation, and else shares with it what did not change.
func (c *custom) validate(content, old map[string]any) field.ErrorList {
	var before any
	if old != nil {
		before = old
	}
	if !c.root.unsure && c.root.checkMap(content, before, true) == valid {
		return nil
	}
	key := c.judgement(content, old)
	c.mu.Lock()
	defer c.mu.Unlock()
	if faults, known := c.judged[key]; known {
		return faults
	}
	if len(c.judged) >= judgedMost {
		clear(c.judged)
	}
	faults := c.slowly(content, old)
	c.judged[key] = faults
	return faults
}

// judgement is the input of a result. A spec or a status that was stored remains valid, as in check.
func (c *custom) judgement(content, old map[string]any) string {
	var key strings.Builder
	for _, of := range []map[string]any{content, old} {
		parts := []any{object(of, "metadata")["name"], nil, nil, rest(of)}
		for i, part := range []string{"spec", "status"} {
			if c.root.unsure || old == nil || !same(content[part], old[part]) {
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

// rest are the fields of an object that has more than the usual ones.
func rest(content map[string]any) map[string]any {
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

// slowly asks the code of the real API server. It is bounded by its cost, and what it finds is kept for all, so it takes
// no one's context.
//
//nolint:contextcheck,nolintlint // the one is silenced here for those who call this, which the other does not see
func (c *custom) slowly(content, old map[string]any) field.ErrorList {
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
