package alerting

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/serin-dev/serin/internal/release"
)

// colours are the colours of severities in the notation of a chat. A warning is amber to distinguish it from a success.
type colours struct{ info, warn, failed string }

func (c colours) forSeverity(s release.Severity) string {
	switch s {
	case release.Error:
		return c.failed
	case release.Warn:
		return c.warn
	default: // info
		return c.info
	}
}

// slackMessage is Slack's format, which Discord and Rocket.Chat accept too. The fields have the order of the recorded
// messages.
type slackMessage struct {
	Channel     string            `json:"channel"`
	Username    string            `json:"username"`
	IconURL     string            `json:"icon_url"`
	IconEmoji   string            `json:"icon_emoji"`
	Attachments []slackAttachment `json:"attachments"`
}

type slackAttachment struct {
	Color      string       `json:"color"`
	AuthorName string       `json:"author_name"`
	Text       string       `json:"text"`
	Markdown   []string     `json:"mrkdwn_in"`
	Fields     []slackField `json:"fields"`
}

type slackField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

func attachment(o Options, colours colours) func(Message) any {
	return func(m Message) any {
		fields := make([]slackField, len(m.Fields)) // encoded as [] instead of null
		for i, f := range m.Fields {
			fields[i] = slackField{Title: f.Name, Value: f.Value}
		}
		return slackMessage{
			Channel: o.Channel, Username: o.Username, IconEmoji: ":rocket:",
			Attachments: []slackAttachment{{
				Color: colours.forSeverity(m.Severity), AuthorName: m.Canary, Text: m.Text, Markdown: []string{"text"}, Fields: fields,
			}},
		}
	}
}

// slackCompatible returns the URL at which Discord accepts Slack's format. Only the path is changed, because a query may
// name a thread.
func slackCompatible(address *url.URL) string {
	out := *address
	if path := strings.TrimSuffix(out.Path, "/"); !strings.HasSuffix(path, "/slack") {
		out = *out.JoinPath("slack")
	}
	return out.String()
}

// slackCode matches Slack's error codes; nothing else of a response is shown.
var slackCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// slackAccepted checks the response of Slack's API, which reports errors with the status 200. Incoming webhooks answer "ok".
func slackAccepted(body []byte) error {
	var answer struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.OK == nil || *answer.OK {
		return nil //nolint:nilerr // a response that is not Slack's JSON is that of an incoming webhook
	}
	code := ""
	if slackCode.MatchString(answer.Error) {
		code = " (" + answer.Error + ")"
	}
	return fmt.Errorf("the chat did not accept the message%s: check channel and token", code)
}
