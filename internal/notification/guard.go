package notification

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"regexp"
	"strings"
	"sync"
	text "text/template"
	"text/template/parse"
	"time"

	"github.com/Masterminds/sprig/v3"

	"github.com/serin-dev/serin/internal/budget"
)

// The limits of the templates of one message. They are executed in the controller, which serves all namespaces, also if a
// namespace has its own templates.
const (
	maxText  = 256 << 10             // bytes of one rendered template
	maxList  = 1000                  // elements, bytes or columns that a function derives from a number
	maxSteps = 20_000                // iterations of loops, and calls of templates
	maxCost  = 16 << 20              // in the unit of package budget
	zoneCost = 256 * budget.StepCost // looking up a time zone, which reads a file
	maxTime  = 5 * time.Second       // for one message; what the budget allows takes a fraction of a second
)

var (
	errTooLong = errors.New("it becomes too long")
	errTooSlow = fmt.Errorf("it took longer than %s: use fewer loops", maxTime)
	errSteps   = fmt.Errorf("it runs more than %d iterations of loops: use fewer loops, or shorter lists", maxSteps)
	errWidth   = errors.New("it formats with a width that is not a small number, or with numbered arguments: remove them")
)

// guard executes templates within a budget. Neither text/template nor its function library can be interrupted or has
// limits. So the body of each loop, and each template that may be called, begins with a step; each function charges its
// arguments and its result; and the output is limited.
type guard struct {
	*budget.Budget
	steps   int
	library text.FuncMap
}

// parserFunctions returns the functions of all templates, for parsing only.
var parserFunctions = sync.OnceValue(func() text.FuncMap { return (&guard{}).functions() })

// execute renders one string.
func (g *guard) execute(name, content string, vars map[string]any) (string, error) {
	if g.library == nil {
		g.library = g.functions()
	}
	t, err := parseText(name, content, g.library)
	if err != nil {
		return "", err
	}
	out := &boundedText{}
	err = t.Execute(out, vars)
	if g.Err() != nil {
		err = g.Err()
	}
	return out.String(), err
}

// boundedText is a buffer of at most maxText bytes.
type boundedText struct{ strings.Builder }

func (b *boundedText) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}

// stepName is the function that is called at the beginning of each iteration of a loop.
const stepName = "serinStep"

// parseText parses one string such that its execution charges the guard to which the functions belong.
func parseText(name, content string, functions text.FuncMap) (*text.Template, error) {
	t, err := text.New(name).Funcs(functions).Parse(content)
	if err != nil {
		return nil, err
	}
	step, err := text.New("step").Funcs(functions).Parse("{{" + stepName + "}}")
	if err != nil {
		return nil, err
	}
	for _, defined := range t.Templates() {
		if defined.Tree != nil {
			insertSteps(defined.Root, step.Root.Nodes[0], true)
		}
	}
	return t, nil
}

// insertSteps puts a step at the beginning of each list of nodes that may be executed repeatedly: the body of a loop, and
// a template, which may call itself.
func insertSteps(list *parse.ListNode, step parse.Node, repeated bool) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.RangeNode:
			insertSteps(n.List, step, true)
			insertSteps(n.ElseList, step, false)
		case *parse.IfNode:
			insertSteps(n.List, step, false)
			insertSteps(n.ElseList, step, false)
		case *parse.WithNode:
			insertSteps(n.List, step, false)
			insertSteps(n.ElseList, step, false)
		}
	}
	if repeated {
		list.Nodes = append([]parse.Node{step.Copy()}, list.Nodes...)
	}
}

func (g *guard) step() (string, error) {
	if g.steps++; g.steps > maxSteps {
		return "", errSteps
	}
	return "", g.Spend(budget.StepCost)
}

// excludedFunctions are the functions of the library that read the environment, use the network, or are slow.
var excludedFunctions = []string{
	"env", "expandenv", "getHostByName", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey",
	"genSignedCert", "genSignedCertWithKey", "derivePassword", "bcrypt", "htpasswd", "buildCustomCert", "seq",
}

// functions returns the functions of the library, and those of text/template that return strings, each with limits.
func (g *guard) functions() text.FuncMap {
	all := sprig.TxtFuncMap()
	for _, name := range excludedFunctions {
		delete(all, name)
	}
	all["print"], all["println"], all["printf"] = fmt.Sprint, fmt.Sprintln, fmt.Sprintf
	all["html"], all["js"], all["urlquery"] = text.HTMLEscaper, text.JSEscaper, text.URLQueryEscaper
	for name, function := range all {
		all[name] = g.charge(name, reflect.ValueOf(function))
	}
	all[stepName] = g.step
	return all
}

// charge returns a function with the same parameters that charges the budget, and returns an error if that fails.
func (g *guard) charge(name string, function reflect.Value) any {
	kind := function.Type()
	in := make([]reflect.Type, kind.NumIn())
	for i := range in {
		in[i] = kind.In(i)
	}
	failure := reflect.TypeFor[error]()
	return reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{kind.Out(0), failure}, kind.IsVariadic()), func(args []reflect.Value) []reflect.Value {
		fail := func(err error) []reflect.Value {
			return []reflect.Value{reflect.Zero(kind.Out(0)), reflect.ValueOf(&err).Elem()}
		}
		if err := g.chargeArguments(name, args); err != nil {
			return fail(err)
		}
		call := function.Call
		if kind.IsVariadic() {
			call = function.CallSlice
		}
		out := call(args)
		if len(out) > 1 && !out[1].IsNil() {
			err, _ := reflect.TypeAssert[error](out[1])
			return fail(err)
		}
		if err := g.chargeResult(out[0]); err != nil {
			return fail(err)
		}
		return []reflect.Value{out[0], reflect.Zero(failure)}
	}).Interface()
}

