// Package cloudwatch queries Amazon CloudWatch for metric data.
//
// It knows that API and how a process in the cloud obtains its credentials. It must not know where queries come from, or any
// other provider.
package cloudwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "cloudwatch"

const (
	keyID      = "aws_access_key_id"
	keySecret  = "aws_secret_access_key"
	keySession = "aws_session_token"
)

// Service serves both APIs. MetricTemplates name the region. Without a Secret they use the credentials that the process has
// in the cloud; with one, its aws_access_key_id, aws_secret_access_key and, optionally, aws_session_token. Only these are
// sent to an address that the template names. Analyses use the credentials and the region of the process.
func Service(ambient *Ambient) metric.Service {
	return metric.Service{
		TemplateType: Type,
		NewProvider: func(client *outbound.Client, c metric.Config) (metric.Provider, error) {
			return newAWS(client, c, ambient)
		},
		AnalysisType: "CloudWatch",
		NewMeasurement: func(_ context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
			return newMeasurement(r, ambient)
		},
	}
}

type provider struct {
	api *cloudwatch.Client
	// lookback is the number of intervals in the time range, and most the maximum number of points of each result.
	lookback  int
	maxPoints int32
}

// regionPattern are names such as eu-west-1, which become part of a host name.
var regionPattern = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}$`)

func newAWS(client *outbound.Client, c metric.Config, ambient *Ambient) (*provider, error) {
	if !regionPattern.MatchString(c.Region) {
		return nil, errors.New("provider.region is not the name of a region such as eu-west-1: set it")
	}
	options := cloudwatch.Options{
		Region:      c.Region,
		Credentials: ambient.credentialsIn(c.Region),
		HTTPClient:  metric.LibraryClient(client, metric.MaxAnswer, metric.DefaultTimeout),
		Retryer:     aws.NopRetryer{}, // the caller decides about retries
	}
	if c.Credentials != nil {
		id, secret := c.Credentials[keyID], c.Credentials[keySecret]
		if id == "" || secret == "" {
			return nil, metric.Missing(Type, keyID, keySecret)
		}
		options.Credentials = credentials.NewStaticCredentialsProvider(id.Reveal(), secret.Reveal(), c.Credentials[keySession].Reveal())
	}
	if c.Address == "" {
		return &provider{api: cloudwatch.New(options), lookback: lookback, maxPoints: maxPoints}, nil
	}
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	if c.Credentials == nil {
		return nil, errors.New("an address needs credentials of its own: the controller's go to Amazon only. Give a secret, or remove the address")
	}
	options.BaseEndpoint = new((&url.URL{Scheme: address.Scheme, Host: address.Host, Path: address.Path}).String())
	return &provider{api: cloudwatch.New(options), lookback: lookback, maxPoints: maxPoints}, nil
}

// lookback is the number of intervals in the time range, because metrics of the cloud arrive late and have their own periods.
const lookback = 10

// unknownPeriod is assumed for a query whose period is part of an expression: the longest one of the metrics of Amazon's services
// that are published within PublishDelay.
const unknownPeriod = 5 * time.Minute

// maxPoints bounds the response, of which the newest point is used.
const maxPoints = 20

// Measure returns the newest value of the first result, unless it is too old.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	queries, err := parseQueries(q.Text)
	if err != nil {
		return 0, err
	}
	results, err := p.query(ctx, queries, q)
	if err != nil {
		return 0, err
	}
	if len(results) == 0 || len(results[0].Values) == 0 {
		return 0, metric.ErrNoData
	}
	newest := results[0]
	if len(newest.Timestamps) != len(newest.Values) {
		return 0, metric.Unexpected("CloudWatch")
	}
	period := longestPeriod(queries)
	if !q.IsCurrent(newest.Timestamps[0].Add(period), period) {
		return 0, metric.ErrNoData
	}
	return metric.Number(newest.Values[0])
}

// longestPeriod returns the period of an expression over all queries. A timestamp is the start of a period.
func longestPeriod(queries []types.MetricDataQuery) time.Duration {
	var seconds int32
	for _, q := range queries {
		seconds = max(seconds, aws.ToInt32(q.Period))
		if q.MetricStat != nil {
			seconds = max(seconds, aws.ToInt32(q.MetricStat.Period))
		}
	}
	if seconds == 0 {
		return unknownPeriod
	}
	return time.Duration(seconds) * time.Second
}

// QueryRaw returns the list of all results, as documents with the names of the API.
func (p *provider) QueryRaw(ctx context.Context, q metric.Query) (metric.Result, error) {
	queries, err := parseQueries(q.Text)
	if err != nil {
		return metric.Result{}, err
	}
	results, err := p.query(ctx, queries, q)
	if err != nil {
		return metric.Result{}, err
	}
	list := make([]any, len(results))
	for i, r := range results {
		list[i] = map[string]any{
			"Id": aws.ToString(r.Id), "Label": aws.ToString(r.Label), "StatusCode": string(r.StatusCode),
			"Timestamps": r.Timestamps, "Values": r.Values,
		}
	}
	return metric.Result{Value: list}, nil
}

// Online sends an empty query, which the service rejects in a specific way once it has accepted the credentials.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.getMetricData(ctx, []types.MetricDataQuery{}, time.Unix(0, 0), time.Unix(60, 0))
	if status, ok := errors.AsType[*metric.StatusError](err); ok && slices.Contains(requestErrorCodes, status.Class) {
		return nil
	}
	return err
}

func parseQueries(text string) ([]types.MetricDataQuery, error) {
	var queries []types.MetricDataQuery
	if json.Unmarshal([]byte(text), &queries) != nil || len(queries) == 0 {
		return nil, errors.New("the query is not a list of metric data queries in JSON: correct it")
	}
	return queries, nil
}

func (p *provider) query(ctx context.Context, queries []types.MetricDataQuery, q metric.Query) ([]types.MetricDataResult, error) {
	return p.getMetricData(ctx, queries, q.Now.Add(-time.Duration(p.lookback)*q.Interval), q.Now)
}

func (p *provider) getMetricData(ctx context.Context, queries []types.MetricDataQuery, from, to time.Time) ([]types.MetricDataResult, error) {
	answer, err := p.api.GetMetricData(ctx, &cloudwatch.GetMetricDataInput{
		MetricDataQueries: queries, StartTime: &from, EndTime: &to, MaxDatapoints: aws.Int32(p.maxPoints),
		ScanBy: types.ScanByTimestampDescending,
	})
	if err != nil {
		return nil, convertError(err)
	}
	if len(answer.MetricDataResults) == 0 {
		return nil, nil
	}
	switch answer.MetricDataResults[0].StatusCode {
	case types.StatusCodeInternalError:
		return nil, metric.NewStatusError(outbound.Response{Code: 500}, "InternalError", true)
	case types.StatusCodeForbidden:
		return nil, metric.NewStatusError(outbound.Response{Code: 403}, "Forbidden", false)
	default: // Complete, and PartialData, which contains the newest point
		return answer.MetricDataResults, nil
	}
}

var (
	// requestErrorCodes are the error codes of the API for invalid requests.
	requestErrorCodes = []string{"ValidationError", "ValidationException", "MissingParameter", "MissingRequiredParameterException", "InvalidParameterValue", "InvalidParameterValueException", "InvalidParameterCombination", "InvalidParameterCombinationException"}
	// transientErrorCodes are the error codes for transient errors.
	transientErrorCodes = []string{"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "InternalServiceFault", "InternalServiceError", "InternalFailure"}
	// credentialErrorCodes are the error codes for invalid or insufficient credentials.
	credentialErrorCodes = []string{"AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId", "MissingAuthenticationToken", "OptInRequired", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException"}
)

// convertError converts an error of the library to one of package metric. The library's text contains the response, and may
// contain the request.
func convertError(err error) error {
	if _, ok := errors.AsType[*ambientError](err); ok {
		return outbound.NewUnreachableError(errNoCredentials)
	}
	if stopped := metric.CallError(err); stopped != nil {
		return fmt.Errorf("query CloudWatch: %w", stopped)
	}
	answer, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok || answer.HTTPStatusCode() < 300 {
		return metric.Unexpected("CloudWatch")
	}
	class := ""
	if apiErr, ok := errors.AsType[smithy.APIError](err); ok && slices.Contains(slices.Concat(requestErrorCodes, transientErrorCodes, credentialErrorCodes), apiErr.ErrorCode()) {
		class = apiErr.ErrorCode()
	}
	return metric.NewStatusError(outbound.Response{Code: answer.HTTPStatusCode()}, class, slices.Contains(transientErrorCodes, class))
}
