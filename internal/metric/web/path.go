package web

import (
	"errors"
	"fmt"

	"k8s.io/client-go/util/jsonpath"

	"github.com/serin-dev/serin/internal/outbound"
)

// The limits of a path. Users' paths are evaluated in the controller, over responses of up to a million values.
const (
	maxPath         = 1 << 10 // bytes
	maxRecursions   = 1       // parts that visit every value below, such as ..
	maxUnionMembers = 8       // members of all unions in total
)

var errExpensivePath = errors.New("the JSONPath visits too much of the response: use no range, at most one .. and few unions")

// parsePath parses a path. It refuses paths whose evaluation is not bounded by the size of the document.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	if len(text) > maxPath {
		return nil, errExpensivePath
	}
	parsed, err := jsonpath.Parse("path", text)
	if err != nil {
		return nil, fmt.Errorf("the JSONPath cannot be read: %s", outbound.Excerpt([]byte(err.Error())))
	}
	count := &cost{}
	count.add(parsed.Root)
	if count.hasRange || count.recursions > maxRecursions || count.members > maxUnionMembers {
		return nil, errExpensivePath
	}
	path := jsonpath.New("path").AllowMissingKeys(false)
	if err := path.Parse(text); err != nil {
		return nil, fmt.Errorf("the JSONPath cannot be read: %s", outbound.Excerpt([]byte(err.Error())))
	}
	return path, nil
}

// cost counts the parts of a path that may visit values more than once.
type cost struct {
	hasRange            bool
	recursions, members int
}

func (c *cost) add(node jsonpath.Node) {
	switch node := node.(type) {
	case *jsonpath.ListNode:
		for _, child := range node.Nodes {
			c.add(child)
		}
	case *jsonpath.FilterNode:
		c.add(node.Left)
		c.add(node.Right)
	case *jsonpath.UnionNode:
		c.members += len(node.Nodes)
		for _, child := range node.Nodes {
			c.add(child)
		}
	case *jsonpath.RecursiveNode:
		c.recursions++
	case *jsonpath.IdentifierNode:
		c.hasRange = true // range or end
	default: // fields, indices, constants and wildcards visit each value once
	}
}
