package service

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/outbound"
)

// gitHubOptions are the options of Argo's library, and token, which replaces the credentials of an app.
type gitHubOptions struct {
	AppID, InstallationID         json.Number
	PrivateKey, EnterpriseBaseURL string
	Token                         string
}

// gitHubPart is the part of templates for GitHub. Each of its parts after the revision is one call.
type gitHubPart struct {
	// RepoURLPath is the URL of a repository, or OWNER/NAME. RevisionPath is the commit.
	RepoURLPath, RevisionPath string
	Status                    *gitHubStatus
	Deployment                *gitHubDeployment
	PullRequestComment        *gitHubComment
	CheckRun                  *gitHubCheckRun
}

type gitHubStatus struct{ State, Label, TargetURL string }

type gitHubDeployment struct {
	State, Environment, EnvironmentURL, LogURL, Reference string
	RequiredContexts                                      *[]string
	AutoMerge, TransientEnvironment                       *bool
}

type gitHubComment struct {
	Content string
	// CommentTag identifies a comment that later messages replace.
	CommentTag string
}

type gitHubCheckRun struct {
	Name        string          `json:"name,omitempty"`
	HeadSHA     string          `json:"head_sha,omitempty"`
	DetailsURL  string          `json:"details_url,omitempty"`
	Status      string          `json:"status,omitempty"`
	Conclusion  string          `json:"conclusion,omitempty"`
	StartedAt   string          `json:"started_at,omitempty"`
	CompletedAt string          `json:"completed_at,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
}

const (
	gitHubAddress = "https://api.github.com"
	// gitHubAPI is the path of the API of an enterprise server.
	gitHubAPI = "/api/v3"
	// maxGitHubResponse bounds a response, in bytes: lists contain whole objects.
	maxGitHubResponse = 1 << 20
	// The limits of GitHub, in characters.
	maxStatusDescription = 140
	maxComment           = 65_536
)

// gitHub calls the API with the token of an app's installation, or with a given token.
type gitHub struct {
	caller
	base string
	// token is given by the user, and replaces app.
	token string
	app   *gitHubApp
}

// newGitHub reports releases at commits: as a status, a check run, a deployment, or a comment on the pull requests. The
// recipient status, deployment, comment or checkRun selects one of them; without a recipient, all that the template has are
// sent.
func newGitHub(c caller, o gitHubOptions) (sendFunc, error) {
	g := &gitHub{caller: c, base: gitHubAddress, token: o.Token}
	if o.EnterpriseBaseURL != "" {
		address, err := outbound.ParseURL(o.EnterpriseBaseURL)
		if err != nil {
			return nil, fmt.Errorf("its option enterpriseBaseURL: %w", err)
		}
		if strings.Trim(address.Path, "/") == "" {
			address.Path = gitHubAPI
		}
		g.base = address.String()
	}
	if o.Token != "" {
		return g.send, nil
	}
	if err := errors.Join(requireOption("appID", o.AppID.String()), requireOption("installationID", o.InstallationID.String()), requireOption("privateKey", o.PrivateKey)); err != nil {
		return nil, err
	}
	key, err := parseRSAKey(o.PrivateKey)
	if err != nil {
		return nil, err
	}
	g.app = &gitHubApp{id: o.AppID.String(), installation: o.InstallationID.String(), key: key}
	return g.send, nil
}

// The names of repositories and revisions, which become parts of a path.
var (
	gitHubRepository = regexp.MustCompile(`^(?:.*[/:@])?([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9_.-]{1,100}?)(?:\.git)?/?$`)
	gitHubRevision   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,254}$`)
)

// gitHubCalls are the calls by recipient, in their order: those that may be repeated without an effect come first, because
// all are repeated if a later one fails.
var gitHubCalls = []struct {
	recipient string
	wanted    func(p gitHubPart) bool
	call      func(g *gitHub, ctx context.Context, at gitHubCommit, p gitHubPart, m Message) error
}{
	{"status", func(p gitHubPart) bool { return p.Status != nil }, (*gitHub).sendStatus},
	{"checkRun", func(p gitHubPart) bool { return p.CheckRun != nil }, (*gitHub).sendCheckRun},
	{"deployment", func(p gitHubPart) bool { return p.Deployment != nil }, (*gitHub).sendDeployment},
	{"comment", func(p gitHubPart) bool { return p.PullRequestComment != nil }, (*gitHub).sendComment},
}

func (g *gitHub) send(ctx context.Context, m Message) error {
	var part gitHubPart
	if err := m.Content.Part("github", &part); err != nil {
		return err
	}
	at, err := newGitHubCommit(part)
	if err != nil {
		return err
	}
	sent := false
	for _, each := range gitHubCalls {
		if m.Recipient != "" && m.Recipient != each.recipient || !each.wanted(part) {
			continue
		}
		if at.header, err = g.authorization(ctx, m.Now); err != nil {
			return err
		}
		if err := each.call(g, ctx, at, part, m); err != nil {
			return gitHubError(err)
		}
		sent = true
	}
	if !sent {
		return fmt.Errorf("the template has no github.status, github.checkRun, github.deployment or github.pullRequestComment for the recipient %q: add one, or correct the subscription to status, checkRun, deployment, comment or nothing", m.Recipient)
	}
	return nil
}

