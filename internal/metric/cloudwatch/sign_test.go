package cloudwatch

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

func TestSignedRequestsAreSentToAmazonOnly(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "token")
	for address, signed := range map[string]bool{
		"https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1/api/v1/query":     true,
		"https://APS-workspaces.eu-west-1.amazonaws.com:443/workspaces/ws-1":              true,
		"https://aps-workspaces-fips.us-gov-west-1.amazonaws.com/workspaces/ws-1":         true,
		"https://aps-workspaces.eu-west-1.api.aws/workspaces/ws-1":                        true,
		"https://aps-workspaces.cn-north-1.amazonaws.com.cn/workspaces/ws-1":              true,
		"https://aps-workspaces.us-iso-east-1.c2s.ic.gov/workspaces/ws-1":                 true,
		"https://aps-workspaces.us-isob-east-1.sc2s.sgov.gov/workspaces/ws-1":             true,
		"https://vpce-0a1-b2.aps-workspaces.eu-west-1.vpce.amazonaws.com/workspaces/ws-1": true,

		"http://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1":       false,
		"https://aps-workspaces.eu-west-1.amazonaws.com:8443/workspaces/ws-1": false,
		"https://mallory.example/aps-workspaces":                              false,
		"https://aps-workspaces.mallory.example/":                             false,
		"https://aps-workspaces.eu-west-1.amazonaws.com.mallory.example/":     false,
		"https://mallory.example/?x=aps-workspaces.eu-west-1.amazonaws.com":   false,
		"https://aps-workspaces.eu-west-1.amazonaws.com@mallory.example/":     false,
		"https://aps-workspaces.s3.amazonaws.com/":                            false,
		"https://aps-workspaces-1234567890.eu-west-1.elb.amazonaws.com/":      false,
		"https://vpce-1.aps-workspaces.mallory.eu-west-1.vpce.amazonaws.com/": false,
		"https://mallory.aps-workspaces.eu-west-1.amazonaws.com/":             false,
		"https://aps-workspacesxeu-west-1xamazonaws.com/":                     false,
	} {
		target, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{Method: http.MethodGet, URL: target, Host: target.Host, Header: http.Header{}}
		err = (&Ambient{}).Signer("eu-west-1", "", "")(t.Context(), r, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		sent := r.Header.Get("Authorization") != "" || r.Header.Get("X-Amz-Security-Token") != ""
		if sent != signed || signed != (err == nil) || err != nil && !errors.Is(err, errNotAmazon) {
			t.Errorf("%s: signed %v (%v), want %v", address, sent, err, signed)
		}
	}
}

// TestCachedRolesAreBounded guards the memory of the controller, because the authors of AnalysisTemplates choose
// the roles.
func TestCachedRolesAreBounded(t *testing.T) {
	ambient := &Ambient{}
	for i := range 2 * maxRoles {
		unique := role{region: "eu-west-1", arn: fmt.Sprintf("arn:aws:iam::123456789012:role/r%d", i)}
		first, err := ambient.credentialsOf(t.Context(), unique)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ambient.credentialsOf(t.Context(), unique); err != nil || again != first {
			t.Fatalf("the credentials of a role in use were removed from the cache: %v", err)
		}
		if _, err := ambient.credentialsOf(t.Context(), role{region: "eu-west-1", arn: "arn:aws:iam::123456789012:role/frequent"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(ambient.roleCache) > maxRoles || ambient.roleCache[len(ambient.roleCache)-1].arn != "arn:aws:iam::123456789012:role/frequent" {
		t.Errorf("%d roles are cached, want at most %d, with the frequent one last", len(ambient.roleCache), maxRoles)
	}
	r := &http.Request{URL: &url.URL{Scheme: "https", Host: "aps-workspaces.eu-west-1.amazonaws.com"}, Header: http.Header{}}
	for _, arn := range []string{"r", "arn:aws:iam::123456789012:user/x", "arn:aws:iam::1:role/x", "arn:aws:iam::123456789012:role/x\n"} {
		if err := ambient.Signer("eu-west-1", "", arn)(t.Context(), r, time.Now()); err == nil {
			t.Errorf("%q is accepted as a role", arn)
		}
	}
}
