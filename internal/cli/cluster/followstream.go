package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stream starts a stream of one kind that reconnects until the follower ends it. A second call with the same name has no effect.
func (f *follower) stream(ctx context.Context, name string, list client.ObjectList, options ...client.ListOption) {
	if f.streams[name] != nil {
		return
	}
	ctx, f.streams[name] = context.WithCancel(ctx)
	send := func(c streamChange) {
		c.stream = name
		select {
		case f.changes <- c:
		case <-ctx.Done():
		}
	}
	f.group.Go(func() error {
		wait := minRetryDelay
		for ctx.Err() == nil {
			version, err := f.list(ctx, list, options, send)
			if err == nil {
				wait = minRetryDelay
				err = f.watch(ctx, list, version, options, send)
			}
			switch {
			case err == nil: // the API server ends every watch after a while
				continue
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the caller ended it
			case isForbidden(err), meta.IsNoMatchError(err):
				send(streamChange{err: err, denied: true})
				return nil
			}
			send(streamChange{err: err})
			select {
			case <-ctx.Done():
			case <-f.Clock.After(wait):
			}
			wait = min(2*wait, maxRetryDelay)
		}
		return nil
	})
}

// list sends all objects of a kind, and returns the resource version of the list.
func (f *follower) list(ctx context.Context, emptyList client.ObjectList, options []client.ListOption, send func(streamChange)) (version string, err error) {
	list, ok := emptyList.DeepCopyObject().(client.ObjectList)
	if !ok {
		return "", fmt.Errorf("%T is not a list", emptyList)
	}
	if err := f.Client.List(ctx, list, options...); err != nil {
		return "", err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return "", err
	}
	all := make([]client.Object, 0, len(items))
	for _, item := range items {
		if object, ok := item.(client.Object); ok {
			all = append(all, decodeState(withKind(object, list)))
		}
	}
	send(streamChange{all: all})
	return list.GetResourceVersion(), nil
}

// withKind sets the kind of an item, which items of typed lists lack.
func withKind(object client.Object, list client.ObjectList) client.Object {
	if gvk := object.GetObjectKind().GroupVersionKind(); gvk.Kind == "" {
		gvk = list.GetObjectKind().GroupVersionKind()
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		object.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return object
}

// watch sends every change after a resource version until the watch ends. It returns nil if the API server ended the watch
// normally.
func (f *follower) watch(ctx context.Context, emptyList client.ObjectList, version string, options []client.ListOption, send func(streamChange)) error {
	list, ok := emptyList.DeepCopyObject().(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is not a list", emptyList)
	}
	began := f.Clock.Now()
	w, err := f.Client.Watch(ctx, list, append(slices.Clone(options), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-w.ResultChan():
			switch {
			case !open && f.Clock.Since(began) < minRetryDelay:
				return errors.New("the connection ended immediately")
			case !open:
				return nil
			case event.Type == watch.Error:
				if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
					return err
				}
				return nil // the version is too old: list again
			case event.Type == watch.Bookmark:
				continue
			}
			if object, ok := event.Object.(client.Object); ok {
				send(streamChange{object: decodeState(withKind(object, list)), deleted: event.Type == watch.Deleted})
			}
		}
	}
}
