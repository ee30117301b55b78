//go:build linux

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/playground/network"
)

// credentials are created for each cluster.
type credentials struct {
	folder      string
	token       string // of the administrator
	authority   []byte // PEM
	certificate tls.Certificate
}

func (c *credentials) filePath(name string) string { return filepath.Join(c.folder, name) }

// certificateValidity is longer than any playground runs.
const certificateValidity = 30 * 24 * time.Hour

// newCredentials writes ca.crt, server.crt, server.key, service-accounts.key and tokens.csv.
func newCredentials(folder string, now time.Time) (*credentials, error) {
	c := &credentials{folder: folder, token: rand.Text()}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate keys: %w", err)
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(certificateValidity), BasicConstraintsValid: true,
		}
	}
	authority := template(1, "playground")
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("create certificates: %w", err)
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate keys: %w", err)
	}
	server := template(2, "kube-apiserver")
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes.default.svc", "kubernetes.default.svc." + network.ClusterDomain}
	server.IPAddresses = []net.IP{
		net.IPv4(127, 0, 0, 1), network.NodeAddress.AsSlice(), network.ServiceRange.Addr().Next().AsSlice(),
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, serverKey.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("create certificates: %w", err)
	}
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate keys: %w", err)
	}

	c.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER})
	serverCertificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serverDER})
	serverPrivate, err := encodeKey(serverKey)
	if err != nil {
		return nil, err
	}
	accountPrivate, err := encodeKey(accountKey)
	if err != nil {
		return nil, err
	}
	if c.certificate, err = tls.X509KeyPair(serverCertificate, serverPrivate); err != nil {
		return nil, fmt.Errorf("create certificates: %w", err)
	}
	for name, text := range map[string][]byte{
		"ca.crt": c.authority, "server.crt": serverCertificate, "server.key": serverPrivate, "service-accounts.key": accountPrivate,
		"tokens.csv": []byte(c.token + `,admin,admin,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(c.filePath(name), text, 0o600); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return c, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writeKubeconfig writes a kubeconfig with the administrator's credentials for the API server at url.
func (c *credentials) writeKubeconfig(path, url string) error {
	const name = "playground"
	config := clientcmd.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: name,
		Clusters:  []clientcmd.NamedCluster{{Name: name, Cluster: clientcmd.Cluster{Server: url, CertificateAuthorityData: c.authority}}},
		AuthInfos: []clientcmd.NamedAuthInfo{{Name: name, AuthInfo: clientcmd.AuthInfo{Token: c.token}}},
		Contexts:  []clientcmd.NamedContext{{Name: name, Context: clientcmd.Context{Cluster: name, AuthInfo: name, Namespace: "default"}}},
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
