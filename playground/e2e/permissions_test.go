//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// controllerKubeconfig has exactly the documented permissions of Serin, so that a missing permission fails a test and not an
// installation.
var controllerKubeconfig string

// documentedRoles are the ClusterRoles of the documentation.
var documentedRoles = []string{"serin", "serin-canaries", "serin-config-tracking", "serin-rollouts"}

// grantDocumentedPermissions applies the documented permissions and writes controllerKubeconfig.
func grantDocumentedPermissions(ctx context.Context) error {
	permissions, err := os.ReadFile(filepath.Join(repository, "docs", "examples", "permissions.yaml"))
	if err != nil {
		return fmt.Errorf("read the documented permissions: %w", err)
	}
	if err := shared.Apply(ctx, string(permissions)); err != nil {
		return err
	}
	token, err := shared.Client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "serin", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(7200))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a token with the documented permissions: %w", err)
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

// kubeconfigWithToken returns a kubeconfig with the credentials of another user.
func kubeconfigWithToken(t *testing.T, token string) *clientcmdapi.Config {
	t.Helper()
	config, err := clientcmd.LoadFromFile(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token, user.TokenFile, user.ClientCertificate, user.ClientKey = token, "", "", ""
		user.ClientCertificateData, user.ClientKeyData = nil, nil
	}
	return config
}

// readerRBAC grants permissions to read everything and to write nothing.
const readerRBAC = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader-NAMESPACE}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader-NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader-NAMESPACE}
subjects: [{kind: ServiceAccount, name: reader, namespace: NAMESPACE}]
`

// readerKubeconfig returns a kubeconfig with permissions to read everything and to write nothing.
func readerKubeconfig(t *testing.T, namespace string) string {
	t.Helper()
	if err := shared.Apply(t.Context(), strings.ReplaceAll(readerRBAC, "NAMESPACE", namespace)); err != nil {
		t.Fatal(err)
	}
	token, err := shared.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfigWithToken(t, token.Status.Token), file); err != nil {
		t.Fatal(err)
	}
	return file
}
