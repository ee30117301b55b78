package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/googlecloud"
	"github.com/serin-dev/serin/internal/outbound"
)

const (
	pubSubAddress = "https://pubsub.googleapis.com"
	pubSubScope   = "https://www.googleapis.com/auth/pubsub"
)

// pubSubOptions are the options of Argo's library, and serviceAccountKey, which contains the key itself instead of its path.
type pubSubOptions struct{ Project, Topic, KeyFile, ServiceAccountKey, APIURL string }

type pubSubMessage struct {
	Data       []byte            `json:"data,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// The names of projects, which may begin with a domain, and of topics. Every user who may annotate a Rollout can set a
// topic, and must not reach another project or method of the API with it.
var (
	pubSubProject = regexp.MustCompile(`^([a-z][a-z0-9.-]*:)?[a-z0-9][a-z0-9-]*$`)
	pubSubTopic   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`)
)

// newPubSub publishes to a topic of Google Cloud Pub/Sub: the recipient, or else the topic of the options.
func newPubSub(c caller, o pubSubOptions) (sendFunc, error) {
	if err := errors.Join(requireOption("project", o.Project), o.check(c.own)); err != nil {
		return nil, err
	}
	token, err := o.tokens()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		topic := cmp.Or(m.Recipient, o.Topic)
		if !pubSubTopic.MatchString(topic) {
			return fmt.Errorf("%q is not the name of a topic: correct the recipient in the subscription, or the option topic", topic)
		}
		var part struct{ Attributes map[string]string }
		if err := m.Content.Part("gcppubsub", &part); err != nil {
			return err
		}
		bearerToken, err := token(ctx)
		if err != nil {
			return err
		}
		address := urlBelow(cmp.Or(o.APIURL, pubSubAddress), "v1/projects/"+url.PathEscape(o.Project)+"/topics/"+url.PathEscape(topic)+":publish")
		message := pubSubMessage{Data: []byte(m.Content.Message), Attributes: part.Attributes}
		_, err = c.sendJSON(ctx, chat.Request{URL: address, Header: chat.Bearer(bearerToken.Reveal())}, map[string]any{"messages": []pubSubMessage{message}})
		return err
	}, nil
}

// check returns why options cannot be used. own reports whether a namespace configured them for itself: it must not use
// the files or the identity of the controller. The controller's credentials are sent to Google only.
func (o pubSubOptions) check(own bool) error {
	switch {
	case o.Project != "" && !pubSubProject.MatchString(o.Project):
		return errors.New("its option project is not the name of a project: correct it")
	case o.KeyFile != "" && o.ServiceAccountKey != "":
		return errors.New("its options keyFile and serviceAccountKey exclude each other: remove one")
	case own && o.ServiceAccountKey == "":
		return errors.New("the configuration of a namespace cannot use files or the identity of the controller: set serviceAccountKey to a key of the Secret, and remove keyFile")
	case o.APIURL != "" && o.KeyFile == "" && o.ServiceAccountKey == "":
		return errors.New("its option apiURL needs serviceAccountKey or keyFile: the controller's own credentials go to Google only")
	default:
		return nil
	}
}

// tokens returns a function that obtains tokens. A key file is read for each message, so that a renewed key is used.
func (o pubSubOptions) tokens() (func(context.Context) (outbound.Secret, error), error) {
	switch {
	case o.ServiceAccountKey != "":
		account, err := googlecloud.NewServiceAccount([]byte(o.ServiceAccountKey), pubSubScope)
		if err != nil {
			return nil, fmt.Errorf("its option serviceAccountKey is %w: correct it", err)
		}
		return func(context.Context) (outbound.Secret, error) { return account.Token() }, nil
	case o.KeyFile != "":
		return func(context.Context) (outbound.Secret, error) { return o.tokenOfFile() }, nil
	default:
		ambient := googlecloud.NewDefaultCredentials(pubSubScope)
		return func(ctx context.Context) (outbound.Secret, error) {
			token, err := ambient.Token(ctx)
			return token, err
		}, nil
	}
}

func (o pubSubOptions) tokenOfFile() (outbound.Secret, error) {
	key, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return "", errors.New("the file of its option keyFile cannot be read: mount it into the controller, or correct the path")
	}
	account, err := googlecloud.NewServiceAccount(key, pubSubScope)
	if err != nil {
		return "", fmt.Errorf("the file of its option keyFile is %w: correct it", err)
	}
	return account.Token()
}
