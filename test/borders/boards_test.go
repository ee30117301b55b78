package borders

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/traffic"
)

// board is a Grafana board in config/grafana.
type board struct {
	UID        string  `json:"uid"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// panel is a panel of a board, or a row.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// TestBoardsUseExistingMetrics: each metric in a query of a board is one that Serin exposes, or one of a provider that the
// built-in checks read, with the labels that the query selects by.
func TestBoardsUseExistingMetrics(t *testing.T) {
	labels := exposedMetrics(t)
	for _, name := range providerMetrics(t) {
		labels[name] = nil
	}
	for file, b := range boards(t) {
		for _, v := range b.Templating.List {
			if v.Type == "query" {
				var query struct{ Query string }
				if err := json.Unmarshal(v.Query, &query); err != nil {
					t.Fatal(err)
				}
				checkQuery(t, file+", variable "+v.Name, query.Query, labels)
			}
		}
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				checkQuery(t, file+", "+p.Title, target.Expr, labels)
			}
		}
	}
}

// TestBoardsAreComplete: a board has an address that links can rely on, and no panel is empty, unexplained or behind another one.
func TestBoardsAreComplete(t *testing.T) {
	all := boards(t)
	if len(all) != 3 {
		t.Errorf("there are %d boards, want 3", len(all))
	}
	page := read(t, "docs/operations.md")
	for file, b := range all {
		if b.UID != "serin-"+strings.TrimSuffix(file, ".json") {
			t.Errorf("%s has the uid %q", file, b.UID)
		}
		if !strings.Contains(page, "`"+file+"`") {
			t.Errorf("docs/operations.md does not describe %s", file)
		}
		ids := map[int]bool{}
		for i, p := range b.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the id %d", file, p.ID)
			}
			ids[p.ID] = true
			if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "" || p.Title == "") {
				t.Errorf("%s, %s: a panel needs a title, a description and a query", file, p.Title)
			}
			for _, other := range b.Panels[:i] {
				a, o := p.GridPos, other.GridPos
				if a.X < o.X+o.W && o.X < a.X+a.W && a.Y < o.Y+o.H && o.Y < a.Y+a.H {
					t.Errorf("%s: panels %s and %s overlap", file, other.Title, p.Title)
				}
			}
		}
	}
}

func boards(t *testing.T) map[string]board {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/grafana/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]board{}
	for _, file := range files {
		var b board
		if err := json.Unmarshal([]byte(read(t, path.Join("config/grafana", filepath.Base(file)))), &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = b
	}
	return all
}

// providerMetrics returns the metrics in the built-in queries of all providers.
func providerMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, provider := range traffic.ProviderNames() {
		for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
			query, err := metric.Builtin(provider, name, metric.Vars{Name: "a", Namespace: "a", Target: "a", Service: "a", Ingress: "a", Route: "a", Interval: "1m"})
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range selector.FindAllStringSubmatch(query, -1) {
				if !slices.Contains(functions, part[1]) {
					names = append(names, part[1])
				}
			}
		}
	}
	return names
}
