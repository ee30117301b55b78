package canary

import (
	"fmt"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// noDataMessage is the message of a check whose query returned no data, followed by the cause.
const noDataMessage = "no values found"

// noDataCause explains why the query of a check returned no data: from the most certain observation to the least; empty: nothing
// explains it.
func noDataCause(s Snapshot, answer release.Answer) string {
	primaryData, _ := answer.Detail.(PrimaryData)
	service, endpoints := s.Plan.serviceName("canary"), s.Workload.Target.Endpoints
	switch {
	case endpoints.Unknown == "" && endpoints.NoService:
		return "Service " + service + " does not exist"
	case endpoints.Unknown == "" && endpoints.Ready == 0:
		return "Service " + service + " has no endpoints, so no request reaches the canary"
	case primaryData == PrimaryHasData && s.servesNoUsers():
		return fmt.Sprintf("the same query has data for %s-primary, and the canary receives no requests from users in this step: %s", s.Plan.Target, loadAdvice(s))
	case primaryData == PrimaryHasData:
		return fmt.Sprintf("the same query has data for %s-primary, so the canary receives no requests: check the route, and that there is enough traffic for its weight", s.Plan.Target)
	case s.Workload.PortWarning != "":
		return s.Workload.PortWarning
	case s.servesNoUsers():
		return "the canary receives no requests from users in this step: " + loadAdvice(s)
	case primaryData == PrimaryHasNoData:
		return fmt.Sprintf("the same query has no data for %s-primary either: check that there is traffic, and that the metrics of the pods are collected", s.Plan.Target)
	default:
		return ""
	}
}

// servesNoUsers reports whether the current step of a release sends the canary no requests of users, nor copies of them.
func (s *Snapshot) servesNoUsers() bool { return s.currentWeight() == 0 && !s.Route.Mirrored }

// loadAdvice describes how the canary gets requests in a step without users.
func loadAdvice(s Snapshot) string {
	var names []string
	for _, hook := range s.Plan.hooksOfType(flaggerv1.RolloutHook) {
		names = append(names, hook.Name)
	}
	service := s.Plan.serviceName("canary")
	if len(names) == 0 {
		return "add a webhook of type rollout that sends requests to " + service
	}
	return fmt.Sprintf("check that webhook %s sends requests to %s", strings.Join(names, " or "), service)
}
