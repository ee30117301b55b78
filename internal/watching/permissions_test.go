package watching

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/serin-dev/serin/internal/othercontroller"
)

func TestPermissionsAreQueriedFromTheAPIServerAndCached(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))
	var asked []authorizationv1.LocalSubjectAccessReview
	var failure error
	var reports []string
	p := &Permissions{Clock: clock, ReportUnavailable: func(message string) { reports = append(reports, message) }}
	p.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review := object.(*authorizationv1.LocalSubjectAccessReview)
			if failure != nil {
				return failure
			}
			asked = append(asked, *review.DeepCopy())
			review.Status.Allowed = strings.HasPrefix(review.Spec.User, "system:serviceaccount:flagger-system:")
			return nil
		},
	})
	flagger, mallory := othercontroller.Account{Namespace: "flagger-system", Name: "flagger"}, othercontroller.Account{Namespace: "mallory", Name: "flagger"}
	expect := func(account othercontroller.Account, want bool, questions int) {
		t.Helper()
		got, err := p.IsPermitted(t.Context(), account, CanaryStatus, "shop")
		if err != nil || got != want || len(asked) != questions {
			t.Errorf("%v: permitted %v (%v) after %d questions, want %v after %d", account, got, err, len(asked), want, questions)
		}
	}
	expect(flagger, true, 1)
	expect(mallory, false, 2)
	expect(flagger, true, 2)
	expect(mallory, false, 2)
	clock.Step(refusedTTL)
	expect(flagger, true, 2)
	expect(mallory, false, 3)
	clock.Step(permittedTTL)
	expect(flagger, true, 4)

	review := asked[0]
	want := authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "update", Group: "flagger.app", Resource: "canaries", Subresource: "status"}
	if review.Namespace != "shop" || *review.Spec.ResourceAttributes != want || len(review.Spec.Groups) != 3 {
		t.Errorf("asked %+v", review)
	}

	failure = errors.New("connection refused")
	if _, err := p.IsPermitted(t.Context(), mallory, RolloutStatus, "shop"); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	failure = apierrors.NewForbidden(schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}, "", nil)
	for range 2 { // two active controllers do more harm than one that waits
		if permitted, err := p.IsPermitted(t.Context(), mallory, RolloutStatus, "shop"); err != nil || !permitted {
			t.Errorf("not permitted to ask: %v, %v", permitted, err)
		}
	}
	if len(reports) != 1 || !strings.Contains(reports[0], "localsubjectaccessreviews") {
		t.Errorf("reported %q", reports)
	}
}

// TestManyAnswersDropTheOldestOnly: the answers about a tenant with many namespaces do not displace those that are in use.
func TestManyAnswersDropTheOldestOnly(t *testing.T) {
	used := othercontroller.Account{Namespace: "flagger-system", Name: "flagger"}
	questions := 0
	p := &Permissions{Clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))}
	p.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			if strings.HasSuffix(object.(*authorizationv1.LocalSubjectAccessReview).Spec.User, ":flagger") {
				questions++
			}
			return nil
		},
	})
	ask := func(account othercontroller.Account, namespace string) {
		t.Helper()
		if _, err := p.IsPermitted(t.Context(), account, CanaryStatus, namespace); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * maxCachedAnswers {
		ask(used, "shop")
		ask(othercontroller.Account{Namespace: "mallory", Name: "other"}, fmt.Sprint("mallory-", i))
	}
	if questions != 1 {
		t.Errorf("%d questions about an account that is always in use, want 1", questions)
	}
	if n := p.answers.Len(); n != maxCachedAnswers {
		t.Errorf("%d cached answers, want %d", n, maxCachedAnswers)
	}
}
