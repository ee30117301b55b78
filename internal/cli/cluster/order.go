package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
)

// ErrPointless is the error of an order that does nothing where the release is.
var ErrPointless = errors.New("nothing to do")

// Promote lets a release start out of turn and unasked, or go on to its promotion. Errors of this and of the other orders:
// ErrPointless, ErrNotFound, ErrUnreachable.
func (s *Session) Promote(ctx context.Context, namespace, name string) error {
	return s.command(ctx, namespace, name, "promote", func(c *flaggerv1.Canary) string {
		switch c.Status.Phase {
		case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
			return ""
		default:
			if c.Status.Serin != nil && c.Status.Serin.Queue != nil {
				return ""
			}
			return "no release waits or is observed"
		}
	})
}

// Abort takes a release back.
func (s *Session) Abort(ctx context.Context, namespace, name string) error {
	return s.command(ctx, namespace, name, "abort", func(c *flaggerv1.Canary) string {
		switch c.Status.Phase {
		case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting:
			return ""
		case flaggerv1.CanaryPhaseFinalising:
			return "the new version serves already: ship the old one again to go back"
		default:
			return "no release is under way"
		}
	})
}

// Retry releases a revision that failed once more.
func (s *Session) Retry(ctx context.Context, namespace, name string) error {
	return s.command(ctx, namespace, name, "retry", func(c *flaggerv1.Canary) string {
		if c.Status.Phase != flaggerv1.CanaryPhaseFailed {
			return "the last release did not fail"
		}
		return ""
	})
}

// Pause sets spec.suspend.
func (s *Session) Pause(ctx context.Context, namespace, name string) error {
	return s.suspend(ctx, namespace, name, true)
}

// Resume takes spec.suspend back.
func (s *Session) Resume(ctx context.Context, namespace, name string) error {
	return s.suspend(ctx, namespace, name, false)
}

// command writes an order into the annotation that the controller reads, for the run that the person saw: if the release
// has moved on since, it is looked at again.
func (s *Session) command(ctx context.Context, namespace, name, verb string, pointless func(*flaggerv1.Canary) string) error {
	return s.change(ctx, namespace, name, verb, func(c *flaggerv1.Canary) (map[string]any, error) {
		if why := pointless(c); why != "" {
			return nil, fmt.Errorf("%w: Canary %s%s is %s: %s", ErrPointless, name, inNamespace(namespace), c.Status.Phase, why)
		}
		order := verb + "@" + canary.Run(string(c.UID), c.Status)
		if c.Status.Serin != nil && c.Status.Serin.Command == order {
			return nil, fmt.Errorf("%w: %s was carried out for this release", ErrPointless, verb)
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{canary.CommandAnnotation: order}}}, nil
	})
}

func (s *Session) suspend(ctx context.Context, namespace, name string, to bool) error {
	verb := map[bool]string{true: "pause", false: "resume"}[to]
	return s.change(ctx, namespace, name, verb, func(c *flaggerv1.Canary) (map[string]any, error) {
		if c.Spec.Suspend == to {
			return nil, fmt.Errorf("%w: spec.suspend of Canary %s%s is %v already", ErrPointless, name, inNamespace(namespace), to)
		}
		return map[string]any{"spec": map[string]any{"suspend": to}}, nil
	})
}

// tries bounds how often a change is made anew because the Canary moved on while it was made.
const tries = 10

// change patches a Canary as it is now.
func (s *Session) change(ctx context.Context, namespace, name, verb string, make func(*flaggerv1.Canary) (map[string]any, error)) error {
	var err error
	for range tries {
		c := &flaggerv1.Canary{}
		if err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, c); err != nil {
			return explained("get Canary "+name+inNamespace(namespace), err)
		}
		patch, refused := make(c)
		if refused != nil {
			return refused
		}
		metadata, _ := patch["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			patch["metadata"] = metadata
		}
		metadata["resourceVersion"] = c.ResourceVersion
		var body []byte
		if body, err = json.Marshal(patch); err != nil {
			return fmt.Errorf("write the change of Canary %s: %w", name, err)
		}
		if err = s.Client.Patch(ctx, c, client.RawPatch(types.MergePatchType, body)); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return explained(verb+" Canary "+name+inNamespace(namespace), err)
	}
	return nil
}
