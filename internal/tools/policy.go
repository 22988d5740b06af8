package tools

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// facts are what a policy looks at.
type facts struct {
	tool      *Tool
	arguments json.RawMessage
	advice    []api.AgentAdvice
	unread    bool // what reading the cell says is not known: then rules about that fit, unless they allow
}

// decide gives what becomes of a call, and which part of the policy says so.
func decide(p api.ToolPolicy, f facts) (action, why string) {
	for i, r := range p.Rules {
		if fits(r, f) {
			return r.Action, fmt.Sprintf("rule %d", i+1)
		}
	}
	switch {
	case p.Approve == api.ApproveAlways:
		return api.RuleAsk, "approve always"
	case p.Approve == api.ApproveRisky && f.tool.Risky:
		return api.RuleAsk, "approve risky"
	case p.Approve == api.ApproveRisky:
		return api.RuleAllow, "approve risky"
	}
	return api.RuleAllow, "approve never"
}

func fits(r api.ToolRule, f facts) bool {
	if r.Tool != "" && !glob(r.Tool, f.tool.Name) {
		return false
	}
	if r.Host != "" && !glob(strings.ToLower(r.Host), strings.ToLower(f.tool.Host)) {
		return false
	}
	if r.Advice != "" && f.unread && r.Action == api.RuleAllow {
		return false
	}
	if r.Advice != "" && !f.unread {
		found := false
		for _, a := range f.advice {
			found = found || glob(r.Advice, a.Kind)
		}
		if !found {
			return false
		}
	}
	if len(r.Arguments) == 0 {
		return true
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(f.arguments, &args) != nil {
		return false
	}
	for name, pattern := range r.Arguments {
		raw, there := args[name]
		if !there {
			return false
		}
		text := string(raw)
		var s string
		if json.Unmarshal(raw, &s) == nil {
			text = s
		}
		if !glob(pattern, text) {
			return false
		}
	}
	return true
}

// glob matches a whole string; * is any letters.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}

// anyGlob tells whether one of the patterns matches; none at all match everything.
func anyGlob(patterns []string, s string) bool {
	for _, p := range patterns {
		if glob(p, s) {
			return true
		}
	}
	return len(patterns) == 0
}
