package v1beta1

import "github.com/serin-dev/serin/api/internal/tolerant"

// UnmarshalJSON reads a Canary as any other type is read, but takes everything that the schema of Flagger lets through; see
// tolerant.Nearest.
func (c *Canary) UnmarshalJSON(data []byte) error {
	type plain Canary // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(c), tolerant.Nearest)
	return err
}

// UnmarshalJSON reads a MetricTemplate; see tolerant.Nearest.
func (t *MetricTemplate) UnmarshalJSON(data []byte) error {
	type plain MetricTemplate // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(t), tolerant.Nearest)
	return err
}

// UnmarshalJSON reads an AlertProvider; see tolerant.Nearest.
func (p *AlertProvider) UnmarshalJSON(data []byte) error {
	type plain AlertProvider // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(p), tolerant.Nearest)
	return err
}
