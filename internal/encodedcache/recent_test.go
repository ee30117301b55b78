package encodedcache

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
