package cloudwatch

import (
	"encoding/json"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/metric"
)

// maxAnalysisPoints bounds the response of a query of an analysis, of which all points are used.
const maxAnalysisPoints = 1000

// newMeasurement queries with the credentials of the process, in its region, for exactly the interval of the metric.
func newMeasurement(r metric.AnalysisRequest, ambient *Ambient) (metric.Measurement, error) {
	p := r.Metric.Provider.CloudWatch
	interval, err := metric.DurationOr(p.Interval, metric.DefaultAnalysisInterval)
	if err != nil {
		return metric.Measurement{}, err
	}
	queries := make([]dataQuery, len(p.MetricDataQueries))
	for i, q := range p.MetricDataQueries {
		queries[i] = newDataQuery(q)
	}
	text, err := json.Marshal(queries)
	if err != nil {
		return metric.Measurement{}, err
	}
	region, err := ambient.Region()
	if err != nil {
		return metric.Measurement{}, err
	}
	querier, err := newAWS(r.Restricted, metric.Config{Region: region}, ambient)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier.lookback, querier.maxPoints = 1, maxAnalysisPoints
	return metric.Measurement{
		Provider: querier, Query: metric.Query{Text: string(text), Interval: interval, Now: r.Now}, NoData: []any{}, Format: formatResults,
	}, nil
}

// dataQuery is one query in the form of the API.
type dataQuery struct {
	ID         string      `json:"Id"`
	Expression *string     `json:"Expression,omitempty"`
	Label      *string     `json:"Label,omitempty"`
	MetricStat *metricStat `json:"MetricStat,omitempty"`
	Period     *int        `json:"Period,omitempty"`
	ReturnData *bool       `json:"ReturnData,omitempty"`
}

// metricStat is a statistic of a metric.
type metricStat struct {
	Metric struct {
		Namespace  *string     `json:"Namespace,omitempty"`
		MetricName string      `json:"MetricName"`
		Dimensions []dimension `json:"Dimensions,omitempty"`
	} `json:"Metric"`
	Period int    `json:"Period"`
	Stat   string `json:"Stat"`
	Unit   string `json:"Unit,omitempty"`
}

// dimension distinguishes metrics of one name.
type dimension struct {
	Name  string `json:"Name"`
	Value string `json:"Value"`
}

func newDataQuery(q argov1.CloudWatchMetricDataQuery) dataQuery {
	out := dataQuery{ID: q.Id, Expression: q.Expression, Label: q.Label, ReturnData: q.ReturnData}
	if q.Period != nil {
		out.Period = new(q.Period.IntValue())
	}
	if stat := q.MetricStat; stat != nil {
		out.MetricStat = &metricStat{Period: stat.Period.IntValue(), Stat: stat.Stat, Unit: stat.Unit}
		out.MetricStat.Metric.MetricName, out.MetricStat.Metric.Namespace = stat.Metric.MetricName, stat.Metric.Namespace
		for _, d := range stat.Metric.Dimensions {
			out.MetricStat.Metric.Dimensions = append(out.MetricStat.Metric.Dimensions, dimension{Name: d.Name, Value: d.Value})
		}
	}
	return out
}

// formatResults renders the numbers of all results.
func formatResults(value any) string {
	results, _ := value.([]any)
	rows := make([]string, 0, len(results))
	for _, result := range results {
		fields, _ := result.(map[string]any)
		values, _ := fields["Values"].([]float64)
		rows = append(rows, metric.FormatList(values, -1))
	}
	return "[" + strings.Join(rows, ",") + "]"
}
