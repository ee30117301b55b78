// Package stackdriver queries Google Cloud Monitoring, in its query language MQL.
//
// It knows that API and its credentials. It must not know where queries come from, or any other provider.
package stackdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/googlecloud"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "stackdriver"

const (
	publicAddress = "https://monitoring.googleapis.com"
	scope         = "https://www.googleapis.com/auth/monitoring.read"
	keyProject    = "project"
	keyAccount    = "serviceAccountKey"
)

// Service serves both APIs. The credentials are project and, optionally, serviceAccountKey, the JSON key of a service
// account. Without the key, or without a Secret, the credentials of the process are used. Only a key of the Secret may be
// sent to an address that the template, or the Secret of analyses, names.
func Service() metric.Service {
	ambient := googlecloud.NewDefaultCredentials(scope)
	return metric.Service{
		TemplateType: Type, NewProvider: func(client *outbound.Client, c metric.Config) (metric.Provider, error) {
			return newProvider(client, c, ambient)
		},
		AnalysisType: "Stackdriver", NewMeasurement: func(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
			return newMeasurement(ctx, r, ambient)
		},
	}
}

func newMeasurement(ctx context.Context, r metric.AnalysisRequest, ambient *googlecloud.DefaultCredentials) (metric.Measurement, error) {
	p := r.Metric.Provider.Stackdriver
	credentials, err := r.ReadSecret(ctx, Type, p.SecretRef)
	if err != nil {
		return metric.Measurement{}, err
	}
	if len(credentials) == 0 && p.SecretRef.Name == "" {
		credentials = nil // the default Secret is optional
	}
	r.Hide(credentials[keyAccount])
	querier, err := newProvider(r.Restricted, metric.Config{Address: credentials[metric.KeyAddress].Reveal(), Credentials: credentials}, ambient)
	if err != nil {
		return metric.Measurement{}, err
	}
	return metric.Measurement{Provider: metric.AsRaw(querier), Query: metric.Query{Text: p.Query, Now: r.Now}}, nil
}

type provider struct {
	client  *outbound.Client
	address *url.URL
	// project is empty if it is that of the process.
	project string
	// key is nil if the credentials of the process are used.
	key     *googlecloud.ServiceAccount
	ambient *googlecloud.DefaultCredentials
}

// projectPattern matches the names and numbers of projects, which may begin with a domain.
var projectPattern = regexp.MustCompile(`^([a-z][a-z0-9.-]*:)?[a-z0-9][a-z0-9-]*$`)

func newProvider(client *outbound.Client, c metric.Config, ambient *googlecloud.DefaultCredentials) (metric.Provider, error) {
	p := &provider{client: client, ambient: ambient}
	if c.Credentials != nil {
		p.project = c.Credentials[keyProject].Reveal()
		if p.project == "" {
			return nil, metric.Missing(Type, keyProject)
		}
		if !projectPattern.MatchString(p.project) {
			return nil, errors.New("project is not the name of a project: correct it in the secret")
		}
	}
	if key := c.Credentials[keyAccount]; key != "" {
		account, err := googlecloud.NewServiceAccount([]byte(key.Reveal()), scope)
		if err != nil {
			return nil, fmt.Errorf("serviceAccountKey is %w: correct it in the secret", err)
		}
		p.key = account
	}
	if c.Address != "" && p.key == nil {
		return nil, errors.New("an address needs its own credentials, because the controller's are sent to Google only: add serviceAccountKey, or remove the address")
	}
	if c.Address == "" {
		c.Address = publicAddress
	}
	var err error
	p.address, err = outbound.ParseURL(c.Address)
	return p, err
}

// Measure returns the first value of the newest point of the first time series.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	query := strings.TrimSpace(q.Text)
	if query == "" {
		return 0, errors.New("the query is empty: write one in MQL")
	}
	body, err := p.query(ctx, query)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// Online sends an empty query, which the service rejects in a specific way once it has accepted the credentials.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.query(ctx, "")
	if status, ok := errors.AsType[*metric.StatusError](err); ok && status.Class == "INVALID_ARGUMENT" {
		return nil
	}
	return err
}

func (p *provider) query(ctx context.Context, query string) ([]byte, error) {
	token, project, err := p.credentials(ctx)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"query": query, "pageSize": 1})
	if err != nil {
		return nil, err
	}
	return metric.Fetch(ctx, p.client, outbound.Request{
		Method: http.MethodPost, URL: p.address.JoinPath("v3/projects", project, "timeSeries:query").String(), Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token.Reveal()}},
	}, classify)
}

func (p *provider) credentials(ctx context.Context) (token outbound.Secret, project string, err error) {
	if p.key == nil {
		if p.project != "" {
			token, err = p.ambient.Token(ctx)
			return token, p.project, err
		}
		token, project, err = p.ambient.TokenAndProject(ctx)
		if err != nil {
			return "", "", err
		}
		if project == "" {
			return "", "", errors.New("the project is not known: add a secret with the key project")
		}
		return token, project, nil
	}
	if token, err = p.key.Token(); err != nil {
		return "", "", fmt.Errorf("serviceAccountKey: %w: correct it in the secret", err)
	}
	return token, p.project, nil
}

// errorCodes are the error codes of the API. The messages are not repeated.
var errorCodes = []string{"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE"}

func classify(body []byte) string {
	var answer struct {
		Error struct {
			Status string `json:"status"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || !slices.Contains(errorCodes, answer.Error.Status) {
		return ""
	}
	return answer.Error.Status
}

var errPartial = errors.New("the query could not be completed: correct it")

func parse(body []byte) (float64, error) {
	var answer *struct {
		Data []struct {
			Points []struct {
				Values []typedValue `json:"values"`
			} `json:"pointData"`
		} `json:"timeSeriesData"`
		PartialErrors []json.RawMessage `json:"partialErrors"`
	}
	if json.Unmarshal(body, &answer) != nil || answer == nil {
		return 0, metric.Unexpected("Cloud Monitoring")
	}
	switch {
	case len(answer.Data) == 0 && len(answer.PartialErrors) > 0:
		return 0, errPartial
	case len(answer.Data) == 0 || len(answer.Data[0].Points) == 0 || len(answer.Data[0].Points[0].Values) == 0:
		return 0, metric.ErrNoData
	default:
		return answer.Data[0].Points[0].Values[0].number()
	}
}

// typedValue is a value of one of several types.
type typedValue struct {
	Double json.RawMessage `json:"doubleValue"`
	Int    json.RawMessage `json:"int64Value"`
	Bool   *bool           `json:"boolValue"`
}

// number decodes numbers that may be strings: integers always are, and fractions if they are NaN or infinite.
func (v typedValue) number() (float64, error) {
	switch {
	case v.Bool != nil && *v.Bool:
		return 1, nil
	case v.Bool != nil:
		return 0, nil
	case v.Double == nil && v.Int == nil:
		return 0, errors.New("the first column is not a number: make it one in the query, for example with the table operation val()")
	}
	text := string(v.Double)
	if v.Double == nil {
		text = string(v.Int)
	}
	value, err := strconv.ParseFloat(strings.Trim(text, `"`), 64)
	if err != nil {
		return 0, metric.Unexpected("Cloud Monitoring")
	}
	return metric.Number(value)
}