// gitHubCommit is a commit, with the header for calls about it.
type gitHubCommit struct {
	path, revision string
	header         http.Header
}

func newGitHubCommit(part gitHubPart) (gitHubCommit, error) {
	names := gitHubRepository.FindStringSubmatch(strings.TrimSpace(part.RepoURLPath))
	if names == nil || strings.Trim(names[2], ".") == "" {
		return gitHubCommit{}, fmt.Errorf("github.repoURLPath of the template is %q, which is not a repository: set it to its URL, for example from an annotation", part.RepoURLPath)
	}
	revision := strings.TrimSpace(part.RevisionPath)
	if !gitHubRevision.MatchString(revision) || strings.Contains(revision, "..") {
		return gitHubCommit{}, fmt.Errorf("github.revisionPath of the template is %q, which is not a commit: set it, for example from an annotation", revision)
	}
	return gitHubCommit{path: "repos/" + names[1] + "/" + names[2] + "/", revision: revision}, nil
}

// call sends a payload, or requests a document without one, and decodes the response.
func (g *gitHub) call(ctx context.Context, header http.Header, method, path string, payload, into any) error {
	request := chat.Request{Method: method, URL: urlBelow(g.base, path), Header: header.Clone(), MaxResponse: maxGitHubResponse}
	send := func() ([]byte, error) { return g.sendJSON(ctx, request, payload) }
	if payload == nil {
		send = func() ([]byte, error) { return g.sendRequest(ctx, request) }
	}
	body, err := send()
	if err != nil {
		return err
	}
	if into != nil && json.Unmarshal(body, into) != nil {
		return errNotGitHub
	}
	return nil
}

var errNotGitHub = errors.New("the response is not from GitHub: check enterpriseBaseURL, whose path is /api/v3")

func (g *gitHub) sendStatus(ctx context.Context, at gitHubCommit, p gitHubPart, m Message) error {
	return g.call(ctx, at.header, http.MethodPost, at.path+"statuses/"+url.PathEscape(at.revision), map[string]string{
		"state": p.Status.State, "context": p.Status.Label, "target_url": p.Status.TargetURL,
		"description": truncateTo(strings.TrimSpace(m.Content.Message), maxStatusDescription),
	}, &struct{}{})
}

func (g *gitHub) sendCheckRun(ctx context.Context, at gitHubCommit, p gitHubPart, _ Message) error {
	run := *p.CheckRun
	run.HeadSHA = at.revision
	return g.call(ctx, at.header, http.MethodPost, at.path+"check-runs", run, &struct{}{})
}

// sendDeployment adds a status to the deployment of the commit in the environment, and creates it first if there is none.
func (g *gitHub) sendDeployment(ctx context.Context, at gitHubCommit, p gitHubPart, m Message) error {
	d := p.Deployment
	reference := cmp.Or(d.Reference, at.revision)
	parameters := url.Values{"ref": {reference}, "environment": {d.Environment}, "per_page": {"1"}}
	var existing []struct{ ID int64 }
	if err := g.call(ctx, at.header, http.MethodGet, at.path+"deployments?"+parameters.Encode(), nil, &existing); err != nil {
		return err
	}
	if len(existing) == 0 {
		existing = append(existing, struct{ ID int64 }{})
		create := map[string]any{"ref": reference, "environment": d.Environment, "description": truncateTo(strings.TrimSpace(m.Content.Message), maxStatusDescription)}
		if d.RequiredContexts != nil {
			create["required_contexts"] = *d.RequiredContexts
		}
		if d.AutoMerge != nil {
			create["auto_merge"] = *d.AutoMerge
		}
		if d.TransientEnvironment != nil {
			create["transient_environment"] = *d.TransientEnvironment
		}
		if err := g.call(ctx, at.header, http.MethodPost, at.path+"deployments", create, &existing[0]); err != nil {
			return err
		}
	}
	if existing[0].ID == 0 { // GitHub merged the default branch into the reference instead
		return errors.New("GitHub created no deployment, because the commit is behind the default branch: set github.deployment.autoMerge of the template to false")
	}
	return g.call(ctx, at.header, http.MethodPost, fmt.Sprintf("%sdeployments/%d/statuses", at.path, existing[0].ID), map[string]string{
		"state": d.State, "log_url": d.LogURL, "environment_url": d.EnvironmentURL,
		"description": truncateTo(strings.TrimSpace(m.Content.Message), maxStatusDescription),
	}, &struct{}{})
}

// maxPullRequests bounds the pull requests that receive a comment.
const maxPullRequests = 10

