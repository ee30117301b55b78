package prometheus

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/metric"
)

// data is the result of a query: a sample, or a list of elements.
type data struct {
	Type   string          `json:"resultType"`
	Result json.RawMessage `json:"result"`

	warnings []string
}

// element is one series of a vector, or, with Values, of a range.
type element struct {
	Value  json.RawMessage   `json:"value"`
	Values []json.RawMessage `json:"values"`
}

var errMultiple = errors.New("query returned multiple values: write a query for an instant, not for a range")

// decode decodes a response. A vector has elements, a scalar has none.
func decode(body []byte) (data, []element, error) {
	var answer struct {
		Status   string   `json:"status"`
		Data     data     `json:"data"`
		Warnings []string `json:"warnings"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Status != "success" {
		return data{}, nil, metric.Unexpected("Prometheus")
	}
	answer.Data.warnings = answer.Warnings
	if answer.Data.Type == "scalar" {
		return answer.Data, nil, nil
	}
	var elements []element
	if json.Unmarshal(answer.Data.Result, &elements) != nil {
		return data{}, nil, metric.Unexpected("Prometheus")
	}
	return answer.Data, elements, nil
}

// parse returns the single value of a response.
func parse(body []byte) (float64, error) {
	d, elements, err := decode(body)
	switch {
	case err != nil:
		return 0, err
	case d.Type == "scalar":
		return sampleNumber(d.Result)
	case d.Type == "matrix" || slices.ContainsFunc(elements, func(e element) bool { return e.Values != nil }):
		return 0, errMultiple
	case len(elements) == 0:
		return 0, metric.ErrNoData
	default:
		return sampleNumber(elements[len(elements)-1].Value)
	}
}

func sampleNumber(sample json.RawMessage) (float64, error) {
	v, err := sampleValue(sample)
	if err != nil {
		return 0, err
	}
	return metric.Number(v)
}

// parseAll returns all values of a response.
func parseAll(body []byte) (metric.Result, error) {
	d, elements, err := decode(body)
	if err != nil {
		return metric.Result{}, err
	}
	metadata := warningsMetadata(d.warnings)
	if d.Type == "scalar" {
		v, err := sampleValue(d.Result)
		return metric.Result{Value: v, Metadata: metadata}, err
	}
	var list []float64
	for _, e := range elements {
		samples := e.Values
		if e.Value != nil {
			samples = append(samples, e.Value)
		}
		if len(samples) == 0 {
			return metric.Result{}, metric.Unexpected("Prometheus")
		}
		for _, sample := range samples {
			v, err := sampleValue(sample)
			if err != nil {
				return metric.Result{}, err
			}
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return metric.Result{Metadata: metadata}, metric.ErrNoData
	}
	return metric.Result{Value: list, Metadata: metadata}, nil
}

// warningsMetadata returns metadata with the quoted warnings of a response; nil if there are none.
func warningsMetadata(warnings []string) map[string]string {
	if len(warnings) == 0 {
		return nil
	}
	quoted := make([]string, len(warnings))
	for i, text := range warnings {
		quoted[i] = `"` + text + `"`
	}
	return map[string]string{"warnings": strings.Join(quoted, ", ")}
}

// sampleValue decodes a sample: a pair of a time and a number, which is a string.
func sampleValue(sample json.RawMessage) (float64, error) {
	var pair []json.RawMessage
	var text string
	if json.Unmarshal(sample, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &text) != nil {
		return 0, metric.Unexpected("Prometheus")
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, metric.Unexpected("Prometheus")
	}
	return v, nil
}
