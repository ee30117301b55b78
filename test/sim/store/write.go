package store

import (
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The finalizers of the garbage collector.
const (
	foreground = "foregroundDeletion"
	orphan     = "orphan"
)

// statusOf is the field that is a subresource.
const statusOf = "status"

// create stores a new object. The server owns the content afterwards.
func (s *Server) create(w writer, k *kind, namespace string, content map[string]any) (*Version, error) {
	metadata, err := fillMeta(content)
	if err != nil {
		return nil, decodeError(w, k, err)
	}
	if k.namespaced && namespace == "" {
		return nil, apierrors.NewMethodNotSupported(k.resource(), w.verb)
	}
	if given := text(metadata, "namespace"); k.namespaced && given != "" && given != namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if k.namespaced {
		metadata["namespace"] = namespace
	} else {
		delete(metadata, "namespace")
	}
	if text(metadata, "name") == "" && text(metadata, "generateName") != "" {
		metadata["name"] = s.generate(text(metadata, "generateName"))
	}
	version := text(metadata, "resourceVersion")
	for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"} {
		delete(metadata, field)
	}
	metadata["creationTimestamp"] = stamp(s.options.Now())
	if k.generations != nil {
		metadata["generation"] = int64(1)
	}
	if k.status {
		delete(content, statusOf)
	}
	content["apiVersion"], content["kind"] = k.apiVersion(k.versions[0]), k.Kind
	if err := s.complete(k, content, nil); err != nil {
		return nil, decodeError(w, k, err)
	}
	metadata["uid"] = s.uid()
	if faults := k.faults(content, nil); len(faults) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind, text(metadata, "name"), faults)
	}
	key := types.NamespacedName{Namespace: text(metadata, "namespace"), Name: text(metadata, "name")}
	if version != "" && version != "0" {
		return nil, internal(errVersionOnCreate)
	}
	if s.Peek(k.GroupKind, key) != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), key.Name)
	}
	return s.commit(w, k, key, content, nil, Added), nil
}

// maxBase is the maximum length of the given part of a generated name.
const maxBase = 58

func (s *Server) generate(base string) string {
	s.nameCount++
	return base[:min(len(base), maxBase)] + suffix(s.nameCount*7919)
}

// complete converts the fields of an object, except for its metadata, to their form and sets defaults. A value that is
// identical to the old one is not changed; a value that is equal afterwards is replaced by the old one.
func (s *Server) complete(k *kind, content, old map[string]any) error {
	if old != nil {
		for name, value := range content {
			content[name] = graft(value, old[name])
		}
		if equalExcept(content, old, "metadata") {
			return nil
		}
	}
	if err := k.fill(content, old); err != nil {
		return err
	}
	if k.rules.prepare != nil {
		k.rules.prepare(s, content, old)
	}
	if old != nil {
		for name, value := range content {
			content[name] = graft(value, old[name])
		}
	}
	return nil
}

// fill converts the changed fields of an object to their form, and sets defaults. The others have both.
func (k *kind) fill(content, old map[string]any) error {
	changed := map[string]any{}
	for name, value := range content {
		if name == "metadata" || name == "apiVersion" || name == "kind" || old != nil && identical(value, old[name]) {
			continue
		}
		changed[name] = value
		delete(content, name)
	}
	converted := changed
	if k.custom != nil {
		k.custom.complete(converted)
	} else {
		var err error
		if converted, err = convert(k.goType, changed); err != nil {
			return err
		}
	}
	for name, value := range converted {
		if _, unchanged := content[name]; !unchanged && name != "metadata" {
			content[name] = value
		}
	}
	if k.rules.initial != nil && (old == nil || !identical(content["spec"], old["spec"]) || content["spec"] == nil) {
		k.rules.initial(content)
	}
	return nil
}

// decodes returns an error if the fields of a rejected object do not fit their types.
func (k *kind) decodes(content, old map[string]any) error {
	if k.custom != nil {
		return nil
	}
	for name, value := range content {
		content[name] = graft(value, old[name])
	}
	return k.fill(content, old)
}

// faults returns the validation errors of a complete object.
func (k *kind) faults(content, old map[string]any) field.ErrorList {
	faults := k.checkMeta(object(content, "metadata"), object(old, "metadata"))
	switch {
	case k.custom != nil:
		faults = append(faults, k.custom.validate(content, old)...)
	case k.rules.faults != nil:
		faults = append(faults, k.rules.faults(content, old)...)
	}
	return faults
}

// change computes the new content from the old version. The server owns the result, which may share parts with the old version.
type change func(old *Version) (map[string]any, error)

