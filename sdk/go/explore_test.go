package pandastack

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// branches serves a fork tree whose commands end as their words say, and
// remembers which branches were ended and which promoted.
type branches struct {
	mu                sync.Mutex
	killed, promoted  []string
	refuseFrom, count int // so many of the copies can be made
}

func (b *branches) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := strings.Split(r.URL.Path, "/")[3]
	switch {
	case strings.HasSuffix(r.URL.Path, "/fork-tree"):
		var req api.ForkRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		f := api.Fork{TreeID: "tree"}
		for i := range min(*req.Count, cmpOr(b.refuseFrom, 16)) {
			f.Children = append(f.Children, api.SandboxInfo{ID: fmt.Sprint("b", i)})
		}
		_ = json.NewEncoder(w).Encode(f)
	case strings.HasSuffix(r.URL.Path, "/exec"):
		var req api.ExecRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		res := api.ExecResult{DurationMS: 5}
		switch cmd := req.Cmd.Shell; {
		case cmd == "bad":
			res.ExitCode = 1
		case cmd == "quick":
			res.DurationMS = 1
		case strings.HasPrefix(cmd, "find "):
			res.Stdout = "/workspace/made\n"
		default:
			res.Stdout = cmd
		}
		_ = json.NewEncoder(w).Encode(res)
	case strings.HasSuffix(r.URL.Path, "/promote"):
		b.promoted = append(b.promoted, id)
		_ = json.NewEncoder(w).Encode(api.Promotion{Winner: id})
	case r.Method == http.MethodDelete:
		b.killed = append(b.killed, id)
	}
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}

func candidates(cmds ...string) (list []Candidate) {
	for _, c := range cmds {
		list = append(list, Candidate{Cmd: Shell(c), Label: c})
	}
	return list
}

func TestExplore(t *testing.T) {
	length := func(o *Outcome) float64 { return float64(len(o.Stdout)) }
	for name, tc := range map[string]struct {
		cmds   []string
		o      ExploreOptions
		refuse int
		winner string
		killed []string
	}{
		"what succeeds":             {cmds: []string{"bad", "good"}, winner: "b1", killed: []string{"b0"}},
		"of equals the quickest":    {cmds: []string{"good", "quick", "good"}, winner: "b1", killed: []string{"b0", "b2"}},
		"the highest score":         {cmds: []string{"a", "aaa", "aa"}, o: ExploreOptions{Score: length}, winner: "b1", killed: []string{"b0", "b2"}},
		"the lowest score":          {cmds: []string{"aa", "a", "aaa"}, o: ExploreOptions{Score: length, Lowest: true}, winner: "b1", killed: []string{"b0", "b2"}},
		"NaN is not chosen":         {cmds: []string{"aa", "a"}, o: ExploreOptions{Score: func(o *Outcome) float64 { return map[string]float64{"aa": math.NaN(), "a": 0}[o.Stdout] }}, winner: "b1", killed: []string{"b0"}},
		"failures where they may":   {cmds: []string{"good", "bad"}, o: ExploreOptions{AllowFailures: true, Score: func(o *Outcome) float64 { return float64(o.ExitCode) }}, winner: "b1", killed: []string{"b0"}},
		"losers that stay":          {cmds: []string{"bad", "good"}, o: ExploreOptions{KeepLosers: true}, winner: "b1"},
		"a branch that is not made": {cmds: []string{"good", "good"}, refuse: 1, winner: "b0"},
		"nothing":                   {cmds: []string{"bad", "bad"}, killed: []string{"b0", "b1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &branches{refuseFrom: tc.refuse}
			c := serve(t, b.serve)
			x, err := c.Sandbox("sb-1").Explore(t.Context(), candidates(tc.cmds...), tc.o)
			slices.Sort(b.killed)
			if !slices.Equal(b.killed, tc.killed) {
				t.Errorf("ended %q, want %q", b.killed, tc.killed)
			}
			var none *ExploreError
			if tc.winner == "" {
				if !errors.As(err, &none) || len(none.Exploration.Outcomes) != len(tc.cmds) || b.promoted != nil {
					t.Errorf("%v, promoted %q", err, b.promoted)
				}
				return
			}
			if err != nil || x.Winner.ID != tc.winner || x.TreeID != "tree" || !slices.Equal(b.promoted, []string{tc.winner}) {
				t.Fatalf("%+v, %v, promoted %q", x, err, b.promoted)
			}
			if len(x.Errors) != len(tc.cmds)-len(x.Outcomes) || !slices.Equal(x.WinnerOutcome.Files, []string{"/workspace/made"}) {
				t.Errorf("errors %q, files %q", x.Errors, x.WinnerOutcome.Files)
			}
		})
	}
	c := serve(t, (&branches{}).serve)
	if _, err := c.Sandbox("sb-1").Explore(t.Context(), nil, ExploreOptions{}); err == nil {
		t.Error("nothing to explore is no error")
	}
}