// chargeResult charges the result of a function: it may be larger than the arguments, and a modified map may contain itself.
func (g *guard) chargeResult(v reflect.Value) error {
	if v.Kind() == reflect.String && v.Len() > maxText {
		return errTooLong
	}
	_, _, err := g.SpendTree(v.Interface())
	return err
}

// chargeArguments charges the arguments of a call and the cost of the call.
func (g *guard) chargeArguments(name string, args []reflect.Value) error {
	total, depth := 0, 0
	for _, arg := range args {
		cost, d, err := g.SpendTree(arg.Interface())
		if err != nil {
			return err
		}
		total, depth = total+cost, max(depth, d)
	}
	surplus, err := surplusOf(name, callArguments(args), total, depth)
	if err != nil {
		return err
	}
	return g.Spend(surplus)
}

// callArguments are the arguments of a call; the last one of a variadic function is a slice.
type callArguments []reflect.Value

func (v callArguments) text(i int) string {
	if i < len(v) && v[i].Kind() == reflect.String {
		return v[i].String()
	}
	return ""
}

func (v callArguments) number(i int) int {
	if i < len(v) && v[i].CanInt() {
		return int(v[i].Int())
	}
	return 0
}

// elements returns the length of a list, or one for any other value.
func (v callArguments) elements(i int) int {
	if i >= len(v) {
		return 0
	}
	list := v[i]
	for list.Kind() == reflect.Interface {
		list = list.Elem()
	}
	if list.Kind() == reflect.Slice || list.Kind() == reflect.Array {
		return list.Len()
	}
	return 1
}

// wideFormat matches widths and precisions of a verb that are computed or have four or more digits. It also matches arguments
// that are selected by index, because one argument could be printed any number of times.
var wideFormat = regexp.MustCompile(`%[^a-zA-Z%]*(\*|\[|[0-9]{4})`)

// surplusOf returns the cost of a function in addition to its arguments, whose total cost and depth are given, or an error
// if it must not be called with them. All factors are bounded, so that nothing overflows.
func surplusOf(name string, args callArguments, total, depth int) (int, error) {
	name = strings.TrimPrefix(name, "must")
	switch name = strings.ToLower(name[:min(1, len(name))]) + name[min(1, len(name)):]; name {
	case "until", "untilStep":
		return boundedCost(args.number(0), args.number(1)-args.number(0), args.number(1))
	case "randAlpha", "randAlphaNum", "randAscii", "randNumeric", "randBytes":
		return boundedCost(args.number(0))
	case "repeat":
		n, s := args.number(0), len(args.text(1))
		if n < 0 || n > maxText || n*s > maxText {
			return 0, errTooLong
		}
		return n * s, nil
	case "indent", "nindent":
		cost, err := boundedCost(args.number(0))
		if args.number(0) < 0 {
			err = errTooLong
		}
		return cost / budget.StepCost * (1 + strings.Count(args.text(1), "\n")), err
	case "replace":
		return total + len(args.text(1))*(1+strings.Count(args.text(2), args.text(0))), nil
	case "join":
		return total + len(args.text(0))*args.elements(1), nil
	case "wrapWith":
		return total + len(args.text(1))*len(args.text(2)), nil
	case "printf":
		if wideFormat.MatchString(args.text(0)) {
			return 0, errWidth
		}
		return 6 * total, nil
	case "regexMatch", "regexFind", "regexFindAll", "regexSplit", "regexReplaceAll", "regexReplaceAllLiteral":
		size, err := budget.PatternSize(args.text(0))
		matches := 1 + len(args.text(1))
		return budget.StepCost*(len(args.text(0))+size+matches) + budget.SearchCost(size, matches) + matches*len(args.text(2)), err
	case "toPrettyJson":
		return total * (6 + depth), nil
	case "fromJson":
		return total * 32, nil
	case "uniq", "without", "has":
		return total * (1 + (args.elements(0)+args.elements(1))/8), nil
	case "sortAlpha":
		return total * bits.Len(uint(total)), nil
	case "date", "dateInZone", "date_in_zone", "htmlDate", "htmlDateInZone", "toDate":
		return zoneCost + 8*total, nil
	default: // the result is proportional to the arguments
		return 6 * total, nil
	}
}

// boundedCost returns the cost of a function whose result is proportional to these numbers, or an error if one is too large.
func boundedCost(numbers ...int) (int, error) {
	for _, n := range numbers {
		if n > maxList || n < -maxList {
			return 0, errTooLong
		}
	}
	return maxList * budget.StepCost, nil
}

// deepCopy returns a copy of decoded JSON. Templates can modify maps, and several are executed concurrently.
func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, each := range v {
			out[key] = deepCopy(each)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, each := range v {
			out[i] = deepCopy(each)
		}
		return out
	default:
		return v
	}
}
