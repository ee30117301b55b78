package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client returns a client that reads from the server and writes to it.
func (s *Server) Client(actor string) client.Client { return &serverClient{server: s, actor: actor} }

// serverClient is a client of the server.
type serverClient struct {
	server *Server
	actor  string
}

var _ client.Client = &serverClient{}

// Scheme implements client.Client.
func (c *serverClient) Scheme() *runtime.Scheme { return c.server.options.Scheme }

// RESTMapper implements client.Client.
func (c *serverClient) RESTMapper() meta.RESTMapper { return c.server.mapper }

// GroupVersionKindFor implements client.Client.
func (c *serverClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.Scheme())
}

// IsObjectNamespaced implements client.Client.
func (c *serverClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	_, k, err := c.kindOf(obj)
	if err != nil {
		return false, err
	}
	return k.namespaced, nil
}

func (c *serverClient) kindOf(obj runtime.Object) (schema.GroupVersionKind, *kind, error) {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return gvk, nil, err
	}
	if _, ok := obj.(client.ObjectList); ok {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	k, err := c.server.kind(gvk)
	return gvk, k, err
}

func (c *serverClient) call(verb string, k *kind, key types.NamespacedName, subresource string) Call {
	return Call{Actor: c.actor, Verb: verb, Kind: k.GroupKind, Key: key, Subresource: subresource, resource: k.resource()}
}

// execute executes one request.
func (c *serverClient) execute(call Call, f func() error) error {
	c.server.count(call)
	return callWithHook(c.server.options.Hook, call, f)
}

// write executes a request that returns an object. The caller receives it if the response arrives.
func (c *serverClient) write(call Call, gvk schema.GroupVersionKind, out client.Object, f func() (*Version, error)) error {
	var written *Version
	err := c.execute(call, func() (err error) {
		written, err = f()
		return err
	})
	if err != nil {
		return err
	}
	return reader{scheme: c.Scheme()}.into(written, gvk, out)
}

