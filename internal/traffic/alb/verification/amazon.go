package verification

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/traffic/alb"
)

// Limits of one call, of one list, and of the resources in one request for tags.
const (
	callTimeout     = 10 * time.Second
	maxResponse     = 4 << 20
	maxPages        = 100
	maxTagResources = 20
)

// amazon calls the API of load balancers. Region, credentials and endpoint are those of the process: of its environment, its
// configuration, its service account or its node. They are loaded when they are first needed.
type amazon struct {
	http *http.Client
	tag  string

	mu  sync.Mutex
	api *elb.Client
}

func newAmazon(client *outbound.Client, tag string) *amazon {
	return &amazon{http: client.HTTP(maxResponse, callTimeout), tag: tag}
}

var errNoRegion = errors.New("the region of Amazon's services is not known: set AWS_REGION in the environment of the controller")

// client returns the client of the AWS library. It fetches credentials with an HTTP client of its own, because they come from
// addresses that other clients may not call.
func (a *amazon) client(ctx context.Context) (*elb.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.api != nil {
		return a.api, nil
	}
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil { // its text may contain parts of the configuration
		return nil, errors.New("the configuration of Amazon's services cannot be read: correct the AWS_ variables in the environment of the controller")
	}
	if loaded.Region == "" {
		return nil, errNoRegion
	}
	a.api = elb.NewFromConfig(loaded, func(o *elb.Options) {
		o.HTTPClient, o.Retryer = a.http, aws.NopRetryer{} // the caller decides about retries
	})
	return a.api, nil
}

// pages reads a list to its end, or until enough of it was read. next returns the marker of the next page.
func pages(next func(marker *string) (after *string, enough bool, err error)) error {
	var marker *string
	for range maxPages {
		after, enough, err := next(marker)
		if err != nil || enough || aws.ToString(after) == "" {
			return err
		}
		marker = after
	}
	return fmt.Errorf("a list has more than %d pages", maxPages)
}

// balancer finds a load balancer by its host name, with its target groups and its rules; nil if there is none.
func (a *amazon) balancer(ctx context.Context, host string) (*alb.Balancer, error) {
	api, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	var found *alb.Balancer
	err = pages(func(marker *string) (*string, bool, error) {
		page, err := api.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Marker: marker})
		if err != nil {
			return nil, false, readable("DescribeLoadBalancers", err)
		}
		i := slices.IndexFunc(page.LoadBalancers, func(b types.LoadBalancer) bool { return sameHost(aws.ToString(b.DNSName), host) })
		if i >= 0 {
			b := page.LoadBalancers[i]
			found = &alb.Balancer{
				ARN: aws.ToString(b.LoadBalancerArn), Name: aws.ToString(b.LoadBalancerName), Network: b.Type == types.LoadBalancerTypeEnumNetwork,
			}
		}
		return page.NextMarker, found != nil, nil
	})
	if err != nil || found == nil {
		return nil, err
	}
	if found.Network {
		return found, nil
	}
	if found.Groups, err = a.groups(ctx, api, found.ARN); err != nil {
		return nil, err
	}
	found.Rules, err = a.rules(ctx, api, found.ARN)
	return found, err
}

// sameHost reports whether both names are of one host; an Ingress may use the dual-stack name.
func sameHost(is, named string) bool {
	return strings.EqualFold(is, strings.TrimPrefix(strings.ToLower(strings.TrimSuffix(named, ".")), "dualstack."))
}

// groups returns the target groups of a load balancer, with their purposes according to their tags.
func (a *amazon) groups(ctx context.Context, api *elb.Client, balancer string) ([]alb.Group, error) {
	var groups []alb.Group
	err := pages(func(marker *string) (*string, bool, error) {
		page, err := api.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{LoadBalancerArn: &balancer, Marker: marker})
		if err != nil {
			return nil, false, readable("DescribeTargetGroups", err)
		}
		for _, g := range page.TargetGroups {
			groups = append(groups, alb.Group{ARN: aws.ToString(g.TargetGroupArn), Name: aws.ToString(g.TargetGroupName)})
		}
		return page.NextMarker, false, nil
	})
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(groups, maxTagResources) {
		arns := make([]string, len(chunk))
		for i, g := range chunk {
			arns[i] = g.ARN
		}
		answer, err := api.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns})
		if err != nil {
			return nil, readable("DescribeTags", err)
		}
		for i := range chunk {
			chunk[i].Resource = a.resource(answer.TagDescriptions, chunk[i].ARN)
		}
	}
	return groups, nil
}

