// Package expression evaluates expressions that users write: the conditions of AnalysisRuns, the ends of a range query,
// and the triggers of notifications.
//
// Users' expressions run inside the controller, which serves every namespace, so each evaluation has a budget of work
// and memory and ends when its context ends. The language itself offers less than that: its memory budget counts
// elements of lists but neither concatenated texts nor the results of most functions, and a running program cannot be
// interrupted. A program is therefore rewritten before it is compiled: the body of each loop, each operand of an
// operator whose cost depends on the size of its operands, each element of a list or map, and each call of a function
// charges the budget first. Values are charged with everything they contain, so that a value that refers to the same
// list many times costs what it would cost to print.
//
// Alternatives that were rejected: a process for each evaluation, with limits of the operating system, costs tens of
// milliseconds and as much memory as it protects, shares the memory limit of the container, and is not available in the
// command line tool on every platform. A list of permitted functions would refuse conditions that work in Argo
// Rollouts. Limits on the source alone cannot distinguish a harmless loop from an expensive one, since both depend on the
// value.
//
// The package must not know what an expression decides, AnalysisRuns, notifications, clients, or clocks other than the
// deadline of an evaluation.
package expression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/serin-dev/serin/internal/budget"
)

// The bounds of one expression.
const (
	maxSourceBytes = 16 << 10              // bytes of source
	maxNodes       = 1000                  // nodes of the source when it is parsed
	maxElements    = 250_000               // elements of ranges and of lists that loops return, in all
	maxTime        = 5 * time.Second       // for one evaluation; what the budget allows takes a fraction of a second
	baseCost       = 8 << 20               // cost of one evaluation, in the unit of package budget
	maxCost        = 24 << 20              // the same, where the variables are large
	inputFactor    = 2                     // how often an evaluation may consume all its variables beyond baseCost
	zoneCost       = 256 * budget.StepCost // looking up a time zone, which reads a file
)

// The errors of expressions that exceed their bounds.
var (
	ErrTooLong = fmt.Errorf("the expression is longer than %d KiB: shorten it", maxSourceBytes>>10)
	ErrTooSlow = fmt.Errorf("the expression took longer than %s: use fewer loops, and smaller lists and texts", maxTime)
)

// Function is a function that an expression may call in addition to those of the language.
type Function struct {
	Name string
	Call func(args ...any) (any, error)
	// Types are functions of the signatures that Call accepts.
	Types []any
}

// Options are the variables and functions of a program.
type Options struct {
	// Variables are the variables that exist, with values of their types; nil: any name is a variable.
	Variables map[string]any
	// Untyped are the names of the only variables, whose types are known when the program is run.
	Untyped []string
	// Functions replace those of the language that have the same name.
	Functions []Function
}

// Program is a compiled expression. It is not safe for concurrent use.
type Program struct {
	program   *vm.Program
	functions *chargingFunctions
}

// Compile compiles an expression. The errors quote the expression, but no values.
func Compile(source string, o Options) (*Program, error) {
	if len(source) > maxSourceBytes {
		return nil, ErrTooLong
	}
	b := &chargingFunctions{}
	config := newConfig(o, b)
	tree, err := parser.ParseWithConfig(source, config)
	if err != nil {
		return nil, firstLine(err)
	}
	r := &rewriter{}
	ast.Walk(&tree.Node, r)
	if r.err != nil {
		return nil, r.err
	}
	if _, err := checker.Check(tree, config); err != nil {
		return nil, firstLine(err)
	}
	program, err := compiler.Compile(tree, config)
	if err != nil {
		return nil, firstLine(err)
	}
	return &Program{program: program, functions: b}, nil
}

// Run evaluates the expression. It returns soon after ctx is done, and after a few seconds at the latest. Variables are
// not modified.
func (p *Program) Run(ctx context.Context, variables map[string]any) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, ErrTooSlow)
	defer cancel()
	b := budget.New(ctx, maxCost)
	input, _, err := b.MeasureTree(variables)
	if err != nil {
		return nil, err
	}
	b = budget.New(ctx, min(baseCost+inputFactor*input, maxCost))
	p.functions.Budget = b
	machine := vm.VM{MemoryBudget: maxElements}
	value, err := machine.Run(p.program, variables)
	if b.Err() != nil { // the language may have wrapped or swallowed it
		return nil, b.Err()
	}
	switch {
	case err != nil && strings.HasPrefix(err.Error(), elementBudgetErrorPrefix):
		return nil, budget.ErrExceeded
	case err != nil:
		return nil, firstLine(err)
	default:
		return value, nil
	}
}

// elementBudgetErrorPrefix begins the error of the language for more than maxElements.
const elementBudgetErrorPrefix = "memory budget exceeded"

// Evaluate compiles and runs an expression once.
func Evaluate(ctx context.Context, source string, o Options, variables map[string]any) (any, error) {
	program, err := Compile(source, o)
	if err != nil {
		return nil, err
	}
	return program.Run(ctx, variables)
}

// firstLine removes the drawing that the language adds to an error.
func firstLine(err error) error {
	line, _, cut := strings.Cut(err.Error(), "\n")
	if !cut {
		return err
	}
	return errors.New(line)
}

// newConfig gives the language its functions, those of the user and those that charge the budget.
func newConfig(o Options, b *chargingFunctions) *conf.Config {
	config := conf.CreateNew()
	config.MaxNodes = maxNodes
	if o.Variables != nil {
		config.WithEnv(o.Variables)
	}
	if o.Untyped != nil {
		variables := types.Map{}
		for _, name := range o.Untyped {
			variables[name] = types.Any
		}
		config.WithEnv(variables)
	}
	for _, f := range b.programFunctions() {
		config.Functions[f.key] = f.function
	}
	for _, f := range o.Functions {
		config.Disabled[f.Name] = true
		delete(config.Builtins, f.Name)
		config.Functions[f.Name] = &builtin.Function{Name: f.Name, Func: f.Call, Types: functionTypes(f.Types)}
	}
	return config
}
