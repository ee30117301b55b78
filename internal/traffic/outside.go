package traffic

import (
	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Question is what no object of the cluster says of the traffic of a Rollout. It is put to whoever runs the load balancers.
type Question struct {
	Namespace string
	// Forwards are the shares that load balancers shall have.
	Forwards []Forward
	// Backings are the Services whose pods load balancers shall reach.
	Backings []Backing
}

// Forward is how the load balancers of an Ingress shall share requests.
type Forward struct {
	Ingress string
	// Hosts are the names of the load balancers as the Ingress has them; none while there are none.
	Hosts []string
	// Shares are the canary's, those of experiments, and the stable one, in this order; none where the Ingress does not say.
	Shares []Portion
}

// Portion is what a Service gets of the requests.
type Portion struct {
	Service, Port string
	Weight        int
}

// Backing is a Service whose pods shall be reached: those of one revision.
type Backing struct {
	Service, Hash string
	// Pods of the revision that are available. With another number the question is another.
	Pods int32
}

// Answer to a Question.
type Answer struct {
	// Holds is true when all is as it shall be.
	Holds bool
	// Reason says for people why it does not hold.
	Reason string
	// Events are what people are told of it.
	Events []Event
	// Balancers are the load balancers that were found, by their Ingresses in the order of the question; nil where none was.
	Balancers []argov1.ALBStatus
}