func (a *amazon) resource(all []types.TagDescription, arn string) string {
	for _, described := range all {
		for _, tag := range described.Tags {
			if aws.ToString(described.ResourceArn) == arn && aws.ToString(tag.Key) == a.tag {
				return aws.ToString(tag.Value)
			}
		}
	}
	return ""
}

// rules returns the rules of all listeners of a load balancer, including the default rules.
func (*amazon) rules(ctx context.Context, api *elb.Client, balancer string) ([]alb.Rule, error) {
	var listeners []string
	err := pages(func(marker *string) (*string, bool, error) {
		page, err := api.DescribeListeners(ctx, &elb.DescribeListenersInput{LoadBalancerArn: &balancer, Marker: marker})
		if err != nil {
			return nil, false, readable("DescribeListeners", err)
		}
		for _, l := range page.Listeners {
			listeners = append(listeners, aws.ToString(l.ListenerArn))
		}
		return page.NextMarker, false, nil
	})
	if err != nil {
		return nil, err
	}
	var rules []alb.Rule
	for _, listener := range listeners {
		err := pages(func(marker *string) (*string, bool, error) {
			page, err := api.DescribeRules(ctx, &elb.DescribeRulesInput{ListenerArn: &listener, Marker: marker})
			if err != nil {
				return nil, false, readable("DescribeRules", err)
			}
			for _, r := range page.Rules {
				rules = append(rules, forwards(r)...)
			}
			return page.NextMarker, false, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// forwards returns the actions of a rule that forward by weights.
func forwards(r types.Rule) []alb.Rule {
	var out []alb.Rule
	for _, action := range r.Actions {
		if action.ForwardConfig == nil {
			continue
		}
		rule := alb.Rule{}
		for _, g := range action.ForwardConfig.TargetGroups {
			rule[aws.ToString(g.TargetGroupArn)] = int(aws.ToInt32(g.Weight))
		}
		out = append(out, rule)
	}
	return out
}

// targets returns the addresses in a target group.
func (a *amazon) targets(ctx context.Context, group string) ([]alb.Target, error) {
	api, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := api.DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: &group})
	if err != nil {
		return nil, readable("DescribeTargetHealth", err)
	}
	var out []alb.Target
	for _, t := range answer.TargetHealthDescriptions {
		if t.Target == nil || t.TargetHealth == nil {
			continue
		}
		out = append(out, alb.Target{
			Address: alb.Address(aws.ToString(t.Target.Id), aws.ToInt32(t.Target.Port)),
			State:   string(t.TargetHealth.State), Why: string(t.TargetHealth.Reason),
		})
	}
	return out, nil
}

// errorCodes matches error codes of the API. Other text of an error may contain parts of the request.
var errorCodes = regexp.MustCompile(`^[A-Za-z.]{1,64}$`)

// denialCodes are the error codes for a role without permission.
var denialCodes = []string{"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}

// readable converts an error of the library to a message for users. The library's own text may contain parts of the request.
func readable(call string, err error) error {
	if unreachable, ok := errors.AsType[*outbound.UnreachableError](err); ok {
		return fmt.Errorf("AWS does not answer %s: %w", call, unreachable)
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return fmt.Errorf("AWS cannot be asked %s: %w", call, refused)
	}
	if errors.Is(err, outbound.ErrTooLong) {
		return fmt.Errorf("AWS answers %s: %w", call, outbound.ErrTooLong)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("AWS has not answered %s in time", call)
	}
	apiError, ok := errors.AsType[smithy.APIError](err)
	switch {
	case !ok:
		return fmt.Errorf("AWS cannot be asked %s: no credentials of the controller, or an answer that cannot be read; give its service account a role", call)
	case slices.Contains(denialCodes, apiError.ErrorCode()):
		return fmt.Errorf("AWS refuses %s (%s): allow the role of the controller elasticloadbalancing:%s", call, apiError.ErrorCode(), call)
	case errorCodes.MatchString(apiError.ErrorCode()):
		return fmt.Errorf("AWS refuses %s: %s", call, apiError.ErrorCode())
	default:
		return fmt.Errorf("AWS refuses %s", call)
	}
}
