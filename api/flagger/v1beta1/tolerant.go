package v1beta1

import "github.com/serin-dev/serin/api/internal/tolerant"

// UnmarshalJSON decodes a Canary like any other type, but accepts everything that Flagger's schema accepts; see
// tolerant.Nearest.
func (c *Canary) UnmarshalJSON(data []byte) error {
	type plain Canary // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(c), tolerant.Nearest)
	return err
}

// UnmarshalJSON decodes a MetricTemplate; see tolerant.Nearest.
func (t *MetricTemplate) UnmarshalJSON(data []byte) error {
	type plain MetricTemplate // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(t), tolerant.Nearest)
	return err
}

// UnmarshalJSON decodes an AlertProvider; see tolerant.Nearest.
func (p *AlertProvider) UnmarshalJSON(data []byte) error {
	type plain AlertProvider // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(p), tolerant.Nearest)
	return err
}
