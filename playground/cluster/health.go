//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// checkReachable returns nil when a TCP address accepts connections.
func checkReachable(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// checkHTTP returns nil when a GET request is answered with 200.
func checkHTTP(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", request.URL.Path, response.Status)
	}
	return nil
}
