package store

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Collect executes the next steps of the garbage collector as one actor, up to a number of writes, and returns their number,
// which is zero if there is no garbage. It observes the current state, and processes objects in the order of kinds, namespaces
// and names.
//
// Dependents are deleted with the last of their owners. An owner with foreground deletion waits for the dependents that block
// it; an owner with orphan deletion orphans them first.
func (s *Server) Collect(actor string, most int) (done int, err error) {
	for done < most {
		worked, err := s.collectNext(actor)
		if err != nil || !worked {
			return done, err
		}
		done++
	}
	return done, nil
}

// owners returns the existing objects by UID.
func (s *Server) owners() map[types.UID]*Version {
	alive := map[types.UID]*Version{}
	for _, c := range s.objects {
		for _, v := range c.objects {
			alive[v.UID()] = v
		}
	}
	return alive
}

// collectNext executes one step.
func (s *Server) collectNext(actor string) (worked bool, err error) {
	alive := s.owners()
	for _, kind := range s.Kinds() {
		for _, v := range s.All(kind) {
			if worked, err = s.collectOne(actor, v, alive); worked || err != nil {
				return worked, err
			}
		}
	}
	return false, nil
}

func (s *Server) collectOne(actor string, v *Version, alive map[types.UID]*Version) (bool, error) {
	if v.Deleting() {
		switch {
		case hasFinalizer(v, orphan):
			return s.orphan(actor, v)
		case hasFinalizer(v, foreground):
			return s.removeForegroundFinalizer(actor, v)
		}
		return false, nil
	}
	var solid, dangling, waiting []metav1.OwnerReference
	for _, reference := range v.Meta().OwnerReferences {
		owner := alive[reference.UID]
		switch {
		case owner == nil:
			dangling = append(dangling, reference)
		case owner.Deleting() && hasFinalizer(owner, foreground):
			waiting = append(waiting, reference)
		default:
			solid = append(solid, reference)
		}
	}
	switch {
	case len(solid) > 0 && len(dangling)+len(waiting) > 0:
		return true, s.keepOwners(actor, v, solid)
	case len(solid) > 0 || len(dangling)+len(waiting) == 0:
		return false, nil
	case len(waiting) > 0 && len(s.dependents(v.UID())) > 0:
		return true, s.remove(actor, v, metav1.DeletePropagationForeground)
	default:
		return true, s.remove(actor, v, metav1.DeletePropagationBackground)
	}
}

func hasFinalizer(v *Version, finalizer string) bool {
	for _, name := range finalizers(v.content) {
		if name == finalizer {
			return true
		}
	}
	return false
}

// dependents returns the objects that name an owner.
func (s *Server) dependents(of types.UID) []*Version {
	var out []*Version
	for _, kind := range s.Kinds() {
		for _, v := range s.All(kind) {
			for _, reference := range v.Meta().OwnerReferences {
				if reference.UID == of {
					out = append(out, v)
				}
			}
		}
	}
	return out
}

// orphan removes the owner from its dependents, one at a time, and then its finalizer.
func (s *Server) orphan(actor string, owner *Version) (bool, error) {
	dependents := s.dependents(owner.UID())
	if len(dependents) == 0 {
		return true, s.removeFinalizer(actor, owner, orphan)
	}
	var others []metav1.OwnerReference
	for _, reference := range dependents[0].Meta().OwnerReferences {
		if reference.UID != owner.UID() {
			others = append(others, reference)
		}
	}
	return true, s.keepOwners(actor, dependents[0], others)
}

// removeForegroundFinalizer removes the finalizer of an owner whose blocking dependents are gone.
func (s *Server) removeForegroundFinalizer(actor string, owner *Version) (bool, error) {
	for _, v := range s.dependents(owner.UID()) {
		for _, reference := range v.Meta().OwnerReferences {
			if reference.UID == owner.UID() && reference.BlockOwnerDeletion != nil && *reference.BlockOwnerDeletion {
				return false, nil
			}
		}
	}
	return true, s.removeFinalizer(actor, owner, foreground)
}

// removeFinalizer removes a finalizer.
func (s *Server) removeFinalizer(actor string, v *Version, finalizer string) error {
	return s.editMetadata(actor, v, func(metadata map[string]any) {
		var left []any
		for _, name := range finalizers(v.content) {
			if name != finalizer {
				left = append(left, name)
			}
		}
		metadata["finalizers"] = left
	})
}

func (s *Server) keepOwners(actor string, v *Version, owners []metav1.OwnerReference) error {
	return s.editMetadata(actor, v, func(metadata map[string]any) {
		var left []any
		for _, reference := range items(v.metadata(), "ownerReferences") {
			for _, keep := range owners {
				if text(reference, "uid") == string(keep.UID) {
					left = append(left, reference)
				}
			}
		}
		metadata["ownerReferences"] = left
	})
}

// editMetadata writes metadata, based on the version that was read.
func (s *Server) editMetadata(actor string, v *Version, change func(metadata map[string]any)) error {
	call := s.collecting(actor, Patch, v)
	w := writer{actor: actor, verb: Patch, basis: Basis{ResourceVersion: revisionText(v.revision), UID: string(v.UID())}}
	return ignoreGone(callWithHook(s.options.Hook, call, func() error {
		_, err := s.update(w, v.kind, v.key, func(*Version) (map[string]any, error) {
			content, metadata := withField(v.content, "", nil), withField(v.metadata(), "", nil)
			change(metadata)
			content["metadata"] = metadata
			return content, nil
		})
		return err
	}))
}

func (s *Server) remove(actor string, v *Version, policy metav1.DeletionPropagation) error {
	call := s.collecting(actor, Delete, v)
	uid, version := string(v.UID()), revisionText(v.revision)
	w := writer{actor: actor, verb: Delete, basis: Basis{ResourceVersion: version, UID: uid}}
	return ignoreGone(callWithHook(s.options.Hook, call, func() error {
		_, _, err := s.delete(w, v.kind, v.key, deletion{uid: &uid, version: &version, policy: policy})
		return err
	}))
}

func (s *Server) collecting(actor, verb string, v *Version) Call {
	call := Call{Actor: actor, Verb: verb, Kind: v.Kind(), Key: v.key, resource: v.kind.resource()}
	s.count(call)
	return call
}

// ignoreGone ignores that another actor was faster: the next step observes the remaining work.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Owned returns the objects that name an owner, sorted by kind, namespace and name. It is not counted as a request.
func (s *Server) Owned(by types.UID) []*Version { return s.dependents(by) }
