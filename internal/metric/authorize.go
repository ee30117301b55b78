package metric

import (
	"net/http"
	"strings"

	"github.com/serin-dev/serin/internal/outbound"
)

// The keys of the credentials that Authorize reads.
const (
	keyToken        = "token"
	keyUsername     = "username"
	keyPassword     = "password"
	KeyTokenURL     = "oauth2_token_url"
	KeyClientID     = "oauth2_client_id"
	KeyClientSecret = "oauth2_client_secret"
	KeyScopes       = "oauth2_scopes"
)

// Authorize adds the credentials of a MetricTemplate to a header, for services without an authentication of their own: a
// token, or username and password. For the keys oauth2_…, it returns a grant, whose token the provider adds to each request.
func Authorize(service string, header http.Header, credentials map[string]outbound.Secret) (*Grant, error) {
	if token := credentials[keyToken]; token != "" {
		header.Set("Authorization", "Bearer "+token.Reveal())
		return nil, nil
	}
	if credentials[KeyTokenURL] != "" {
		return newGrant(service, credentials)
	}
	username, password := credentials[keyUsername], credentials[keyPassword]
	if username == "" || password == "" {
		return nil, Missing(service, "a token, or username", keyPassword)
	}
	request := http.Request{Header: header}
	request.SetBasicAuth(username.Reveal(), password.Reveal())
	return nil, nil
}

func newGrant(service string, credentials map[string]outbound.Secret) (*Grant, error) {
	g := &Grant{
		TokenURL: credentials[KeyTokenURL].Reveal(), ID: credentials[KeyClientID], Secret: credentials[KeyClientSecret],
		Scopes: strings.Fields(credentials[KeyScopes].Reveal()),
	}
	if g.ID == "" || g.Secret == "" {
		return nil, Missing(service, KeyClientID, KeyClientSecret)
	}
	return g, g.Check()
}
