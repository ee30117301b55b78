package cluster

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// relations finds the releases that an object affects without a search through all releases.
type relations struct {
	releases map[relatedObject]map[explain.Key]bool
	objects  map[explain.Key][]relatedObject
}

// relatedObject is one object, all objects of an owner, or without a name all objects of a kind in a namespace. The kind has no API
// group: a release that another kind of the same name affects is observed needlessly, and nothing else.
type relatedObject struct {
	kind, namespace, name string
	owner                 types.UID
}

func newRelations() relations {
	return relations{releases: map[relatedObject]map[explain.Key]bool{}, objects: map[explain.Key][]relatedObject{}}
}

// set replaces the objects that affect a release; none: the release was deleted.
func (r relations) set(key explain.Key, objects []relatedObject) {
	for _, object := range r.objects[key] {
		delete(r.releases[object], key)
		if len(r.releases[object]) == 0 {
			delete(r.releases, object)
		}
	}
	delete(r.objects, key)
	for _, object := range objects {
		if r.releases[object] == nil {
			r.releases[object] = map[explain.Key]bool{}
		}
		r.releases[object][key] = true
	}
	if len(objects) > 0 {
		r.objects[key] = objects
	}
}