// sendComment comments on the pull requests that contain the commit, or replaces the comment with the same tag.
func (g *gitHub) sendComment(ctx context.Context, at gitHubCommit, p gitHubPart, _ Message) error {
	var requests []struct{ Number int64 }
	path := fmt.Sprintf("%scommits/%s/pulls?per_page=%d", at.path, url.PathEscape(at.revision), maxPullRequests)
	if err := g.call(ctx, at.header, http.MethodGet, path, nil, &requests); err != nil {
		return err
	}
	body, marker := p.PullRequestComment.Content, ""
	if tag := p.PullRequestComment.CommentTag; tag != "" {
		marker = "<!-- notification: " + strings.ReplaceAll(tag, "--", "") + " -->"
		body = marker + "\n" + body
	}
	payload := map[string]string{"body": truncateTo(body, maxComment)}
	for _, request := range requests {
		existing, err := g.findComment(ctx, at, request.Number, marker)
		switch {
		case err != nil:
		case existing != 0:
			err = g.call(ctx, at.header, http.MethodPatch, fmt.Sprintf("%sissues/comments/%d", at.path, existing), payload, &struct{}{})
		default:
			err = g.call(ctx, at.header, http.MethodPost, fmt.Sprintf("%sissues/%d/comments", at.path, request.Number), payload, &struct{}{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findComment returns the ID of the comment with a marker among the last hundred of a pull request; zero if there is none.
func (g *gitHub) findComment(ctx context.Context, at gitHubCommit, number int64, marker string) (int64, error) {
	if marker == "" {
		return 0, nil
	}
	var comments []struct {
		ID   int64
		Body string
	}
	path := fmt.Sprintf("%sissues/%d/comments?per_page=100", at.path, number)
	if err := g.call(ctx, at.header, http.MethodGet, path, nil, &comments); err != nil {
		return 0, err
	}
	for _, c := range comments {
		if strings.HasPrefix(c.Body, marker) {
			return c.ID, nil
		}
	}
	return 0, nil
}

// gitHubError marks a rate limit as transient, which GitHub reports with the status 403 too.
func gitHubError(err error) error {
	status, ok := errors.AsType[*chat.StatusError](err)
	if ok && status.Code() == http.StatusForbidden && (status.Header("Retry-After") != "" || status.Header("X-Ratelimit-Remaining") == "0") {
		return outbound.NewUnreachableError(errors.New("GitHub limits the rate of requests: status 403"))
	}
	return err
}

// truncateTo returns at most that number of characters.
func truncateTo(text string, characters int) string {
	if utf8.RuneCountInString(text) <= characters {
		return text
	}
	return string([]rune(text)[:characters-1]) + "…"
}

// authorization returns the header of calls.
func (g *gitHub) authorization(ctx context.Context, now time.Time) (http.Header, error) {
	token := g.token
	if g.app != nil {
		var err error
		if token, err = g.app.token(ctx, g, now); err != nil {
			return nil, gitHubError(err)
		}
	}
	return gitHubHeader(token), nil
}

func gitHubHeader(token string) http.Header {
	header := chat.Bearer(token)
	header.Set("Accept", "application/vnd.github+json")
	header.Set("X-GitHub-Api-Version", "2022-11-28")
	return header
}

// gitHubApp creates the tokens of the installation of an app.
type gitHubApp struct {
	id, installation string
	key              *rsa.PrivateKey

	mu      sync.Mutex
	current string
	expiry  time.Time
}

// tokenReserve is the time before its end at which a token is replaced.
const tokenReserve = time.Minute

// token returns a valid token. It requests one if the last is about to expire.
func (a *gitHubApp) token(ctx context.Context, g *gitHub, now time.Time) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Add(tokenReserve).Before(a.expiry) {
		return a.current, nil
	}
	assertion, err := a.sign(now)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token     string
		ExpiresAt time.Time `json:"expires_at"`
	}
	path := "app/installations/" + url.PathEscape(a.installation) + "/access_tokens"
	if err := g.call(ctx, gitHubHeader(assertion), http.MethodPost, path, nil, &answer); err != nil {
		return "", fmt.Errorf("get a token for the app: %w", err)
	}
	if answer.Token == "" {
		return "", errNotGitHub
	}
	a.current, a.expiry = answer.Token, answer.ExpiresAt
	return a.current, nil
}

// sign returns a JSON Web Token with which the app authenticates itself. It is valid for less than the ten minutes that GitHub
// permits, from a minute ago because clocks differ.
func (a *gitHubApp) sign(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iat": now.Add(-time.Minute).Unix(), "exp": now.Add(8 * time.Minute).Unix(), "iss": a.id})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	unsigned := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(unsigned))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("its option privateKey cannot sign: create another key of the app")
	}
	return unsigned + "." + encode(signature), nil
}

// parseRSAKey parses the key of an app. Its errors do not quote the key.
func parseRSAKey(text string) (*rsa.PrivateKey, error) {
	invalid := errors.New("its option privateKey is not the key of an app in the format PEM: set it to the whole file")
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, invalid
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, invalid
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, invalid
	}
	return key, nil
}
