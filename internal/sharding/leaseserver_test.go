package sharding

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaseServer is the part of an API server that stores the Leases of one namespace. It is a transport, because connections would
// not work in the bubbles of synctest.
type leaseServer struct {
	t *testing.T

	mu      sync.Mutex
	version int
	// forbidsDeletes answers each deletion with 403.
	forbidsDeletes bool
	leases         map[string]*coordinationv1.Lease
}

func newLeaseServer(t *testing.T) *leaseServer {
	t.Helper()
	return &leaseServer{t: t, leases: map[string]*coordinationv1.Lease{}}
}

// RoundTrip implements http.RoundTripper.
func (s *leaseServer) RoundTrip(request *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond) // so that requests of replicas interleave
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	_, name, _ := strings.Cut(request.URL.Path, "/leases")
	name = strings.TrimPrefix(name, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	code, object := s.serve(request, name, body)
	if code/100 != 2 {
		object = &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code]}
	}
	content, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(content)), Request: request}, nil
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
}

func (s *leaseServer) serve(request *http.Request, name string, body []byte) (code int, object any) {
	stored := s.leases[name]
	if name != "" && stored == nil {
		return http.StatusNotFound, nil
	}
	switch request.Method {
	case http.MethodGet:
		if name != "" {
			return http.StatusOK, stored
		}
		list := &coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		label, value, _ := strings.Cut(request.URL.Query().Get("labelSelector"), "=")
		for _, lease := range s.leases {
			if found, ok := lease.Labels[label]; ok && found == value {
				list.Items = append(list.Items, *lease)
			}
		}
		return http.StatusOK, list
	case http.MethodPost, http.MethodPut:
		lease := &coordinationv1.Lease{}
		if err := json.Unmarshal(body, lease); err != nil {
			s.t.Error(err)
		}
		if request.Method == http.MethodPost && s.leases[lease.Name] != nil || stored != nil && lease.ResourceVersion != stored.ResourceVersion {
			return http.StatusConflict, nil
		}
		return http.StatusOK, s.store(lease)
	case http.MethodPatch:
		patched, err := applyPatch(types.PatchType(request.Header.Get("Content-Type")), stored, body)
		if err != nil {
			return http.StatusUnprocessableEntity, nil
		}
		return http.StatusOK, s.store(patched)
	case http.MethodDelete:
		if s.forbidsDeletes {
			return http.StatusForbidden, nil
		}
		var options metav1.DeleteOptions
		if err := json.Unmarshal(body, &options); err != nil {
			s.t.Error(err)
		}
		if p := options.Preconditions; p != nil && (*p.UID != stored.UID || *p.ResourceVersion != stored.ResourceVersion) {
			return http.StatusConflict, nil
		}
		delete(s.leases, name)
		return http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	default:
		s.t.Errorf("unexpected request %s %s", request.Method, request.URL)
		return http.StatusMethodNotAllowed, nil
	}
}

func applyPatch(kind types.PatchType, stored *coordinationv1.Lease, body []byte) (*coordinationv1.Lease, error) {
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	after := before
	switch kind {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, body)
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			after, err = patch.Apply(before)
		}
	default:
		err = errors.New("unknown type of patch")
	}
	if err != nil {
		return nil, err
	}
	patched := &coordinationv1.Lease{}
	return patched, json.Unmarshal(after, patched)
}

func (s *leaseServer) store(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	lease.APIVersion, lease.Kind, lease.ResourceVersion = "coordination.k8s.io/v1", "Lease", strconv.Itoa(s.version)
	if lease.UID == "" {
		lease.UID = types.UID("uid-" + lease.ResourceVersion)
	}
	s.leases[lease.Name] = lease
	return lease
}
