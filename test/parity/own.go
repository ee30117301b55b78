package parity

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/cli"
	"github.com/serin-dev/serin/internal/loadtester"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/telemetry"
)

// commandType is the type of commands and their flags.
const commandType = "command"

// own are the names that Serin serves.
type own struct {
	schemas  map[string]map[string]any // the schemas of the stored versions, by kind
	code     *code
	names    map[string][]string // by type and what they belong to
	flags    map[string]*pflag.FlagSet
	commands *cobra.Command
}

// kinds are the Go types of the kinds.
var kinds = map[string]reflect.Type{
	"Canary": reflect.TypeFor[flaggerv1.Canary](), "MetricTemplate": reflect.TypeFor[flaggerv1.MetricTemplate](), "AlertProvider": reflect.TypeFor[flaggerv1.AlertProvider](),
	"Rollout": reflect.TypeFor[argov1.Rollout](), "Experiment": reflect.TypeFor[argov1.Experiment](), "AnalysisRun": reflect.TypeFor[argov1.AnalysisRun](),
	"AnalysisTemplate": reflect.TypeFor[argov1.AnalysisTemplate](), "ClusterAnalysisTemplate": reflect.TypeFor[argov1.ClusterAnalysisTemplate](),
}

func newOwn(root string) (*own, error) {
	schemas, err := readSchemas()
	if err != nil {
		return nil, err
	}
	code, err := readCode(root)
	if err != nil {
		return nil, err
	}
	out := &own{schemas: schemas, code: code, names: map[string][]string{}, flags: map[string]*pflag.FlagSet{}, commands: cli.NewRoot("serin")}
	out.commands.InitDefaultCompletionCmd()
	out.flags["controller"] = pflag.NewFlagSet("controller", pflag.ContinueOnError)
	(&operator.Flags{}).Register(out.flags["controller"])
	out.flags["load tester"] = pflag.NewFlagSet("loadtester", pflag.ContinueOnError)
	(&loadtester.Flags{}).Register(out.flags["load tester"])
	for _, family := range telemetry.New(prometheus.NewRegistry()).Families() {
		out.names["metric"] = append(out.names["metric"], family.Name)
	}
	routers := (&operator.Flags{}).Routers()
	for name := range routers.Canary {
		out.names["provider"] = append(out.names["provider"], name)
	}
	for name := range routers.Rollout {
		out.names["router"] = append(out.names["router"], name)
	}
	services := operator.MetricsServices(metric.Cluster{}, clock.RealClock{})
	out.names["metric provider MetricTemplate"] = services.TemplateTypes()
	out.names["metric provider AnalysisTemplate"] = services.AnalysisTypes()
	out.names["alert provider"] = alerting.Types()
	out.names["notification service"] = service.Types()
	out.names["task type"] = loadtester.Types()
	return out, nil
}

// readSchemas reads the schemas of the stored versions of all kinds.
func readSchemas() (map[string]map[string]any, error) {
	out := map[string]map[string]any{}
	for _, group := range []string{flaggerv1.GroupName, argov1.GroupName} {
		files, err := crd.Files(group)
		if err != nil {
			return nil, err
		}
		for name, text := range files {
			var definition Definition
			if err := yaml.Unmarshal(text, &definition); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			out[definition.Spec.Names.Kind] = definition.StoredSchema()
		}
	}
	return out, nil
}

// stateOf returns the state of a name that follows from the code: served, accepted without effect, or not served. The note is the reason of
// the latter two.
func (o *own) stateOf(group Group, name string) (state State, note string) {
	isServed, missing := false, "not registered"
	switch group.Type {
	case "field":
		isServed, missing = o.servesField(group.Of, name)
	case "flag":
		flag := o.flags[group.Of].Lookup(name)
		if flag == nil {
			return NotServed, "no such flag"
		}
		if reason, isIgnored := strings.CutPrefix(flag.Usage, "accepted for compatibility: "); isIgnored {
			return Accepted, strings.ToUpper(reason[:1]) + reason[1:] + "."
		}
		return Served, ""
	case commandType:
		isServed, missing = o.hasCommand(name), "no such command or flag"
	case "metric", "provider", "router", "alert provider", "notification service", "task type":
		isServed = containsName(o.names[group.Type], name)
	case "metric provider":
		isServed = containsName(o.names[group.Type+" "+group.Of], name)
	case "event":
		isServed, missing = o.code.events[name], "no constant of the code"
	default:
		isServed, missing = o.code.constants[name], "no constant of the code"
	}
	if !isServed {
		return NotServed, missing
	}
	return Served, ""
}

// has reports whether Serin serves a name of the type of a group.
func (o *own) has(group Group, name string) bool {
	state, _ := o.stateOf(group, name)
	return state != NotServed
}