// Get implements client.Reader.
func (c *serverClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	key = k.keyOf(key)
	call := c.call(Get, k, key, "")
	var found *Version
	err = c.execute(call, func() error {
		if found = c.server.Peek(k.GroupKind, key); found == nil {
			return NotFound(call)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return reader{scheme: c.Scheme()}.into(found, gvk, obj)
}

func (k *kind) keyOf(key types.NamespacedName) types.NamespacedName {
	if !k.namespaced {
		key.Namespace = ""
	}
	return key
}

// List implements client.Reader.
func (c *serverClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, k, err := c.kindOf(list)
	if err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	call := c.call(List, k, types.NamespacedName{Namespace: options.Namespace}, "")
	var found []*Version
	err = c.execute(call, func() error {
		found, err = c.server.list(k, options)
		return err
	})
	if err != nil {
		return err
	}
	return reader{scheme: c.Scheme()}.intoList(found, c.server.revision, gvk, list)
}

func (s *Server) list(k *kind, options *client.ListOptions) ([]*Version, error) {
	if options.FieldSelector != nil {
		for _, requirement := range options.FieldSelector.Requirements() {
			if requirement.Field != "metadata.name" && requirement.Field != "metadata.namespace" {
				return nil, apierrors.NewBadRequest("field label not supported: " + requirement.Field)
			}
		}
	}
	var found []*Version
	for _, v := range s.All(k.GroupKind) {
		if selects(options, v) && matchesName(options.FieldSelector, v) {
			found = append(found, v)
		}
		if options.Limit > 0 && int64(len(found)) == options.Limit {
			break // continuing a limited list is not supported
		}
	}
	return found, nil
}

func selects(options *client.ListOptions, v *Version) bool {
	return (options.Namespace == "" || options.Namespace == v.key.Namespace) &&
		(options.LabelSelector == nil || options.LabelSelector.Matches(v.labels()))
}

func matchesName(selector fields.Selector, v *Version) bool {
	return selector == nil || selector.Matches(fields.Set{"metadata.name": v.key.Name, "metadata.namespace": v.key.Namespace})
}

// content returns an object of a caller as the server receives it.
func (c *serverClient) content(obj client.Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		return cloneMap(o.Object), nil
	case *metav1.PartialObjectMetadata:
		return nil, errors.New("metadata alone cannot be written: patch it")
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", obj, err)
	}
	integralFloats(content)
	content["apiVersion"], content["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return content, nil
}

func isDryRun(options []string) bool { return len(options) > 0 }

// basisOf returns the state on which an object is based, according to its metadata.
func basisOf(content map[string]any) Basis {
	metadata := object(content, "metadata")
	return Basis{ResourceVersion: text(metadata, "resourceVersion"), UID: text(metadata, "uid")}
}

// Create implements client.Writer.
func (c *serverClient) Create(_ context.Context, obj client.Object, opts ...client.CreateOption) error {
	gvk, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	content, err := c.content(obj, gvk)
	if err != nil {
		return err
	}
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	w := writer{actor: c.actor, verb: Create, dry: isDryRun(options.DryRun)}
	return c.write(c.call(Create, k, client.ObjectKeyFromObject(obj), ""), gvk, obj, func() (*Version, error) {
		return c.server.create(w, k, obj.GetNamespace(), content)
	})
}

// Update implements client.Writer.
func (c *serverClient) Update(_ context.Context, obj client.Object, opts ...client.UpdateOption) error {
	options := (&client.UpdateOptions{}).ApplyOptions(opts)
	return c.update(obj, obj, "", isDryRun(options.DryRun))
}

// update writes body to obj, or to a subresource of it.
func (c *serverClient) update(obj, body client.Object, subresource string, dry bool) error {
	gvk, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	if err := k.requireSubresource(subresource); err != nil {
		return err
	}
	content, err := c.content(body, gvk)
	if err != nil {
		return err
	}
	key := k.keyOf(client.ObjectKeyFromObject(obj))
	w := writer{actor: c.actor, verb: Update, subresource: subresource, basis: basisOf(content), dry: dry}
	return c.write(c.call(Update, k, key, subresource), gvk, obj, func() (*Version, error) {
		return c.server.replace(w, k, key, content)
	})
}

// requireSubresource returns an error if a kind does not have a subresource.
func (k *kind) requireSubresource(subresource string) error {
	switch {
	case subresource == "", subresource == statusOf && k.status, subresource == scaleOf && k.scale:
		return nil
	default:
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "", k.resource(), "", "", 0, true)
	}
}

// Patch implements client.Writer.
func (c *serverClient) Patch(_ context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	return c.patch(obj, obj, patch, "", isDryRun(options.DryRun))
}

func (c *serverClient) patch(obj, body client.Object, patch client.Patch, subresource string, dry bool) error {
	gvk, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	if err := k.requireSubresource(subresource); err != nil {
		return err
	}
	data, err := patch.Data(body)
	if err != nil {
		return err
	}
	apply, basis, err := changeOf(k, patch.Type(), data)
	if err != nil {
		return err
	}
	key := k.keyOf(client.ObjectKeyFromObject(obj))
	w := writer{actor: c.actor, verb: Patch, subresource: subresource, basis: basis, dry: dry}
	return c.write(c.call(Patch, k, key, subresource), gvk, obj, func() (*Version, error) {
		return c.server.update(w, k, key, apply)
	})
}

// changeOf returns the change that a patch makes.
func changeOf(k *kind, of types.PatchType, data []byte) (change, Basis, error) {
	switch of {
	case types.MergePatchType:
		var patch map[string]any
		if err := utiljson.Unmarshal(data, &patch); err != nil {
			return nil, Basis{}, apierrors.NewBadRequest(err.Error())
		}
		basis := basisOf(patch)
		return func(old *Version) (map[string]any, error) { return mergePatch(old.content, patch), nil }, basis, nil
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, Basis{}, apierrors.NewBadRequest(err.Error())
		}
		return func(old *Version) (map[string]any, error) { return patchJSON(patch, old) }, testedBasis(patch), nil
	default:
		return nil, Basis{}, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", k.resource(), "",
			"the body of the request was in an unknown format - accepted media types here are application/json-patch+json, application/merge-patch+json", 0, true)
	}
}

