// Package albtest simulates a region of AWS with load balancers for tests: a server that implements the API's protocol.
//
// It must not know who calls it, nor how the responses are used.
package albtest

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Region is a region of AWS with load balancers, with the part of the API that Serin calls. Its fields may be set before it
// serves; later, Change changes them.
type Region struct {
	mu        sync.Mutex
	Balancers []*Balancer
	// Tags are the tags with the purpose of target groups, and Targets their targets, by ARN.
	Tags    map[string]string
	Targets map[string][]Target
	// PageSize of all lists; Refuse has the error codes with which calls are refused, by the name of the call.
	PageSize int
	Refuse   map[string]string
	// Calls are the received calls, and Signed is the signature of the last one.
	Calls  []string
	Signed string
}

// Balancer is a load balancer: ARN, name, host name, type (empty: application), the ARNs of its target groups, and for each of
// its listeners the rules, as weights of target groups.
type Balancer struct {
	ARN, Name, Host, Type string
	Groups                []string
	Listeners             [][]map[string]int
}

// Target is an address in a target group, and its health.
type Target struct {
	IP         string
	Port       int
	State, Why string
}

// Change changes the region while it serves.
func (r *Region) Change(how func(*Region)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(r)
}

// Serve starts the region, and returns the environment variables of a process in it, isolated from the configuration of the
// machine.
func (r *Region) Serve(t testing.TB) map[string]string {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	missing := filepath.Join(t.TempDir(), "missing")
	return map[string]string{
		"AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2": server.URL, "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "hush",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": missing, "AWS_SHARED_CREDENTIALS_FILE": missing, "AWS_EC2_METADATA_DISABLED": "true",
	}
}

// member is an element of a list in the protocol.
type member struct {
	XMLName xml.Name
	Text    string   `xml:",chardata"`
	Inside  []member `xml:",any"`
}

func element(name, text string, inside ...member) member {
	return member{XMLName: xml.Name{Local: name}, Text: text, Inside: inside}
}

func list(name string, all []member) member {
	for i := range all {
		all[i].XMLName.Local = "member"
	}
	return element(name, "", all...)
}

// ServeHTTP implements http.Handler.
func (r *Region) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := request.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call := request.PostForm.Get("Action")
	r.Calls, r.Signed = append(r.Calls, call), request.Header.Get("Authorization")
	w.Header().Set("Content-Type", "text/xml")
	if code := r.Refuse[call]; code != "" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>User arn:aws:iam::1:user/secret is not authorized</Message></Error><RequestId>1</RequestId></ErrorResponse>", code)
		return
	}
	name, all := r.answer(call, request)
	result := element(call+"Result", "")
	if call == "DescribeTags" || call == "DescribeTargetHealth" { // are not paginated
		result.Inside = []member{list(name, all)}
	} else {
		result.Inside = r.page(name, all, request.PostForm.Get("Marker"))
	}
	if err := xml.NewEncoder(w).Encode(element(call+"Response", "", result)); err != nil {
		panic(err)
	}
}

func (r *Region) page(name string, all []member, marker string) []member {
	from := 0
	if marker != "" {
		if _, err := fmt.Sscanf(marker, "from-%d", &from); err != nil {
			panic(err)
		}
	}
	size := max(r.PageSize, 1)
	page := []member{list(name, all[from:min(from+size, len(all))])}
	if from+size < len(all) {
		page = append(page, element("NextMarker", fmt.Sprintf("from-%d", from+size)))
	}
	return page
}

func (r *Region) answer(call string, request *http.Request) (name string, all []member) {
	form := request.PostForm
	switch call {
	case "DescribeLoadBalancers":
		for _, b := range r.Balancers {
			all = append(all, element("", "", element("LoadBalancerArn", b.ARN), element("LoadBalancerName", b.Name), element("DNSName", b.Host),
				element("Type", cmp.Or(b.Type, "application"))))
		}
		return "LoadBalancers", all
	case "DescribeTargetGroups":
		for _, arn := range r.balancer(form.Get("LoadBalancerArn")).Groups {
			all = append(all, element("", "", element("TargetGroupArn", arn), element("TargetGroupName", arn[strings.LastIndex(arn, ":")+1:])))
		}
		return "TargetGroups", all
	case "DescribeTags":
		for i := 1; form.Get(fmt.Sprintf("ResourceArns.member.%d", i)) != ""; i++ {
			arn := form.Get(fmt.Sprintf("ResourceArns.member.%d", i))
			tags := []member{element("", "", element("Key", "team"), element("Value", "shop")), element("", "", element("Key", "ingress.k8s.aws/resource"), element("Value", r.Tags[arn]))}
			all = append(all, element("", "", element("ResourceArn", arn), list("Tags", tags)))
		}
		return "TagDescriptions", all
	case "DescribeListeners":
		b := r.balancer(form.Get("LoadBalancerArn"))
		for i := range b.Listeners {
			all = append(all, element("", "", element("ListenerArn", fmt.Sprintf("%s/%d", b.ARN, i))))
		}
		return "Listeners", all
	case "DescribeRules":
		for _, groups := range r.listener(form.Get("ListenerArn")) {
			var weights []member
			for _, arn := range sorted(groups) {
				weights = append(weights, element("", "", element("TargetGroupArn", arn), element("Weight", fmt.Sprint(groups[arn]))))
			}
			action := element("", "", element("Type", "forward"), element("ForwardConfig", "", list("TargetGroups", weights)))
			all = append(all, element("", "", list("Actions", []member{element("", "", element("Type", "authenticate-oidc")), action})))
		}
		return "Rules", all
	case "DescribeTargetHealth":
		for _, t := range r.Targets[form.Get("TargetGroupArn")] {
			all = append(all, element("", "", element("Target", "", element("Id", t.IP), element("Port", fmt.Sprint(t.Port))),
				element("TargetHealth", "", element("State", t.State), element("Reason", t.Why))))
		}
		return "TargetHealthDescriptions", all
	default:
		panic("unexpected call " + call)
	}
}

func sorted(groups map[string]int) []string {
	var arns []string
	for arn := range groups {
		arns = append(arns, arn)
	}
	slices.Sort(arns)
	return arns
}

func (r *Region) balancer(arn string) *Balancer {
	for _, b := range r.Balancers {
		if b.ARN == arn {
			return b
		}
	}
	return &Balancer{}
}

func (r *Region) listener(arn string) []map[string]int {
	for _, b := range r.Balancers {
		for i, rules := range b.Listeners {
			if fmt.Sprintf("%s/%d", b.ARN, i) == arn {
				return rules
			}
		}
	}
	return nil
}
