package traffic

import (
	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Question is about the traffic of a Rollout, where no object of the cluster has the answer. It is sent to the operator of the
// load balancers, such as AWS.
type Question struct {
	Namespace string
	// Forwards are the desired shares of the load balancers.
	Forwards []Forward
	// Backings are the Services whose pods the load balancers must reach.
	Backings []Backing
}

// Forward is how the load balancers of an Ingress must split requests.
type Forward struct {
	Ingress string
	// Hosts are the names of the load balancers according to the Ingress.
	Hosts []string
	// Shares are the canary's, those of experiments, and the stable one, in this order; none if the Ingress does not define them.
	Shares []Portion
}

// Portion is the share of a Service.
type Portion struct {
	Service, Port string
	Weight        int
}

// Backing is a Service whose pods, those of one revision, must be reached.
type Backing struct {
	Service, Hash string
	// Pods of the revision that are available. With another number the question is another.
	Pods int32
}

// Answer to a Question.
type Answer struct {
	// Holds is true when everything is as desired.
	Holds bool
	// Reason is for users, why it does not hold.
	Reason string
	// Events for users.
	Events []Event
	// Balancers are the load balancers that were found, by their Ingresses in the order of the question; nil where none was.
	Balancers []argov1.ALBStatus
}
