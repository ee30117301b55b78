package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/chat"
)

type mattermostOptions struct {
	APIURL, Token      string
	InsecureSkipVerify bool
}

func newMattermost(c caller, o mattermostOptions) (sendFunc, error) {
	if err := errors.Join(requireOption("apiURL", o.APIURL), requireOption("token", o.Token)); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		var part struct{ Attachments string }
		if err := m.Content.Part("mattermost", &part); err != nil {
			return err
		}
		attachments, err := jsonList("mattermost.attachments", part.Attachments)
		if err != nil {
			return err
		}
		_, err = c.sendJSON(ctx, chat.Request{URL: urlBelow(o.APIURL, "api/v4/posts"), Header: chat.Bearer(o.Token), SkipVerify: o.InsecureSkipVerify}, map[string]any{
			"channel_id": m.Recipient, "message": m.Content.Message, "props": map[string]any{"attachments": emptyIfNil(attachments)},
		})
		return err
	}, nil
}

// emptyIfNil returns a list that is encoded as [] instead of null.
func emptyIfNil(items []json.RawMessage) []json.RawMessage {
	if items == nil {
		return []json.RawMessage{}
	}
	return items
}

type rocketOptions struct{ Alias, Email, Password, Icon, Avatar, ServerURL string }

// rocketMessage is a message of Rocket.Chat.
type rocketMessage struct {
	RoomID      string            `json:"roomId,omitempty"`
	Channel     string            `json:"channel,omitempty"`
	Text        string            `json:"text,omitempty"`
	Alias       string            `json:"alias,omitempty"`
	Emoji       string            `json:"emoji,omitempty"`
	Avatar      string            `json:"avatar,omitempty"`
	Attachments []json.RawMessage `json:"attachments,omitempty"`
}

// newRocketChat logs in for each message, because a session would have to be stored and can expire.
func newRocketChat(c caller, o rocketOptions) (sendFunc, error) {
	if err := errors.Join(requireOption("serverUrl", o.ServerURL), requireOption("email", o.Email), requireOption("password", o.Password)); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		message, err := rocketChatMessage(o, m)
		if err != nil {
			return err
		}
		header, err := rocketLogin(ctx, c, o)
		if err != nil {
			return err
		}
		body, err := c.sendJSON(ctx, chat.Request{URL: urlBelow(o.ServerURL, "api/v1/chat.postMessage"), Header: header}, message)
		if err != nil {
			return err
		}
		var answer struct{ Success bool }
		if json.Unmarshal(body, &answer) != nil || !answer.Success {
			return refusedError("")
		}
		return nil
	}, nil
}

func rocketChatMessage(o rocketOptions, m Message) (rocketMessage, error) {
	var part struct{ Attachments string }
	if err := m.Content.Part("rocketchat", &part); err != nil {
		return rocketMessage{}, err
	}
	attachments, err := jsonList("rocketchat.attachments", part.Attachments)
	if err != nil {
		return rocketMessage{}, err
	}
	message := rocketMessage{Text: m.Content.Message, Alias: o.Alias, Avatar: o.Avatar, Attachments: attachments}
	if emoji.MatchString(o.Icon) {
		message.Emoji = o.Icon
	}
	if strings.HasPrefix(m.Recipient, "#") || strings.HasPrefix(m.Recipient, "@") {
		message.Channel = m.Recipient
	} else {
		message.RoomID = m.Recipient
	}
	return message, nil
}

func rocketLogin(ctx context.Context, c caller, o rocketOptions) (http.Header, error) {
	body, err := c.sendJSON(ctx, chat.Request{URL: urlBelow(o.ServerURL, "api/v1/login")}, map[string]string{"user": o.Email, "password": o.Password})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct{ AuthToken, UserID string }
	}
	if json.Unmarshal(body, &answer) != nil || answer.Data.AuthToken == "" {
		return nil, refusedError("login")
	}
	return http.Header{"X-Auth-Token": {answer.Data.AuthToken}, "X-User-Id": {answer.Data.UserID}}, nil
}

type googleChatOptions struct{ Webhooks map[string]string }

