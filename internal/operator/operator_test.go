package operator

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/serin-dev/serin/internal/sharding"
)

func TestEachInstanceIDHasItsOwnLease(t *testing.T) {
	seen := map[string]string{}
	for _, leader := range []string{"serin", "serin-blue"} {
		for _, name := range append(sharding.LeaseNames(leader, 4), leader+"-member-a") {
			seen[name] = "a shard or a member of " + leader
		}
	}
	for _, id := range []string{"", "blue", "green", "Blue", "a_b", "a.b", "shard-3", "blue-shard-3", "member-a", strings.Repeat("x", 63), strings.Repeat("X", 63)} {
		name := LeaseName(id)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%q: Lease %q: %v", id, name, problems)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%q and %q share Lease %q", id, other, name)
		}
		seen[name] = id
	}
	if LeaseName("") != "serin" || LeaseName("blue") != "serin-blue" {
		t.Errorf("Leases %q, %q: existing roles contain the names serin and serin-blue", LeaseName(""), LeaseName("blue"))
	}
}
