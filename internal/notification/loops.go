package notification

import (
	"errors"
	text "text/template"
	"text/template/parse"
)

// maxLoops is how many loops of a template may stand in each other. Nothing can end a template that runs, so that what
// it takes has to be bounded before.
const maxLoops = 3

var (
	errLoops = errors.New("it has more than 3 loops in each other: nest fewer")
	errCalls = errors.New("it calls a template in a loop, or in another template: write its text there instead")
)

// endless says why a template might not end.
func endless(t *text.Template) error {
	for _, each := range t.Templates() {
		if each.Tree == nil {
			continue
		}
		if err := walk(each.Root, 0, each.Name() == t.Name()); err != nil {
			return err
		}
	}
	return nil
}

// walk looks at a part that stands in so many loops. main: it may call templates.
func walk(node parse.Node, loops int, main bool) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, each := range n.Nodes {
			if err := walk(each, loops, main); err != nil {
				return err
			}
		}
	case *parse.RangeNode:
		if loops == maxLoops {
			return errLoops
		}
		return errors.Join(walk(n.List, loops+1, false), walk(n.ElseList, loops, main))
	case *parse.IfNode:
		return errors.Join(walk(n.List, loops, main), walk(n.ElseList, loops, main))
	case *parse.WithNode:
		return errors.Join(walk(n.List, loops, main), walk(n.ElseList, loops, main))
	case *parse.TemplateNode:
		if !main {
			return errCalls
		}
	}
	return nil
}
