package service

import "testing"

// SetPortTLS sets the port of mail servers with implicit TLS during a test.
func SetPortTLS(t *testing.T, port int) {
	t.Helper()
	before := portTLS
	portTLS = port
	t.Cleanup(func() { portTLS = before })
}
