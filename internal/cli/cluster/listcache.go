package cluster

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listCache contains the lists of one observation.
type listCache struct {
	mu    sync.Mutex
	lists map[listedKind]*cachedList
	reads map[listedKind]int

	primaryCluster struct {
		once  sync.Once
		found bool
		err   error
	}
}

// listedKind is a kind in one representation and namespace; without a namespace: in all.
type listedKind struct {
	gvk            schema.GroupVersionKind
	representation reflect.Type
	namespace      string
}

func newListCache() *listCache {
	return &listCache{lists: map[listedKind]*cachedList{}, reads: map[listedKind]int{}}
}

// entry returns a list, which the first caller reads.
func (c *listCache) entry(kind listedKind) *cachedList {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists[kind] == nil {
		c.lists[kind] = &cachedList{fields: map[string]map[string][]client.Object{}}
	}
	return c.lists[kind]
}

// countRead counts a read of objects of a kind, and returns the number of reads.
func (c *listCache) countRead(kind listedKind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads[kind]++
	return c.reads[kind]
}

// hasPrimaryCluster returns the result of read, which it calls once.
func (c *listCache) hasPrimaryCluster(read func() (bool, error)) (bool, error) {
	c.primaryCluster.once.Do(func() { c.primaryCluster.found, c.primaryCluster.err = read() })
	return c.primaryCluster.found, c.primaryCluster.err
}

// cachedList contains all objects of a kind, once they were read. Its indexes limit the work of a query to the objects that it selects:
// a query of each release in a list of all objects would be quadratic.
type cachedList struct {
	once   sync.Once
	err    error
	byName map[types.NamespacedName]client.Object
	// byLabel contains the objects of a namespace, or of all, with a label; those of labelIndex{namespace: …} are all of them.
	byLabel map[labelIndex][]client.Object

	mu     sync.Mutex
	fields map[string]map[string][]client.Object // by the indexed field and its value
}

// labelIndex is a namespace and a label in it.
type labelIndex struct{ namespace, key, value string }

// fill stores the objects, in the order of the API server.
func (l *cachedList) fill(objects []client.Object) {
	slices.SortStableFunc(objects, func(a, b client.Object) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	l.byName, l.byLabel = map[types.NamespacedName]client.Object{}, map[labelIndex][]client.Object{}
	for _, o := range objects {
		l.byName[client.ObjectKeyFromObject(o)] = o
		for _, namespace := range []string{"", o.GetNamespace()} {
			l.byLabel[labelIndex{namespace: namespace}] = append(l.byLabel[labelIndex{namespace: namespace}], o)
			for key, value := range o.GetLabels() {
				at := labelIndex{namespace, key, value}
				l.byLabel[at] = append(l.byLabel[at], o)
			}
		}
	}
}

// find returns the objects of a namespace, or of all, with labels and with a value of an indexed field; without a field, any.
func (l *cachedList) find(namespace string, selector labels.Selector, field, value string, extract client.IndexerFunc) []client.Object {
	candidates := l.withLabels(namespace, selector)
	if field != "" {
		candidates = l.byField(field, extract)[value]
	}
	var out []client.Object
	for _, o := range candidates {
		if (namespace == "" || o.GetNamespace() == namespace) && (selector == nil || selector.Matches(labels.Set(o.GetLabels()))) {
			out = append(out, o)
		}
	}
	return out
}

// withLabels returns objects of a namespace, among them all that a selector matches: those with the rarest of its labels.
func (l *cachedList) withLabels(namespace string, selector labels.Selector) []client.Object {
	out := l.byLabel[labelIndex{namespace: namespace}]
	if selector == nil {
		return out
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		values := r.Values()
		if (r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In) && values.Len() == 1 {
			if found := l.byLabel[labelIndex{namespace, r.Key(), values.UnsortedList()[0]}]; len(found) < len(out) {
				out = found
			}
		}
	}
	return out
}

// byField returns the objects by the values of an indexed field.
func (l *cachedList) byField(field string, extract client.IndexerFunc) map[string][]client.Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fields[field] == nil {
		index := map[string][]client.Object{}
		for _, o := range l.byLabel[labelIndex{}] {
			for _, value := range extract(o) {
				if same := index[value]; len(same) == 0 || same[len(same)-1] != o { // a value may be repeated
					index[value] = append(index[value], o)
				}
			}
		}
		l.fields[field] = index
	}
	return l.fields[field]
}
