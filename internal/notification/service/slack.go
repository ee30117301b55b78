package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/serin-dev/serin/internal/chat"
)

type slackOptions struct {
	Token, Username, Icon, APIURL     string
	InsecureSkipVerify, DisableUnfurl bool
}

// slackPart is the part of templates for Slack. Attachments and blocks are JSON lists in strings.
type slackPart struct {
	Username, Icon, Attachments, Blocks, GroupingKey string
	NotifyBroadcast                                  bool
	DeliveryPolicy                                   string
}

// emoji matches an icon that is the name of an emoji instead of a URL.
var emoji = regexp.MustCompile(`^:.+:$`)

// errorCode matches the error codes of services; nothing else of a response is shown in errors.
var errorCode = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// slack posts with the token of a bot. Later messages of a group are posted to the thread of its first one, or replace it.
type slack struct {
	caller
	slackOptions
	base string

	mu      sync.Mutex
	threads map[threadGroup]postedMessage
}

type threadGroup struct{ recipient, key string }

// postedMessage identifies the first message of a group.
type postedMessage struct{ channel, timestamp string }

// maxGroups bounds the number of stored groups.
const maxGroups = 1000

func newSlack(c caller, o slackOptions) (sendFunc, error) {
	if err := requireOption("token", o.Token); err != nil {
		return nil, err
	}
	s := &slack{caller: c, slackOptions: o, base: cmp.Or(o.APIURL, "https://slack.com/api/"), threads: map[threadGroup]postedMessage{}}
	return s.send, nil
}

func (s *slack) send(ctx context.Context, m Message) error {
	var part slackPart
	if err := m.Content.Part("slack", &part); err != nil {
		return err
	}
	form, err := s.form(m, part)
	if err != nil {
		return err
	}
	group := threadGroup{recipient: m.Recipient, key: part.GroupingKey}
	first, follows := s.firstMessage(group)
	if !follows || part.DeliveryPolicy != "Update" {
		form.Set("channel", m.Recipient)
		if follows {
			form.Set("thread_ts", first.timestamp)
			if part.NotifyBroadcast {
				form.Set("reply_broadcast", "true")
			}
		}
		at, err := s.call(ctx, "chat.postMessage", form)
		if err != nil {
			return err
		}
		s.storeFirst(group, at)
	}
	if !follows || part.DeliveryPolicy != "Update" && part.DeliveryPolicy != "PostAndUpdate" {
		return nil
	}
	form.Del("thread_ts")
	form.Del("reply_broadcast")
	form.Set("channel", first.channel)
	form.Set("ts", first.timestamp)
	_, err = s.call(ctx, "chat.update", form)
	return err
}

// form returns the message as the fields of Slack's API.
func (s *slack) form(m Message, part slackPart) (url.Values, error) {
	form := url.Values{"text": {m.Content.Message}}
	for field, text := range map[string]string{"attachments": part.Attachments, "blocks": part.Blocks} {
		items, err := jsonList("slack."+field, text)
		if err != nil {
			return nil, err
		}
		if len(items) > 0 {
			encoded, err := json.Marshal(items)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", field, err)
			}
			form.Set(field, string(encoded))
		}
	}
	if name := cmp.Or(part.Username, s.Username); name != "" {
		form.Set("username", name)
	}
	switch icon := cmp.Or(part.Icon, s.Icon); {
	case emoji.MatchString(icon):
		form.Set("icon_emoji", icon)
	case strings.HasPrefix(icon, "https://"), strings.HasPrefix(icon, "http://"):
		form.Set("icon_url", icon)
	}
	if s.DisableUnfurl {
		form.Set("unfurl_links", "false")
		form.Set("unfurl_media", "false")
	}
	return form, nil
}

// call calls one method of the API, which reports errors with the status 200.
func (s *slack) call(ctx context.Context, method string, form url.Values) (postedMessage, error) {
	header := chat.Bearer(s.Token)
	header.Set("Content-Type", "application/x-www-form-urlencoded")
	body, err := s.sendRequest(ctx, chat.Request{URL: urlBelow(s.base, method), Header: header, Body: []byte(form.Encode()), SkipVerify: s.InsecureSkipVerify})
	if err != nil {
		return postedMessage{}, err
	}
	var answer struct {
		OK                 bool
		Error, Channel, Ts string
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return postedMessage{}, fmt.Errorf("the response is not from Slack: check apiURL")
	}
	if !answer.OK {
		return postedMessage{}, refusedError(answer.Error)
	}
	return postedMessage{channel: answer.Channel, timestamp: answer.Ts}, nil
}

// refusedError returns the error of services that report errors in the body of a successful response.
func refusedError(word string) error {
	if !errorCode.MatchString(word) {
		return fmt.Errorf("the service did not accept the message: check recipient and credentials")
	}
	return fmt.Errorf("the service did not accept the message (%s): check recipient and credentials", word)
}

func (s *slack) firstMessage(group threadGroup) (postedMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.threads[group]
	return at, ok && group.key != ""
}

// storeFirst stores the first message of a group.
func (s *slack) storeFirst(group threadGroup, at postedMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.threads[group]; known || group.key == "" {
		return
	}
	if len(s.threads) >= maxGroups {
		clear(s.threads)
	}
	s.threads[group] = at
}
