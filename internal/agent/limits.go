package agent

import (
	"math"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

// withDefaults fills in the limits that a request leaves open.
func withDefaults(l api.AgentLimits) api.AgentLimits {
	for p, def := range map[*int]int{
		&l.MaxTurns: 20, &l.MaxCells: 40, &l.MaxTokens: 500_000, &l.ObservationTokens: 4000, &l.ReplyTokens: llm.DefaultMaxTokens, &l.ConversationTokens: 100_000,
	} {
		if *p == 0 {
			*p = def
		}
	}
	if l.MaxSeconds == 0 {
		l.MaxSeconds = 900
	}
	if l.CellSeconds == 0 {
		l.CellSeconds = 15
	}
	return l
}

// checkLimits refuses what cannot be meant.
func checkLimits(l api.AgentLimits, price *api.AgentPrice) error {
	for _, c := range []struct {
		name  string
		value float64
		most  float64
	}{
		{"max_turns", float64(l.MaxTurns), 1000},
		{"max_cells", float64(l.MaxCells), 10_000},
		{"max_seconds", l.MaxSeconds, 24 * 3600},
		{"max_tokens", float64(l.MaxTokens), 1e9},
		{"max_cost_usd", l.MaxCostUSD, 1e6},
		{"cell_seconds", l.CellSeconds, 3600},
		{"observation_tokens", float64(l.ObservationTokens), 1e6},
		{"reply_tokens", float64(l.ReplyTokens), 1e6},
		{"conversation_tokens", float64(l.ConversationTokens), 1e7},
	} {
		if math.IsNaN(c.value) || c.value < 0 || c.value > c.most {
			return fault.InvalidField("limits."+c.name, "limits.%s must lie between 0 and %g, not %g", c.name, c.most, c.value)
		}
	}
	if l.ObservationTokens > 0 && l.ObservationTokens < 200 {
		return fault.InvalidField("limits.observation_tokens", "limits.observation_tokens must be at least 200, or the model would not see its tracebacks")
	}
	if price != nil {
		for _, v := range []float64{price.Input, price.Output, price.CacheRead, price.CacheWrite} {
			if math.IsNaN(v) || v < 0 || v > 1e6 {
				return fault.InvalidField("price", "a price must lie between 0 and 1000000 dollars a million tokens, not %g", v)
			}
		}
	}
	if l.MaxCostUSD > 0 && price == nil {
		return fault.InvalidField("price", "limits.max_cost_usd needs the model's price").WithHint(`give "price": {"input": …, "output": …} in dollars a million tokens`)
	}
	return nil
}

// cost is what tokens cost, in dollars.
func cost(u llm.Usage, p *api.AgentPrice) float64 {
	if p == nil {
		return 0
	}
	read, write := p.CacheRead, p.CacheWrite
	if read == 0 {
		read = p.Input
	}
	if write == 0 {
		write = p.Input
	}
	plain := u.Input - u.CacheRead - u.CacheWrite
	return (float64(plain)*p.Input + float64(u.CacheRead)*read + float64(u.CacheWrite)*write + float64(u.Output)*p.Output) / 1e6
}

const leastReply = 256 // tokens: less is not worth asking for

// room is how many tokens a reply may have, after a request of so many.
func room(run *api.AgentRun, l api.AgentLimits, p *api.AgentPrice, next int) int {
	n := min(l.ReplyTokens, l.MaxTokens-run.Usage.InputTokens-run.Usage.OutputTokens-next)
	if l.MaxCostUSD > 0 && p != nil && p.Output > 0 {
		n = min(n, int(min((l.MaxCostUSD-run.Usage.CostUSD-float64(next)*p.Input/1e6)*1e6/p.Output, 1e9)))
	}
	return max(n, min(leastReply, l.ReplyTokens))
}

// spent gives the reason to end a run before its next turn, "" when there is
// none, with words for people. next is a guess of the tokens that asking takes.
func spent(run *api.AgentRun, l api.AgentLimits, p *api.AgentPrice, elapsed time.Duration, next int) (reason, words string) {
	u := run.Usage
	switch {
	case run.Turns >= l.MaxTurns:
		return api.AgentMaxTurns, "the run had all its turns (limits.max_turns) without an answer"
	case run.Cells >= l.MaxCells:
		return api.AgentMaxCells, "the run had all its cells (limits.max_cells) without an answer"
	case elapsed.Seconds() >= l.MaxSeconds:
		return api.AgentMaxSeconds, "the run's time is over (limits.max_seconds)"
	case u.InputTokens+u.OutputTokens+next > l.MaxTokens:
		return api.AgentMaxTokens, "the next request would use more tokens than the run may (limits.max_tokens)"
	case l.MaxCostUSD > 0 && p != nil && u.CostUSD+float64(next)*p.Input/1e6 >= l.MaxCostUSD:
		return api.AgentMaxCost, "the run's money is spent, or the next request would take more than is left (limits.max_cost_usd)"
	}
	return "", ""
}
