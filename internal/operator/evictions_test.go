package operator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestARefusedEvictionReturnsAtOnce: the client neither waits nor repeats the request. Other requests are repeated.
func TestARefusedEvictionReturnsAtOnce(t *testing.T) {
	var evictions, others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests, refusal := &others, apierrors.NewTooManyRequests("The API server is busy", 1)
		if r.Method == http.MethodPost {
			requests, refusal = &evictions, apierrors.NewTooManyRequests("The disruption budget is still being processed", 1)
		}
		w.Header().Set("Content-Type", "application/json")
		if requests.Add(1) > 1 {
			_ = json.NewEncoder(w).Encode(corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(refusal.ErrStatus)
	}))
	defer server.Close()
	var f Flags
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	api, err := client.New(f.tuneClient(&rest.Config{Host: server.URL}, nil), client.Options{Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
	err = api.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
	if !apierrors.IsTooManyRequests(err) || evictions.Load() != 1 {
		t.Errorf("%d evictions end with %v, want one that is refused", evictions.Load(), err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || others.Load() != 2 {
		t.Errorf("%d other requests end with %v, want a second one that succeeds", others.Load(), err)
	}
}
