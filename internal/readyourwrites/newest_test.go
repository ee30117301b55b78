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

// reads counts them, and fails those that shall.
type reads struct {
	client.Reader
	n    int
	fail error
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.n++
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

func newReads(t *testing.T, live *corev1.Service) *reads {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	if live != nil {
		builder = builder.WithObjects(live)
	}
	return &reads{Reader: builder.Build()}
}

// TestNewest: what is acted on is never older than what the API server has once shown.
func TestNewest(t *testing.T) {
	for _, test := range []struct {
		name   string
		live   *corev1.Service // version 30; nil: it is gone
		knows  *corev1.Service // nil: nothing is known
		proves *corev1.Service
		cached []*corev1.Service
		behind []bool
		reads  int
	}{
		{"an old list", at("1", "30"), nil, nil, []*corev1.Service{at("1", "10"), at("1", "20"), at("1", "30")}, []bool{true, true, false}, 1},
		{"a list that is up to date", at("1", "30"), nil, nil, []*corev1.Service{at("1", "30"), at("1", "31")}, []bool{false, false}, 1},
		{"what is known", at("1", "30"), at("1", "30"), nil, []*corev1.Service{at("1", "29"), at("1", "30")}, []bool{true, false}, 0},
		{"another one is known", at("1", "30"), at("9", "50"), nil, []*corev1.Service{at("1", "30")}, []bool{false}, 1},
		{"what a write proved", at("1", "30"), nil, at("1", "10"), []*corev1.Service{at("1", "10"), at("1", "9")}, []bool{false, true}, 0},
		{"what a later write proves", at("1", "30"), at("1", "10"), at("1", "11"), []*corev1.Service{at("1", "10")}, []bool{false}, 0},
		{"a write proves another one", at("1", "30"), at("9", "50"), at("1", "10"), []*corev1.Service{at("1", "10")}, []bool{false}, 0},
		{"gone by now", nil, nil, nil, []*corev1.Service{at("1", "10"), at("1", "10")}, []bool{true, true}, 2},
		{"made again by now", at("2", "30"), nil, nil, []*corev1.Service{at("1", "10"), at("2", "30")}, []bool{true, false}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			reads := newReads(t, test.live)
			newest := readyourwrites.NewNewestVersions("Service", reads)
			if test.knows != nil {
				newest.RecordVersion(releaseKey, test.knows)
			}
			if test.proves != nil {
				newest.RecordIfUnknown(releaseKey, test.proves)
			}
			for i, cached := range test.cached {
				err := newest.VerifyTakeover(t.Context(), releaseKey, cached, &corev1.Service{})
				if got := errors.Is(err, readyourwrites.ErrStale); got != test.behind[i] || err != nil && !got {
					t.Errorf("version %s: %v, behind should be %t", cached.ResourceVersion, err, test.behind[i])
				}
			}
			if reads.n != test.reads {
				t.Errorf("%d reads, want %d", reads.n, test.reads)
			}
		})
	}
}

// TestNewestIsAskedAgain after a read that failed, and for what was forgotten; a look alone asks nobody.
func TestNewestIsAskedAgain(t *testing.T) {
	reads := newReads(t, at("1", "30"))
	newest := readyourwrites.NewNewestVersions("Service", reads)
	if err := newest.VerifyNotStale(releaseKey, at("1", "10")); err != nil || reads.n != 0 {
		t.Errorf("a look where nothing is known: %v after %d reads", err, reads.n)
	}
	reads.fail = errors.New("away")
	if err := newest.VerifyTakeover(t.Context(), releaseKey, at("1", "30"), &corev1.Service{}); !errors.Is(err, reads.fail) {
		t.Errorf("while the API server is away: %v", err)
	}
	reads.fail = nil
	for range 2 {
		if err := newest.VerifyTakeover(t.Context(), releaseKey, at("1", "30"), &corev1.Service{}); err != nil {
			t.Error(err)
		}
	}
	if err := newest.VerifyNotStale(releaseKey, at("1", "29")); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("a look at what is older than what is known: %v", err)
	}
	newest.Forget(releaseKey)
	if err := newest.VerifyTakeover(t.Context(), releaseKey, at("1", "29"), &corev1.Service{}); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("after it was forgotten: %v", err)
	}
	if reads.n != 3 {
		t.Errorf("%d reads, want 3: one that failed, one that was kept, one after that was forgotten", reads.n)
	}
}
