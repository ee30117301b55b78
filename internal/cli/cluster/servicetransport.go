package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// APIServer sends requests to an API server with the credentials of the user.
type APIServer struct {
	URL       *url.URL
	Transport http.RoundTripper
}

func newAPIServer(config *rest.Config) (*APIServer, error) {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &APIServer{URL: address, Transport: transport}, nil
}

// readVersion returns the version of the API server, such as v1.37.0.
func (a *APIServer) readVersion(client *http.Client) (string, error) {
	response, err := client.Get(withPath(a.URL, "version").String()) //nolint:noctx // the client has a timeout
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var info version.Info
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStatus)).Decode(&info); err != nil || info.GitVersion == "" {
		return "", fmt.Errorf("read the version: got status %s", response.Status)
	}
	return info.GitVersion, nil
}

// serviceHost is the Service that a host name in the cluster names.
type serviceHost struct{ namespace, name string }

func (s serviceHost) String() string { return s.name + "." + s.namespace }

// errUnknownNamespace is the error of a short host name if the namespace of the controller, which resolves it, is unknown.
var errUnknownNamespace = errors.New("the namespace of the controller is unknown, so its short host names are too")

// parseServiceHost returns the Service that a host names for a process in a namespace; ok is false if it names another host.
func parseServiceHost(host, namespace string) (service serviceHost, ok bool, err error) {
	if _, isAddress := netip.ParseAddr(host); isAddress == nil || host == "localhost" {
		return serviceHost{}, false, nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	switch {
	case len(labels) == 1 && len(validation.IsDNS1123Label(labels[0])) > 0:
		return serviceHost{}, false, nil
	case len(labels) == 1 && namespace == "":
		return serviceHost{}, false, fmt.Errorf("%w: %s", errUnknownNamespace, host)
	case len(labels) == 1:
		return serviceHost{namespace, labels[0]}, true, nil
	case (len(labels) == 2 || labels[2] == "svc") && len(validation.IsDNS1123Label(labels[0])) == 0 && len(validation.IsDNS1123Label(labels[1])) == 0:
		return serviceHost{labels[1], labels[0]}, true, nil
	default:
		return serviceHost{}, false, nil
	}
}

// serviceTransport sends requests to Services of the cluster through the API server, with the permissions of the user, and refuses
// all others: a request to an address that a tenant wrote must not leave the machine of the user. It is for one query.
type serviceTransport struct {
	api *APIServer
	// namespace of the process that resolves short host names; empty: unknown.
	namespace string
	// instead is the address of a server that answers all requests, which direct sends to it; nil: none does.
	instead *url.URL
	direct  http.RoundTripper
	// service is the Service that received the last request; empty: none did.
	service string
	// notSent is the reason why a request was not sent, for users; empty: all were.
	notSent string
}

// maxStatus limits the part of a response that is read to find the error of the API server.
const maxStatus = 64 << 10

// RoundTrip implements http.RoundTripper.
func (t *serviceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.instead != nil {
		to := withPath(t.instead, r.URL.Path)
		to.RawQuery = r.URL.RawQuery
		return t.direct.RoundTrip(requestTo(r, to))
	}
	service, ok, err := parseServiceHost(r.URL.Hostname(), t.namespace)
	switch {
	case err != nil:
		return nil, t.refuse(err.Error())
	case !ok:
		return nil, t.refuse(r.URL.Host + " is not a Service of the cluster; only the controller queries it")
	case t.api == nil || r.Method != http.MethodGet:
		return nil, t.refuse("only the controller sends requests such as this one")
	}
	port := r.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	}
	proxy := withPath(t.api.URL, "api/v1/namespaces", service.namespace, "services", r.URL.Scheme+":"+service.name+":"+port, "proxy")
	t.service = service.String()
	to := withPath(proxy, r.URL.Path) // cleaned alone: a tenant must not reach other paths of the API server
	to.RawQuery = r.URL.RawQuery
	response, err := t.api.Transport.RoundTrip(requestTo(r, to))
	if err != nil || response.StatusCode < http.StatusBadRequest {
		return response, err
	}
	return t.explainStatus(response, service)
}

// refuse records why a request is not sent.
func (t *serviceTransport) refuse(reason string) error {
	t.notSent = reason
	return errors.New(reason)
}

// explainStatus distinguishes an error of the API server, which did not reach the Service, from a response of the Service.
func (t *serviceTransport) explainStatus(response *http.Response, service serviceHost) (*http.Response, error) {
	head, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	var status metav1.Status
	err = json.Unmarshal(head, &status)
	if isStatus := err == nil && status.Kind == "Status" && status.APIVersion == "v1"; !isStatus {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), response.Body), response.Body}
		return response, nil
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	switch status.Reason {
	case metav1.StatusReasonForbidden:
		return nil, t.refuse("no permission to get services/proxy" + inNamespace(service.namespace))
	case metav1.StatusReasonNotFound:
		return nil, fmt.Errorf("Service %s does not exist", service) //nolint:staticcheck // a kind begins with a capital
	default:
		return nil, fmt.Errorf("Service %s: %s", service, status.Message) //nolint:staticcheck // a kind begins with a capital
	}
}

// withPath returns an address with a path below its own, which an element cannot leave. Elements are not escaped.
func withPath(address *url.URL, elements ...string) *url.URL {
	out := *address
	out.Path, out.RawPath, out.RawQuery = strings.TrimSuffix(address.Path, "/")+path.Clean("/"+strings.Join(elements, "/")), "", ""
	return &out
}

// requestTo returns a request for another address. Of the headers, which a tenant may have written, it retains none that the API
// server could take for credentials or for an impersonation.
func requestTo(r *http.Request, to *url.URL) *http.Request {
	out := r.Clone(r.Context())
	out.URL, out.Host, out.Header = to, "", http.Header{}
	if accept := r.Header.Get("Accept"); accept != "" {
		out.Header.Set("Accept", accept)
	}
	return out
}