// update replaces an object, or its subresource.
func (s *Server) update(w writer, k *kind, key types.NamespacedName, make change) (*Version, error) {
	old := s.Peek(k.GroupKind, key)
	if old == nil {
		return nil, apierrors.NewNotFound(k.resource(), key.Name)
	}
	content, err := make(old)
	if err != nil {
		return nil, err
	}
	if err := s.identity(w, k, key, content, old); err != nil {
		if why := k.decodes(content, old.content); why != nil {
			return nil, decodeError(w, k, why) // this error takes precedence
		}
		return nil, err
	}
	content["apiVersion"], content["kind"] = old.content["apiVersion"], k.Kind
	content = k.restrictWrite(w, content, old)
	if err := s.complete(k, content, old.content); err != nil {
		return nil, decodeError(w, k, err)
	}
	metadata := object(content, "metadata")
	if generation := k.nextGeneration(w, content, old.content, old.Generation()); generation != old.Generation() {
		metadata = withField(metadata, "generation", generation)
		content["metadata"] = metadata
	}
	if faults := k.faults(content, old.content); len(faults) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind, key.Name, faults)
	}
	if old.Deleting() && len(finalizers(content)) == 0 && integer(metadata, "deletionGracePeriodSeconds", 0) == 0 {
		return s.commit(w, k, key, content, old, Deleted), nil
	}
	if equalExcept(metadata, old.metadata(), "resourceVersion") && equalExcept(content, old.content, "metadata") {
		return old, nil
	}
	return s.commit(w, k, key, content, old, Modified), nil
}

// identity compares the metadata of a written object with the stored one, and restores the fields that cannot be written.
func (s *Server) identity(w writer, k *kind, key types.NamespacedName, content map[string]any, old *Version) error {
	metadata, err := fillMetaOf(content, old)
	if err != nil {
		return decodeError(w, k, err)
	}
	if name := text(metadata, "name"); name != key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, key.Name))
	}
	if namespace := text(metadata, "namespace"); namespace != key.Namespace {
		return apierrors.NewBadRequest("the namespace of the object (" + namespace + ") does not match the namespace on the request (" + key.Namespace + ")")
	}
	if uid := text(metadata, "uid"); uid != "" && uid != string(old.UID()) && w.verb == Update {
		return otherUID(k, key, uid, string(old.UID()))
	}
	version, err := parseVersion(text(metadata, "resourceVersion"))
	if err != nil {
		return err
	}
	if version == 0 && !k.unconditional {
		return apierrors.NewInvalid(schema.GroupKind{Group: k.Group, Kind: k.plural}, key.Name,
			field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update")})
	}
	if version != 0 && version != old.revision {
		return apierrors.NewConflict(k.resource(), key.Name, errModified)
	}
	before := old.metadata()
	delete(metadata, "generation")
	for _, field := range []string{"creationTimestamp", "deletionTimestamp", "generation", "deletionGracePeriodSeconds"} {
		if value, found := before[field]; found {
			metadata[field] = value
		}
	}
	if metadata["uid"] == nil {
		metadata["uid"] = before["uid"]
	}
	metadata["resourceVersion"] = before["resourceVersion"]
	content["metadata"] = graft(metadata, before)
	return nil
}

// otherUID returns the error for a write with the UID of another object.
func otherUID(k *kind, key types.NamespacedName, uid, stored string) error {
	return apierrors.NewConflict(k.resource(), key.Name, errors.New("Precondition failed: UID in precondition: "+uid+", UID in object meta: "+stored))
}

// fillMetaOf converts metadata that may be shared with the old version.
func fillMetaOf(content map[string]any, old *Version) (map[string]any, error) {
	if identical(content["metadata"], old.content["metadata"]) {
		return withField(old.metadata(), "", nil), nil
	}
	if value, ok := content["metadata"].(map[string]any); ok {
		content["metadata"] = cloneMap(value)
	}
	return fillMeta(content)
}

// withField returns a copy with one field changed; without a name, no field is changed.
func withField(m map[string]any, name string, value any) map[string]any {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]any{}
	}
	if name != "" {
		out[name] = value
	}
	return out
}

// restrictWrite restricts a write: to the status for its subresource, and to everything else for the object.
func (k *kind) restrictWrite(w writer, content map[string]any, old *Version) map[string]any {
	status, found := content[statusOf]
	if w.subresource != statusOf {
		if !k.status {
			return content
		}
		delete(content, statusOf)
		if value, had := old.content[statusOf]; had {
			content[statusOf] = value
		}
		return content
	}
	if k.custom == nil { // the old object, except for the status and most of the metadata
		content["spec"] = old.content["spec"]
		if k.rules.inherit != nil {
			content["metadata"] = withField(object(content, "metadata"), "", nil)
			k.rules.inherit(content, old.content)
		}
		return content
	}
	out := withField(old.content, "", nil)
	delete(out, statusOf)
	if found {
		out[statusOf] = status
	}
	return out
}

// deletion contains the options of a deletion.
type deletion struct {
	uid, version *string
	policy       metav1.DeletionPropagation
	grace        *int64
}

