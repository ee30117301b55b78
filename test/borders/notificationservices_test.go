package borders

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/notification/service"
)

// TestNotificationServicesAreDocumented: every service is in the table of notifications and, except for the chats of Flagger, in
// the list of AlertProviders.
func TestNotificationServicesAreDocumented(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/notifications.md"), "| Type | Options |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(service.Types(), documented); diff != "" {
		t.Errorf("docs/notifications.md (-services +table):\n%s", diff)
	}
	_, list, _ := strings.Cut(read(t, "docs/alertprovider.md"), "## Services\n")
	list, _, _ = strings.Cut(list, "```")
	for _, name := range alerting.Types() {
		if alerting.RequiresAddress(name) != slices.Contains(alerting.ChatTypes(), name) {
			t.Errorf("%s: inconsistent need for an address", name)
		}
		if !alerting.RequiresAddress(name) && !strings.Contains(list, "`"+name+"`") {
			t.Errorf("docs/alertprovider.md does not list %s", name)
		}
	}
}
