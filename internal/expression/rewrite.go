package expression

import (
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"

	"github.com/serin-dev/serin/internal/budget"
)

// The functions that a rewritten program calls. No user can write these names.
const (
	chargeValue   = "charge value"   // returns its argument
	chargeText    = "charge text"    // the same; of lists and maps only the reference is charged
	chargeNumber  = "charge number"  // the same; refuses texts
	chargeNumbers = "charge numbers" // the same; refuses lists with texts
	chargePattern = "charge pattern" // returns its second argument, a text that is searched; the first is the pattern's size
	matchDynamic  = "match"          // searches a text with a pattern that the program computes
	guardedPrefix = "guarded "       // prefix of a function of the language that charges its arguments
)

// sizeDependentOperators are the operators whose cost depends on the size of both operands.
var sizeDependentOperators = map[string]bool{
	"==": true, "!=": true, "<": true, "<=": true, ">": true, ">=": true, "+": true,
	"in": true, "contains": true, "startsWith": true, "endsWith": true,
}

// rewriter inserts the charges into a program, see the package comment. It visits each node after its children.
type rewriter struct{ err error }

// Visit implements ast.Visitor.
func (r *rewriter) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.BinaryNode:
		r.rewriteBinary(node, n)
	case *ast.PredicateNode: // also if it is a constant: each iteration has a cost
		ast.Patch(&n.Node, newCall(chargeValue, n.Node))
	case *ast.ArrayNode:
		for i := range n.Nodes {
			chargeNode(chargeValue, &n.Nodes[i])
		}
	case *ast.PairNode:
		chargeNode(chargeValue, &n.Key)
		chargeNode(chargeValue, &n.Value)
	case *ast.CallNode:
		for i := range n.Arguments {
			chargeNode(chargeText, &n.Arguments[i])
		}
	case *ast.BuiltinNode:
		rewriteBuiltin(node, n)
	}
}

func (r *rewriter) rewriteBinary(node *ast.Node, n *ast.BinaryNode) {
	if sizeDependentOperators[n.Operator] {
		chargeNode(chargeValue, &n.Left)
		chargeNode(chargeValue, &n.Right)
		return
	}
	if n.Operator != "matches" {
		return
	}
	constant, ok := n.Right.(*ast.StringNode)
	if !ok {
		ast.Patch(node, newCall(matchDynamic, n.Left, n.Right))
		return
	}
	size, err := budget.PatternSize(constant.Value)
	if err != nil && r.err == nil {
		r.err = err
	}
	ast.Patch(&n.Left, newCall(chargePattern, &ast.IntegerNode{Value: size}, n.Left))
}

// rewriteBuiltin rewrites the call of a function of the language. Functions with a predicate are loops of the program, which
// charge each iteration.
func rewriteBuiltin(node *ast.Node, n *ast.BuiltinNode) {
	index, ok := builtin.Index[n.Name]
	switch {
	case !ok:
	case !builtin.Builtins[index].Predicate:
		ast.Patch(node, newCall(guardedPrefix+n.Name, n.Arguments...))
	case n.Name == "sum" && len(n.Arguments) > 1:
		if predicate, ok := n.Arguments[1].(*ast.PredicateNode); ok {
			chargeNode(chargeNumber, &predicate.Node)
		}
	case n.Name == "sum":
		chargeNode(chargeNumbers, &n.Arguments[0])
	case len(n.Arguments) == 1:
		chargeNode(chargeValue, &n.Arguments[0])
	}
}

// chargeNode wraps a node whose value is not a small constant.
func chargeNode(function string, node *ast.Node) {
	switch (*node).(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
	default:
		ast.Patch(node, newCall(function, *node))
	}
}

func newCall(function string, arguments ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: function}, Arguments: arguments}
}