// delete removes an object, or marks it as deleted if finalizers or the grace period of a pod delay the removal. gone reports
// whether it was removed.
func (s *Server) delete(w writer, k *kind, key types.NamespacedName, d deletion) (v *Version, gone bool, err error) {
	old := s.Peek(k.GroupKind, key)
	if old == nil {
		return nil, false, apierrors.NewNotFound(k.resource(), key.Name)
	}
	if d.uid != nil && *d.uid != string(old.UID()) {
		return nil, false, apierrors.NewConflict(schema.GroupResource{Group: k.Group, Resource: k.Kind}, key.Name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *d.uid, old.UID(),
		))
	}
	if d.version != nil && *d.version != revisionText(old.revision) {
		return nil, false, apierrors.NewConflict(schema.GroupResource{Group: k.Group, Resource: k.Kind}, key.Name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%d). The object might have been modified", *d.version, old.revision,
		))
	}
	content, metadata := withField(old.content, "", nil), withField(old.metadata(), "", nil)
	content["metadata"] = metadata
	held := withPolicy(finalizers(old.content), d.policy)
	grace := s.grace(k, old, d)
	if len(held) == 0 && grace == 0 {
		return s.commit(w, k, key, content, old, Deleted), true, nil
	}
	if len(held) > 0 {
		metadata["finalizers"] = held
	} else {
		delete(metadata, "finalizers")
	}
	metadata["finalizers"] = graft(metadata["finalizers"], old.metadata()["finalizers"])
	if metadata["finalizers"] == nil {
		delete(metadata, "finalizers")
	}
	if !old.Deleting() {
		metadata["deletionTimestamp"] = stamp(s.options.Now().Add(time.Duration(grace) * time.Second))
		if generation := old.Generation(); generation > 0 {
			metadata["generation"] = generation + 1
		}
		metadata["deletionGracePeriodSeconds"] = grace
	} else if grace < integer(metadata, "deletionGracePeriodSeconds", 0) {
		metadata["deletionGracePeriodSeconds"] = grace
	}
	if equalExcept(metadata, old.metadata(), "resourceVersion") {
		return old, false, nil
	}
	return s.commit(w, k, key, content, old, Modified), false, nil
}

// withPolicy returns the finalizers of an object for a propagation policy.
func withPolicy(held []any, policy metav1.DeletionPropagation) []any {
	if policy == "" {
		return held
	}
	out := make([]any, 0, len(held)+1)
	for _, name := range held {
		if name != foreground && name != orphan {
			out = append(out, name)
		}
	}
	switch policy { //nolint:exhaustive // the others hold nothing
	case metav1.DeletePropagationForeground:
		out = append(out, foreground)
	case metav1.DeletePropagationOrphan:
		out = append(out, orphan)
	}
	return out
}

// grace returns the grace period of a deleted pod, in seconds. Only pods that have a node have one.
func (s *Server) grace(k *kind, old *Version, d deletion) int64 {
	if k.Group != "" || k.Kind != "Pod" {
		return 0
	}
	spec := object(old.content, "spec")
	phase := text(object(old.content, "status"), "phase")
	if text(spec, "nodeName") == "" || phase == "Failed" || phase == "Succeeded" {
		return 0
	}
	if d.grace != nil {
		return max(*d.grace, 0)
	}
	if old.Deleting() {
		return integer(old.metadata(), "deletionGracePeriodSeconds", 0)
	}
	return integer(spec, "terminationGracePeriodSeconds", 30)
}

var errVersionOnCreate = errors.New("resourceVersion should not be set on objects to be created")

// internal returns an error for which the server has no status.
func internal(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: err.Error()}}
}

// decodeError returns the error for an object that cannot be decoded, or could not after a patch.
func decodeError(w writer, k *kind, err error) error {
	if w.verb == Patch {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), k.Kind, err.Error())})
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", k.Kind, k.versions[0], k.Kind, err))
}

// replace updates a whole object, which is decoded before its existence is checked.
func (s *Server) replace(w writer, k *kind, key types.NamespacedName, content map[string]any) (*Version, error) {
	if s.Peek(k.GroupKind, key) == nil {
		return s.replaceNothing(w, k, key, content)
	}
	return s.update(w, k, key, func(*Version) (map[string]any, error) { return content, nil })
}

func (s *Server) replaceNothing(w writer, k *kind, key types.NamespacedName, content map[string]any) (*Version, error) {
	metadata, err := fillMeta(content)
	if err != nil {
		return nil, decodeError(w, k, err)
	}
	if err := k.decodes(content, nil); err != nil {
		return nil, decodeError(w, k, err)
	}
	if uid := text(metadata, "uid"); k.createdByUpdate && uid != "" {
		return nil, otherUID(k, key, uid, "")
	}
	if k.createdByUpdate {
		delete(metadata, "resourceVersion")
		return s.create(w, k, key.Namespace, content)
	}
	return nil, apierrors.NewNotFound(k.resource(), key.Name)
}
