package service

import (
	"cmp"
	"context"
	"net/http"

	"github.com/serin-dev/serin/internal/chat"
)

type webhookOptions struct {
	URL                string
	Headers            []struct{ Name, Value string }
	BasicAuth          *basicAuth // optional
	InsecureSkipVerify bool
}

// newWebhook sends a request to any address. Method, path and body are in the part of the template under the name of the
// service; without it, the request is a GET with the message as body.
func newWebhook(c caller, o webhookOptions) (sendFunc, error) {
	if err := requireOption("url", o.URL); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		var all map[string]struct{ Method, Path, Body string }
		if err := m.Content.Part("webhook", &all); err != nil {
			return err
		}
		request := chat.Request{Method: http.MethodGet, URL: o.URL, Body: []byte(m.Content.Message), Header: http.Header{}, SkipVerify: o.InsecureSkipVerify}
		if own, ok := all[m.Service]; ok {
			request.Method, request.Body = cmp.Or(own.Method, request.Method), []byte(own.Body)
			if own.Path != "" {
				request.URL = urlBelow(o.URL, own.Path)
			}
		}
		for _, h := range o.Headers {
			request.Header.Set(h.Name, h.Value)
		}
		if o.BasicAuth != nil {
			request.Header.Set("Authorization", o.BasicAuth.header())
		}
		_, err := c.sendRequest(ctx, request)
		return err
	}, nil
}