// hasField reports whether a field exists in the schema.
func (o *own) hasField(kind, name string) bool {
	path, _, _ := strings.Cut(name, " ")
	return hasPath(o.schemas[kind], pathSegments(path))
}

// containsName reports whether a registry has a name. Argo's names of routers and services differ in their case from the fields.
func containsName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(own string) bool { return strings.EqualFold(own, name) })
}

// servesField reports whether a field exists in the schema, and whether the code reads it.
func (o *own) servesField(kind, name string) (isServed bool, reason string) {
	fieldPath, embedded, _ := strings.Cut(name, " ")
	if !o.hasField(kind, name) {
		return false, "the schema has no such field"
	}
	fields, leaf, err := goFields(kinds[kind], pathSegments(fieldPath))
	if err != nil {
		return false, err.Error()
	}
	if want := embeddedTypes[embedded]; want != nil && leaf != want {
		return false, fmt.Sprintf("its type is %s", leaf)
	}
	for _, field := range fields {
		if !o.code.references[field] && !isConsumedWhole(field) {
			return false, "no code reads " + field
		}
	}
	return true, ""
}

// embeddedTypes are types of Kubernetes whose fields are not listed, because they are stored and used as a whole.
var embeddedTypes = map[string]reflect.Type{"PodTemplateSpec": reflect.TypeFor[corev1.PodTemplateSpec](), "JobSpec": reflect.TypeFor[batchv1.JobSpec]()}

// pathSegments splits spec.steps[].pause into spec, steps, [], pause.
func pathSegments(fieldPath string) []string {
	return strings.Split(strings.ReplaceAll(fieldPath, "[]", ".[]"), ".")
}

// hasPath reports whether a schema has a field. A part without a schema may contain any field.
func hasPath(schema map[string]any, segments []string) bool {
	if len(segments) == 0 {
		return true
	}
	next := func(keys ...string) (map[string]any, bool) {
		at := schema
		for _, key := range keys {
			below, ok := at[key].(map[string]any)
			if !ok {
				return nil, false
			}
			at = below
		}
		return at, true
	}
	var below map[string]any
	var ok bool
	switch segments[0] {
	case "[]":
		below, ok = next("items")
	case "*":
		below, ok = next("additionalProperties")
	default:
		below, ok = next("properties", segments[0])
	}
	if !ok {
		isOpen, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool)
		return isOpen && schema["properties"] == nil
	}
	return hasPath(below, segments[1:])
}

// goFields returns the fields of the Go types of the API on a path, as PACKAGE.TYPE.FIELD, and the type at its end. It stops at types that
// are not part of the API, such as those of Kubernetes.
func goFields(in reflect.Type, segments []string) (fields []string, leaf reflect.Type, err error) {
	for _, segment := range segments {
		for in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		switch {
		case segment == "[]" && in.Kind() == reflect.Slice, segment == "*" && in.Kind() == reflect.Map:
			in = in.Elem()
			continue
		case !strings.Contains(in.PkgPath(), "/serin/api/") || in.Kind() != reflect.Struct:
			return fields, in, nil
		}
		path, next := findField(in, segment)
		if next == nil {
			return nil, nil, fmt.Errorf("type %s has no field %s", in.Name(), segment)
		}
		fields, in = append(fields, path...), next
	}
	for in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	return fields, in, nil
}

// findField returns the field with a JSON name, with the embedded fields that lead to it.
func findField(in reflect.Type, name string) ([]string, reflect.Type) {
	for field := range in.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name {
			return []string{fieldKey(in, field.Name)}, field.Type
		}
		if field.Anonymous && tag == "" && field.Type.Kind() == reflect.Struct {
			if path, found := findField(field.Type, name); found != nil {
				return path, found
			}
		}
	}
	return nil, nil
}

func fieldKey(in reflect.Type, name string) string {
	return in.PkgPath()[strings.LastIndex(in.PkgPath(), "/")+1:] + "." + in.Name() + "." + name
}

// hasCommand reports whether a command of Serin exists, with its flags: get --watch.
func (o *own) hasCommand(line string) bool {
	var words, flags []string
	for word := range strings.FieldsSeq(line) {
		if flag, ok := strings.CutPrefix(word, "--"); ok {
			flags = append(flags, flag)
		} else {
			words = append(words, word)
		}
	}
	cmd := o.commands
	for _, word := range words {
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if i < 0 {
			return false
		}
		cmd = cmd.Commands()[i]
	}
	if len(words) == 0 { // a flag of all commands
		cmd = o.commands.Commands()[slices.IndexFunc(o.commands.Commands(), func(c *cobra.Command) bool { return c.Name() == "get" })]
	}
	return !slices.ContainsFunc(flags, func(flag string) bool {
		return cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil
	})
}
