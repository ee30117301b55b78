package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/outbound"
)

// sqsOptions are the options of Argo's library. Without key and secret, the identity of the controller is used.
type sqsOptions struct{ Queue, Region, Account, Key, Secret, EndpointURL string }

// sqsPart is the part of templates for Amazon SQS. The last two are for FIFO queues.
type sqsPart struct {
	MessageAttributes                      map[string]string
	MessageGroupID, MessageDeduplicationID string
}

// The names of regions, which become part of a host name, of accounts and of queues. Every user who may annotate a Rollout can
// set a queue.
var (
	sqsRegion  = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}$`)
	sqsAccount = regexp.MustCompile(`^[0-9]{12}$`)
	sqsQueue   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}(\.fifo)?$`)
)

// maxSQSResponse bounds a response, in bytes.
const maxSQSResponse = 1 << 20

// newSQS sends to a queue of Amazon SQS: the recipient, or else the queue of the options.
func newSQS(c caller, o sqsOptions) (sendFunc, error) {
	if o.Region == "" {
		if env, err := config.NewEnvConfig(); err == nil {
			o.Region = env.Region
		}
	}
	if err := o.check(c.own); err != nil {
		return nil, err
	}
	options := sqs.Options{
		Region: o.Region, Credentials: o.credentials(), HTTPClient: c.client.HTTP(maxSQSResponse, timeout),
		Retryer: aws.NopRetryer{}, // the caller decides about retries
	}
	if o.EndpointURL != "" {
		options.BaseEndpoint = &o.EndpointURL
	}
	q := &sqsQueues{api: sqs.New(options), account: o.Account, addresses: map[string]string{}}
	return func(ctx context.Context, m Message) error {
		name := cmp.Or(m.Recipient, o.Queue)
		if !sqsQueue.MatchString(name) {
			return fmt.Errorf("%q is not the name of a queue: correct the recipient in the subscription, or the option queue", name)
		}
		var part sqsPart
		if err := m.Content.Part("awssqs", &part); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer cancel()
		return sqsError(ctx, q.send(ctx, name, m.Content.Message, part))
	}, nil
}

// check returns why options cannot be used. own reports whether a namespace configured them for itself: it must not use the
// identity of the controller, which is used with Amazon only.
func (o sqsOptions) check(own bool) error {
	switch {
	case !sqsRegion.MatchString(o.Region):
		return errors.New("its option region is not the name of a region such as eu-west-1: set it, or AWS_REGION in the environment of the controller")
	case o.Account != "" && !sqsAccount.MatchString(o.Account):
		return errors.New("its option account is not the number of an account with twelve digits: correct it, and write it in quotes")
	case (o.Key == "") != (o.Secret == ""):
		return errors.New("its options key and secret belong together: set both, or neither to use the identity of the controller")
	case own && o.Key == "":
		return errors.New("the configuration of a namespace cannot use the identity of the controller: set key and secret to keys of the Secret")
	case o.EndpointURL == "":
		return nil
	case o.Key == "":
		return errors.New("its option endpointUrl needs key and secret: the controller's own credentials go to Amazon only")
	default:
		if _, err := outbound.ParseURL(o.EndpointURL); err != nil {
			return fmt.Errorf("its option endpointUrl: %w", err)
		}
		return nil
	}
}

// errNoAWSCredentials is the error of a process without credentials. It is transient, because the node may issue them later.
var errNoAWSCredentials = errors.New("no credentials of the controller for Amazon's services: give its service account a role, or set key and secret")

// credentials returns those of the options, or those of the process, from its environment, its service account or its node.
// The latter are fetched with the library's own client, because they are at addresses that users must not reach.
func (o sqsOptions) credentials() aws.CredentialsProvider {
	if o.Key != "" {
		return credentials.NewStaticCredentialsProvider(o.Key, o.Secret, "")
	}
	return aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		loaded, err := config.LoadDefaultConfig(ctx, config.WithRegion(o.Region))
		if err != nil {
			return aws.Credentials{}, outbound.NewUnreachableError(errNoAWSCredentials)
		}
		found, err := loaded.Credentials.Retrieve(ctx)
		if err != nil { // the library's text may contain the request
			return aws.Credentials{}, outbound.NewUnreachableError(errNoAWSCredentials)
		}
		return found, nil
	}))
}

// sqsQueues sends messages to the queues of one account.
type sqsQueues struct {
	api     *sqs.Client
	account string

	mu sync.Mutex
	// addresses are the URLs of queues by name.
	addresses map[string]string
}

// maxQueues bounds the stored addresses, because users choose the names of queues.
const maxQueues = 1000

func (q *sqsQueues) send(ctx context.Context, queue, message string, part sqsPart) error {
	address, err := q.address(ctx, queue)
	if err != nil {
		return err
	}
	input := &sqs.SendMessageInput{QueueUrl: &address, MessageBody: &message}
	if part.MessageGroupID != "" {
		input.MessageGroupId = &part.MessageGroupID
	}
	if part.MessageDeduplicationID != "" {
		input.MessageDeduplicationId = &part.MessageDeduplicationID
	}
	for name, value := range part.MessageAttributes {
		if input.MessageAttributes == nil {
			input.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		input.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	_, err = q.api.SendMessage(ctx, input)
	return err
}

// address returns the URL of a queue.
func (q *sqsQueues) address(ctx context.Context, queue string) (string, error) {
	q.mu.Lock()
	known := q.addresses[queue]
	q.mu.Unlock()
	if known != "" {
		return known, nil
	}
	input := &sqs.GetQueueUrlInput{QueueName: &queue}
	if q.account != "" {
		input.QueueOwnerAWSAccountId = &q.account
	}
	found, err := q.api.GetQueueUrl(ctx, input)
	if err != nil {
		return "", err
	}
	address := aws.ToString(found.QueueUrl)
	if _, err := url.Parse(address); err != nil || address == "" {
		return "", errNotSQS
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.addresses) >= maxQueues {
		clear(q.addresses)
	}
	q.addresses[queue] = address
	return address, nil
}

// sqsThrottling are the error codes of rate limits, some of which have the status 400.
var sqsThrottling = []string{"ThrottlingException", "RequestThrottled", "Throttling", "KmsThrottled"}

var errNotSQS = errors.New("the response is not from Amazon SQS: check region and endpointUrl")

// sqsError converts an error of the library, whose text contains the response and may contain the request.
func sqsError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if unreachable, ok := errors.AsType[*outbound.UnreachableError](err); ok {
		return unreachable
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return refused
	}
	if ctx.Err() != nil {
		return outbound.NewUnreachableError(context.Cause(ctx))
	}
	answer, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok || answer.HTTPStatusCode() < 300 {
		return errNotSQS
	}
	code := ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	status := chat.NewStatusError("Amazon SQS", outbound.Response{Code: answer.HTTPStatusCode(), Header: answer.Response.Header})
	switch {
	case slices.Contains(sqsThrottling, code):
		return outbound.NewUnreachableError(fmt.Errorf("%s (%s)", status.Error(), code))
	case !errorCode.MatchString(code) || code == "UnknownError":
		return status
	default:
		return fmt.Errorf("%w (%s): check queue, account, credentials and their permission sqs:SendMessage", status, code)
	}
}
