package service

import (
	"cmp"
	"context"
	"net/http"
)

type webhookOptions struct {
	URL     string
	Headers []struct{ Name, Value string }
	// BasicAuth, where it is set.
	BasicAuth          *basicAuth
	InsecureSkipVerify bool
}

// newWebhook calls any address. Method, path and body are those of the template, by the name of the service; without one
// it is a GET with the message.
func newWebhook(c caller, o webhookOptions) (send, error) {
	if err := required("url", o.URL); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		var all map[string]struct{ Method, Path, Body string }
		if err := m.Content.Part("webhook", &all); err != nil {
			return err
		}
		to := call{method: http.MethodGet, url: o.URL, body: []byte(m.Content.Message), header: http.Header{}, insecure: o.InsecureSkipVerify}
		if own, ok := all[m.Service]; ok {
			to.method, to.body = cmp.Or(own.Method, to.method), []byte(own.Body)
			if own.Path != "" {
				to.url = under(o.URL, own.Path)
			}
		}
		for _, h := range o.Headers {
			to.header.Set(h.Name, h.Value)
		}
		if o.BasicAuth != nil {
			to.header.Set("Authorization", o.BasicAuth.header())
		}
		_, err := c.do(ctx, to)
		return err
	}, nil
}