// patchJSON applies a JSON patch (RFC 6902).
func patchJSON(patch jsonpatch.Patch, old *Version) (map[string]any, error) {
	before, err := utiljson.Marshal(old.content)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", old, err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(after, &content); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return content, nil
}

// testedBasis returns the state that a JSON patch tests.
func testedBasis(patch jsonpatch.Patch) Basis {
	var basis Basis
	for _, operation := range patch {
		path, err := operation.Path()
		if err != nil {
			continue
		}
		value, err := operation.ValueInterface()
		text, ok := value.(string)
		if err != nil || !ok {
			continue
		}
		switch path {
		case "/metadata/resourceVersion": // tested, or written and then compared
			basis.ResourceVersion = text
		case "/metadata/uid":
			basis.UID = text
		}
	}
	return basis
}

// Delete implements client.Writer.
func (c *serverClient) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	_, _, err := c.delete(obj, opts)
	return err
}

// delete returns the object after the deletion, and whether it was removed.
func (c *serverClient) delete(obj client.Object, opts []client.DeleteOption) (left *Version, gone bool, err error) {
	_, k, err := c.kindOf(obj)
	if err != nil {
		return nil, false, err
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	d := deletion{grace: options.GracePeriodSeconds}
	w := writer{actor: c.actor, verb: Delete, dry: isDryRun(options.DryRun)}
	if p := options.Preconditions; p != nil {
		if p.UID != nil {
			d.uid, w.basis.UID = new(string(*p.UID)), string(*p.UID)
		}
		if p.ResourceVersion != nil {
			d.version, w.basis.ResourceVersion = p.ResourceVersion, *p.ResourceVersion
		}
	}
	if options.PropagationPolicy != nil {
		d.policy = *options.PropagationPolicy
	}
	key := k.keyOf(client.ObjectKeyFromObject(obj))
	err = c.execute(c.call(Delete, k, key, ""), func() (err error) {
		left, gone, err = c.server.delete(w, k, key, d)
		return err
	})
	return left, gone, err
}

// DeleteAllOf implements client.Writer.
func (c *serverClient) DeleteAllOf(_ context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	_, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	options := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	call := c.call(Delete, k, types.NamespacedName{Namespace: options.Namespace}, "")
	w := writer{actor: c.actor, verb: Delete, dry: isDryRun(options.DryRun)}
	return c.execute(call, func() error {
		found, err := c.server.list(k, &options.ListOptions)
		if err != nil {
			return err
		}
		for _, v := range found {
			if _, _, err := c.server.delete(w, k, v.key, deletion{grace: options.GracePeriodSeconds}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Apply implements client.Writer. Serin does not use it.
func (c *serverClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errors.New("server-side apply is not simulated")
}

// Status implements client.Client.
func (c *serverClient) Status() client.SubResourceWriter { return c.SubResource(statusOf) }

// SubResource implements client.Client.
func (c *serverClient) SubResource(name string) client.SubResourceClient {
	return &subresource{client: c, name: name}
}

const scaleOf = "scale"

type subresource struct {
	client *serverClient
	name   string
}

// Get implements client.SubResourceReader.
func (r *subresource) Get(_ context.Context, obj, into client.Object, _ ...client.SubResourceGetOption) error {
	_, k, err := r.client.kindOf(obj)
	if err != nil {
		return err
	}
	if err := k.requireSubresource(r.name); err != nil {
		return err
	}
	key := k.keyOf(client.ObjectKeyFromObject(obj))
	call := r.client.call(Get, k, key, r.name)
	var found *Version
	err = r.client.execute(call, func() error {
		if found = r.client.server.Peek(k.GroupKind, key); found == nil {
			return NotFound(call)
		}
		return nil
	})
	if err != nil {
		return err
	}
	scale, ok := into.(*autoscalingv1.Scale)
	if r.name != scaleOf || !ok {
		return fmt.Errorf("%s is read as a Scale only, not as %T", r.name, into)
	}
	*scale = scaleOfVersion(found)
	return nil
}

func scaleOfVersion(v *Version) autoscalingv1.Scale {
	m := metaOf(v.metadata())
	scale := autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
	}}
	scale.Spec.Replicas = int32(integer(object(v.content, "spec"), "replicas", 0))
	scale.Status.Replicas = int32(integer(object(v.content, "status"), "replicas", 0))
	selector := &metav1.LabelSelector{}
	if err := fromContent(object(v.content, "spec", "selector"), selector); err == nil {
		if chosen, err := metav1.LabelSelectorAsSelector(selector); err == nil {
			scale.Status.Selector = chosen.String()
		}
	}
	return scale
}

const evictionOf = "eviction"

// Create implements client.SubResourceWriter: it evicts a pod, based on the preconditions of the eviction.
func (r *subresource) Create(_ context.Context, obj, _ client.Object, _ ...client.SubResourceCreateOption) error {
	if r.name != evictionOf {
		return fmt.Errorf("creating %s is not simulated", r.name)
	}
	_, k, err := r.client.kindOf(obj)
	if err != nil {
		return err
	}
	key := k.keyOf(client.ObjectKeyFromObject(obj))
	w := writer{actor: r.client.actor, verb: Delete, subresource: evictionOf}
	return r.client.execute(r.client.call(Create, k, key, evictionOf), func() error {
		_, _, err := r.client.server.delete(w, k, key, deletion{})
		return err
	})
}

// Update implements client.SubResourceWriter.
func (r *subresource) Update(_ context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	if r.name == scaleOf {
		return r.scale(obj, options.SubResourceBody, isDryRun(options.DryRun))
	}
	body := obj
	if options.SubResourceBody != nil {
		body = options.SubResourceBody
	}
	return r.client.update(obj, body, r.name, isDryRun(options.DryRun))
}

// scale writes replicas.
func (r *subresource) scale(obj, body client.Object, dry bool) error {
	scale, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return fmt.Errorf("scale is written as a Scale only, not as %T", body)
	}
	_, k, err := r.client.kindOf(obj)
	if err != nil {
		return err
	}
	if err := k.requireSubresource(scaleOf); err != nil {
		return err
	}
	key := k.keyOf(client.ObjectKeyFromObject(obj))
	w := writer{
		actor: r.client.actor, verb: Update, subresource: scaleOf, dry: dry,
		basis: Basis{ResourceVersion: scale.ResourceVersion, UID: string(scale.UID)},
	}
	var written *Version
	err = r.client.execute(r.client.call(Update, k, key, scaleOf), func() (err error) {
		written, err = r.client.server.update(w, k, key, func(old *Version) (map[string]any, error) {
			content := withField(old.content, "spec", withField(object(old.content, "spec"), "replicas", int64(scale.Spec.Replicas)))
			metadata := withField(old.metadata(), "resourceVersion", old.metadata()["resourceVersion"])
			if scale.ResourceVersion != "" {
				metadata["resourceVersion"] = scale.ResourceVersion
			}
			if scale.UID != "" {
				metadata["uid"] = string(scale.UID)
			}
			content["metadata"] = metadata
			return content, nil
		})
		return err
	})
	if err != nil {
		return err
	}
	*scale = scaleOfVersion(written)
	return nil
}

// Patch implements client.SubResourceWriter.
func (r *subresource) Patch(_ context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	if r.name == scaleOf {
		return errors.New("patching scale is not simulated: update it")
	}
	body := obj
	if options.SubResourceBody != nil {
		body = options.SubResourceBody
	}
	return r.client.patch(obj, body, patch, r.name, isDryRun(options.DryRun))
}

// Apply implements client.SubResourceWriter.
func (r *subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errors.New("server-side apply is not simulated")
}

// representation returns the representation in which a caller holds objects of a kind. Real caches have one view for each.
func representation(obj any) Representation {
	switch obj.(type) {
	case *unstructured.Unstructured, *unstructured.UnstructuredList:
		return Generic
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return MetadataOnly
	default:
		return Typed
	}
}

// Representation is the representation of objects.
type Representation string

// The representations of objects.
const (
	Typed        Representation = "typed"
	Generic      Representation = "unstructured"
	MetadataOnly Representation = "metadata"
)
