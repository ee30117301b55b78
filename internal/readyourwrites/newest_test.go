package readyourwrites_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/serin-dev/serin/internal/readyourwrites"
)

// countingReader counts reads and optionally fails them.
type countingReader struct {
	client.Reader
	reads int
	fail  error
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.reads++
	if r.fail != nil {
		return r.fail
	}
	return r.Reader.Get(ctx, key, object, options...)
}

var releaseKey = types.NamespacedName{Namespace: "shop", Name: "cart"}

func at(uid types.UID, resourceVersion string) *corev1.Service {
	object := &corev1.Service{}
	object.Namespace, object.Name, object.UID, object.ResourceVersion = "shop", "cart", uid, resourceVersion
	return object
}

func newCountingReader(t *testing.T, live *corev1.Service) *countingReader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	if live != nil {
		builder = builder.WithObjects(live)
	}
	return &countingReader{Reader: builder.Build()}
}

// TestOlderVersionsAreRejected: no accepted object is older than a version that the API server has returned.
func TestOlderVersionsAreRejected(t *testing.T) {
	for _, test := range []struct {
		name     string
		live     *corev1.Service // in the API server; nil means deleted
		recorded *corev1.Service // nil means none
		written  *corev1.Service
		cached   []*corev1.Service
		stale    []bool
		reads    int
	}{
		{"an old list", at("1", "30"), nil, nil, []*corev1.Service{at("1", "10"), at("1", "20"), at("1", "30")}, []bool{true, true, false}, 1},
		{"a list that is up to date", at("1", "30"), nil, nil, []*corev1.Service{at("1", "30"), at("1", "31")}, []bool{false, false}, 1},
		{"a version is recorded", at("1", "30"), at("1", "30"), nil, []*corev1.Service{at("1", "29"), at("1", "30")}, []bool{true, false}, 0},
		{"a version of another object is recorded", at("1", "30"), at("9", "50"), nil, []*corev1.Service{at("1", "30")}, []bool{false}, 1},
		{"a version was written", at("1", "30"), nil, at("1", "10"), []*corev1.Service{at("1", "10"), at("1", "9")}, []bool{false, true}, 0},
		{"a later version was written", at("1", "30"), at("1", "10"), at("1", "11"), []*corev1.Service{at("1", "10")}, []bool{false}, 0},
		{"a version of another object was written", at("1", "30"), at("9", "50"), at("1", "10"), []*corev1.Service{at("1", "10")}, []bool{false}, 0},
		{"deleted by now", nil, nil, nil, []*corev1.Service{at("1", "10"), at("1", "10")}, []bool{true, true}, 2},
		{"recreated by now", at("2", "30"), nil, nil, []*corev1.Service{at("1", "10"), at("2", "30")}, []bool{true, false}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			reader := newCountingReader(t, test.live)
			newest := readyourwrites.NewNewestVersions("Service", reader)
			if test.recorded != nil {
				newest.RecordVersion(releaseKey, test.recorded)
			}
			if test.written != nil {
				newest.RecordIfUnknown(releaseKey, test.written)
			}
			for i, cached := range test.cached {
				err := newest.VerifyTakeover(t.Context(), releaseKey, cached, &corev1.Service{})
				if got := errors.Is(err, readyourwrites.ErrStale); got != test.stale[i] || err != nil && !got {
					t.Errorf("version %s: got %v, want stale %t", cached.ResourceVersion, err, test.stale[i])
				}
			}
			if reader.reads != test.reads {
				t.Errorf("%d reads, want %d", reader.reads, test.reads)
			}
		})
	}
}

// The API server is read again after a failed read and after Forget. VerifyNotStale never reads it.
func TestTheAPIServerIsReadUntilAVersionIsRecorded(t *testing.T) {
	reader := newCountingReader(t, at("1", "30"))
	newest := readyourwrites.NewNewestVersions("Service", reader)
	if err := newest.VerifyNotStale(releaseKey, at("1", "10")); err != nil || reader.reads != 0 {
		t.Errorf("without a recorded version: %v after %d reads", err, reader.reads)
	}
	reader.fail = errors.New("unavailable")
	if err := newest.VerifyTakeover(t.Context(), releaseKey, at("1", "30"), &corev1.Service{}); !errors.Is(err, reader.fail) {
		t.Errorf("while the API server is unavailable: %v", err)
	}
	reader.fail = nil
	for range 2 {
		if err := newest.VerifyTakeover(t.Context(), releaseKey, at("1", "30"), &corev1.Service{}); err != nil {
			t.Error(err)
		}
	}
	if err := newest.VerifyNotStale(releaseKey, at("1", "29")); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("older than the recorded version: %v", err)
	}
	newest.Forget(releaseKey)
	if err := newest.VerifyTakeover(t.Context(), releaseKey, at("1", "29"), &corev1.Service{}); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("after Forget: %v", err)
	}
	if reader.reads != 3 {
		t.Errorf("%d reads, want 3: one that failed, one that was recorded, one after Forget", reader.reads)
	}
}
