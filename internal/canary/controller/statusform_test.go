package controller

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// schemaServer is an API server whose schema of Canaries stores status.serin or drops it.
type schemaServer struct {
	client.WithWatch

	t               *testing.T
	drops           bool
	writes, dryRuns int
	refuse          func(dryRun bool) error // nil: nothing is refused
}

func newSchemaServer(t *testing.T, drops bool) *schemaServer {
	t.Helper()
	c := &flaggerv1.Canary{}
	c.Namespace, c.Name = "shop", "cart"
	s := &schemaServer{t: t, drops: drops}
	inner := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(c).WithStatusSubresource(c).Build()
	s.WithWatch = interceptor.NewClient(inner, interceptor.Funcs{SubResourcePatch: s.patch})
	return s
}

// patch patches a Canary as an API server does: it drops unknown fields, and stores the result unless it is a dry run.
func (s *schemaServer) patch(ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	applied := &client.SubResourcePatchOptions{}
	applied.ApplyOptions(options)
	dryRun := len(applied.DryRun) > 0
	if s.refuse != nil {
		if err := s.refuse(dryRun); err != nil {
			return err
		}
	}
	if dryRun {
		s.dryRuns++
	} else {
		s.writes++
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	stored := s.read(ctx)
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	if text, err = jsonpatch.MergePatch(text, data); err != nil {
		return err
	}
	patched := &flaggerv1.Canary{}
	if err := json.Unmarshal(text, patched); err != nil {
		return err
	}
	if s.drops {
		patched.Status.Serin = nil
	}
	if !dryRun {
		if err := c.SubResource(subresource).Update(ctx, patched); err != nil {
			return err
		}
	}
	into, ok := object.(*flaggerv1.Canary)
	if !ok {
		s.t.Fatalf("unexpected patch of a %T", object)
	}
	patched.DeepCopyInto(into)
	return nil
}

// read returns the stored Canary.
func (s *schemaServer) read(ctx context.Context) *flaggerv1.Canary {
	s.t.Helper()
	c := &flaggerv1.Canary{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "cart"}, c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// advance writes the status of another run, as a process with that form does.
func (s *schemaServer) advance(form *statusWriter, run string) error {
	s.t.Helper()
	object := s.read(s.t.Context())
	stored := decodeState(object)
	status := *object.Status.DeepCopy()
	status.LastTransitionTime = metav1.NewTime(noon)
	start := metav1.NewMicroTime(noon.Add(123456 * time.Microsecond))
	status.Serin = &flaggerv1.SerinStatus{Run: run, Window: &flaggerv1.AnalysisWindow{Start: start}}
	object.Status = stored
	_, err := form.write(s.t.Context(), s, object, &status)
	return err
}

// check compares the stored state, and its form, with what was written.
func (s *schemaServer) check(run string, condition bool, writes, dryRuns int) {
	s.t.Helper()
	stored := s.read(s.t.Context()).Status
	decoded := flaggerv1.DecodeState(stored)
	switch {
	case decoded.Serin == nil || decoded.Serin.Run != run:
		s.t.Fatalf("the state is %+v, want run %s", decoded.Serin, run)
	case !decoded.Serin.Window.Start.Time.Equal(noon.Add(123456 * time.Microsecond)):
		s.t.Errorf("the window starts at %s", decoded.Serin.Window.Start)
	case flaggerv1.HasEncodedState(stored) != condition:
		s.t.Errorf("has the condition: %v, want %v", !condition, condition)
	}
	if diff := cmp.Diff([]int{writes, dryRuns}, []int{s.writes, s.dryRuns}); diff != "" {
		s.t.Errorf("writes and dry runs (-want +got):\n%s", diff)
	}
}

func (s *schemaServer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestStateIsWrittenInOneRequest: the first write of a process determines the schema with a dry run, and no write stores a status
// without its state. A process that finds a stored state needs no dry run.
func TestStateIsWrittenInOneRequest(t *testing.T) {
	for name, drops := range map[string]bool{"stores the field": false, "drops the field": true} {
		t.Run(name, func(t *testing.T) {
			s, form := newSchemaServer(t, drops), &statusWriter{}
			s.must(s.advance(form, "a"))
			s.check("a", drops, 1, 1)
			s.must(s.advance(form, "b"))
			s.check("b", drops, 2, 1)
			s.must(s.advance(&statusWriter{}, "c"))
			s.check("c", drops, 3, 1)
		})
	}
}

// TestCrashBetweenDryRunAndWrite: the crash leaves no changes.
func TestCrashBetweenDryRunAndWrite(t *testing.T) {
	s := newSchemaServer(t, true)
	crash := errors.New("the process stopped")
	s.refuse = func(dryRun bool) error {
		if dryRun {
			return nil
		}
		return crash
	}
	if err := s.advance(&statusWriter{}, "a"); !errors.Is(err, crash) {
		t.Fatalf("got %v", err)
	}
	if status := s.read(s.t.Context()).Status; status.Phase != "" || len(status.Conditions) > 0 || s.writes != 0 {
		t.Fatalf("%d writes left %+v", s.writes, status)
	}
	s.refuse = nil
	s.must(s.advance(&statusWriter{}, "a"))
	s.check("a", true, 1, 2)
}

// TestSchemaIsReplacedAtRuntime: a newer schema is detected in the response to a write, and the next write removes the condition.
// After an older schema is detected, the same status is written again at once.
func TestSchemaIsReplacedAtRuntime(t *testing.T) {
	s, form := newSchemaServer(t, true), &statusWriter{}
	s.must(s.advance(form, "a"))
	s.drops = false
	s.must(s.advance(form, "b"))
	s.check("b", true, 2, 1)
	s.must(s.advance(form, "c"))
	s.check("c", false, 3, 1)
	s.drops = true
	s.must(s.advance(form, "d"))
	s.check("d", true, 5, 1)
	s.must(s.advance(form, "e"))
	s.check("e", true, 6, 1)
}

// TestOnlyAPermanentRefusalOfTheDryRunUsesTheCondition by an admission webhook with side effects, and by an API server that is
// not available. Only the first is permanent, and must not delay releases.
func TestOnlyAPermanentRefusalOfTheDryRunUsesTheCondition(t *testing.T) {
	s, form := newSchemaServer(t, false), &statusWriter{}
	refusal := error(apierrors.NewServiceUnavailable("later"))
	s.refuse = func(dryRun bool) error {
		if dryRun {
			return refusal
		}
		return nil
	}
	if err := s.advance(form, "a"); !apierrors.IsServiceUnavailable(err) || s.writes != 0 {
		t.Fatalf("got %v and %d writes", err, s.writes)
	}
	refusal = apierrors.NewBadRequest("admission webhook does not support dry run")
	s.must(s.advance(form, "a"))
	s.check("a", true, 1, 0)
	s.must(s.advance(form, "b"))
	s.check("b", false, 2, 0)
}