// newGoogleChat posts to the webhooks of spaces. The cards of templates are YAML, in the older or the newer format.
func newGoogleChat(c caller, o googleChatOptions) (sendFunc, error) {
	return func(ctx context.Context, m Message) error {
		address, err := optionFor("webhooks", o.Webhooks, m.Recipient)
		if err != nil {
			return err
		}
		var part struct{ Cards, CardsV2, ThreadKey string }
		if err := m.Content.Part("googlechat", &part); err != nil {
			return err
		}
		message, err := googleMessage(m, part.Cards, part.CardsV2)
		if err != nil {
			return err
		}
		if part.ThreadKey != "" {
			if address, err = threadURL(address, part.ThreadKey); err != nil {
				return err
			}
		}
		_, err = c.sendJSON(ctx, chat.Request{URL: address}, message)
		return err
	}, nil
}

func googleMessage(m Message, cards, cardsV2 string) (map[string]any, error) {
	if cards == "" && cardsV2 == "" {
		return map[string]any{"text": m.Content.Message}, nil
	}
	message := map[string]any{"text": ""}
	older, err := yamlList("googlechat.cards", cards)
	if err != nil {
		return nil, err
	}
	if len(older) > 0 {
		message["cards"] = older
	}
	newer, err := yamlList("googlechat.cardsV2", cardsV2)
	if err != nil {
		return nil, err
	}
	var identified []any
	for i, card := range newer {
		identified = append(identified, map[string]any{"cardId": "card-" + strconv.Itoa(i+1), "card": card})
	}
	if len(identified) > 0 {
		message["cardsV2"] = identified
	}
	return message, nil
}

// threadURL returns the URL of a webhook for a message in a thread.
func threadURL(address, key string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the webhook of the recipient is not a URL: correct it")
	}
	query := u.Query()
	query.Add("threadKey", key)
	query.Add("messageReplyOption", "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

type webexOptions struct{ Token, APIURL string }

// emailAddress matches a recipient of Webex that is an email address instead of a room.
var emailAddress = regexp.MustCompile(`^\S+@\S+\.\S+$`)

func newWebex(c caller, o webexOptions) (sendFunc, error) {
	if err := requireOption("token", o.Token); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		to := "roomId"
		if emailAddress.MatchString(m.Recipient) {
			to = "toPersonEmail"
		}
		address := urlBelow(cmp.Or(o.APIURL, "https://webexapis.com"), "v1/messages")
		_, err := c.sendJSON(ctx, chat.Request{URL: address, Header: chat.Bearer(o.Token)}, map[string]string{to: m.Recipient, "markdown": m.Content.Message})
		return err
	}, nil
}

type telegramOptions struct{ Token, APIURL string }

// newTelegram posts to a channel by its name, or to a chat by its number, which begins with a minus and may be followed by
// | and a thread.
func newTelegram(c caller, o telegramOptions) (sendFunc, error) {
	if err := requireOption("token", o.Token); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		message := map[string]any{"chat_id": "@" + m.Recipient, "text": m.Content.Message, "parse_mode": "Markdown"}
		if strings.HasPrefix(m.Recipient, "-") {
			chat, thread, threaded := strings.Cut(m.Recipient, "|")
			message["chat_id"] = chat
			if threaded {
				number, err := strconv.Atoi(thread)
				if err != nil {
					return fmt.Errorf("the thread in recipient %q is not a number: write it as -100123|4", m.Recipient)
				}
				message["message_thread_id"] = number
			}
		}
		address := urlBelow(cmp.Or(o.APIURL, "https://api.telegram.org"), "bot"+o.Token+"/sendMessage")
		_, err := c.sendJSON(ctx, chat.Request{URL: address}, message)
		return err
	}, nil
}

type pushoverOptions struct{ Token, APIURL string }

func newPushover(c caller, o pushoverOptions) (sendFunc, error) {
	if err := requireOption("token", o.Token); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		form := url.Values{"token": {o.Token}, "user": {m.Recipient}, "message": {m.Content.Message}}
		_, err := c.sendRequest(ctx, chat.Request{
			URL:    urlBelow(cmp.Or(o.APIURL, "https://api.pushover.net"), "1/messages.json"),
			Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: []byte(form.Encode()),
		})
		return err
	}, nil
}
