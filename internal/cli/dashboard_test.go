package cli

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/dashboard"
)

// writeCertificate writes a certificate with a serial number, and its key.
func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: certificate}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDashboardUsesARenewedCertificate(t *testing.T) {
	folder := t.TempDir()
	flags := dashboardFlags{listen: "127.0.0.1:0", auth: authToken, tlsCert: filepath.Join(folder, "tls.crt"), tlsKey: filepath.Join(folder, "tls.key")}
	writeCertificate(t, flags.tlsCert, flags.tlsKey, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, printed := io.Pipe()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(printed)
	ended := make(chan error, 1)
	go func() {
		err := flags.serve(cmd, dashboard.Options{Clock: clock.RealClock{}, Connect: func(string) (*cluster.Session, error) { return nil, cluster.ErrUnreachable }})
		_ = printed.CloseWithError(err)
		ended <- err
	}()
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // it is self-signed
		connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimSpace(strings.TrimPrefix(link, "https://")))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("the certificate has serial number %d, want 1", got)
	}
	writeCertificate(t, flags.tlsCert, flags.tlsKey, 2)
	if got := serial(); got != 2 {
		t.Errorf("after a renewal, the certificate has serial number %d, want 2", got)
	}
	writeCertificate(t, flags.tlsCert, filepath.Join(folder, "other.key"), 3) // the key is not written yet
	if got := serial(); got != 2 {
		t.Errorf("during a renewal, the certificate has serial number %d, want 2", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve returns %v", err)
	}
}
