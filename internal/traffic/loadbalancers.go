package traffic

import (
	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// LoadBalancerQuery queries the state of load balancers outside the cluster that route the traffic of a Rollout. It is sent to
// the API of their operator, such as AWS.
type LoadBalancerQuery struct {
	Namespace string
	// Forwards are the desired shares of the load balancers.
	Forwards []Forward
	// Targets are the Services whose pods the load balancers must reach.
	Targets []BackendTarget
}

// Forward is how the load balancers of an Ingress must split requests.
type Forward struct {
	Ingress string
	// Hosts are the names of the load balancers according to the Ingress.
	Hosts []string
	// Shares are the canary's, those of experiments, and the stable one, in this order; none if the Ingress does not define them.
	Shares []ServiceShare
}

// ServiceShare is the share of a Service.
type ServiceShare struct {
	Service, Port string
	Weight        int
}

// BackendTarget is a Service whose pods, those of one revision, must be reached.
type BackendTarget struct {
	Service, Hash string
	// Pods is the number of available pods of the revision. When it changes, the query must be sent again.
	Pods int32
}

// LoadBalancerAnswer is the answer to a LoadBalancerQuery.
type LoadBalancerAnswer struct {
	// Verified is true if the load balancers are as desired.
	Verified bool
	// Reason why they are not, for users.
	Reason string
	// Events for users.
	Events []Event
	// Balancers are the load balancers that were found, by their Ingresses in the order of the query; nil where none was.
	Balancers []argov1.ALBStatus
}
