//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// controllerKubeconfig has the rights that the documentation gives to Serin, and no more: what they do not allow fails
// here, before it fails at somebody's.
var controllerKubeconfig string

// grant applies the documented rights and writes a kubeconfig that has them.
func grant(ctx context.Context) error {
	rights, err := os.ReadFile(filepath.Join(repository, "docs", "examples", "rights.yaml"))
	if err != nil {
		return fmt.Errorf("read the documented rights: %w", err)
	}
	if err := shared.Apply(ctx, string(rights)); err != nil {
		return err
	}
	token, err := shared.Client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "serin", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(7200))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a token with the documented rights: %w", err)
	}
	controllerKubeconfig = filepath.Join(shared.Folder, "kubeconfig-serin")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"here": {
			Server: shared.Config.Host, CertificateAuthority: shared.Config.CAFile, CertificateAuthorityData: shared.Config.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"serin": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"here": {Cluster: "here", AuthInfo: "serin"}},
		CurrentContext: "here",
	}
	return clientcmd.WriteToFile(config, controllerKubeconfig)
}
