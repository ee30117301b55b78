package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/utils/plugin/types"
)

// httpRoute is an HTTPRoute that a router writes. URL is its address at the API server; CA and Token are files.
type httpRoute struct {
	URL   string `json:"url"`
	CA    string `json:"ca"`
	Token string `json:"token"`
}

// requestTimeout limits a request to the API server. The timeout of the call is the controller's.
const requestTimeout = time.Minute

// setWeight replaces the rules of the route by one with the Services of a Rollout.
func (h httpRoute) setWeight(r *v1alpha1.Rollout, weight int32) types.RpcError {
	if h.URL == "" {
		return types.RpcError{}
	}
	if err := h.patch(r.Spec.Strategy.Canary, weight); err != nil {
		return types.RpcError{ErrorString: err.Error()}
	}
	return types.RpcError{}
}

func (h httpRoute) patch(strategy *v1alpha1.CanaryStrategy, weight int32) error {
	ca, err := os.ReadFile(h.CA)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(h.Token)
	if err != nil {
		return err
	}
	backend := func(service string, weight int32) any {
		return map[string]any{"name": service, "port": 80, "weight": weight}
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"rules": []any{map[string]any{
		"backendRefs": []any{backend(strategy.StableService, 100-weight), backend(strategy.CanaryService, weight)},
	}}}})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPatch, h.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: requestTimeout}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server answered %s", response.Status)
	}
	return nil
}
