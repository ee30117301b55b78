package encodedcache

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

func TestOnlyTheLastObjectsRemainDecoded(t *testing.T) {
	recent := &Recent{}
	i := &informer{recent: recent}
	var all []*storedObject
	for n := range maxRecent + 10 {
		object := &unstructured.Unstructured{}
		object.SetName(strconv.Itoa(n))
		stored, err := newStoredObject(object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stored)
		if got := i.decode(stored).(*unstructured.Unstructured).GetName(); got != object.GetName() {
			t.Fatalf("decoded %q, want %q", got, object.GetName())
		}
	}
	decoded := func() (numbers []int) {
		for n, stored := range all {
			if stored.decoded.Load() != nil {
				numbers = append(numbers, n)
			}
		}
		return numbers
	}
	if got := decoded(); len(got) != maxRecent || got[0] != 10 {
		t.Errorf("%d objects are decoded, from the number %d on; want %d, from 10 on", len(got), got[0], maxRecent)
	}
	if i.decode(all[0]); all[10].decoded.Load() != nil || all[0].decoded.Load() == nil {
		t.Error("an object that was decoded again did not replace the oldest one")
	}
	if recent.Forget(); len(decoded()) > 0 {
		t.Errorf("after Forget, %d objects are decoded", len(decoded()))
	}
}

func TestAReplacedVersionIsNotRetained(t *testing.T) {
	i := &informer{recent: &Recent{}}
	version := func(text string) *storedObject {
		object := &unstructured.Unstructured{}
		object.SetResourceVersion(text)
		stored, err := newStoredObject(object)
		if err != nil {
			t.Fatal(err)
		}
		i.decode(stored)
		return stored
	}
	before, after := version("1"), version("2")
	handler := &recordingHandler{}
	first, second := i.decodingHandler(handler), i.decodingHandler(handler)
	first.OnUpdate(before, after)
	if before.decoded.Load() == nil {
		t.Error("the previous version is decoded no longer before the second handler has received it")
	}
	second.OnUpdate(before, after)
	if handler.before != "1" || handler.after != "2" {
		t.Errorf("the handler received the versions %q and %q", handler.before, handler.after)
	}
	if before.decoded.Load() != nil || after.decoded.Load() == nil {
		t.Errorf("previous version decoded: %t, current one: %t", before.decoded.Load() != nil, after.decoded.Load() != nil)
	}
	first.OnUpdate(after, after) // a periodic resync
	if after.decoded.Load() == nil {
		t.Error("an object that did not change is decoded no longer")
	}
}

// recordingHandler records the versions of an update.
type recordingHandler struct {
	cache.ResourceEventHandlerFuncs
	before, after string
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *recordingHandler) OnUpdate(before, after any) {
	h.before, h.after = before.(*unstructured.Unstructured).GetResourceVersion(), after.(*unstructured.Unstructured).GetResourceVersion()
}
