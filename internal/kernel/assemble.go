package kernel

import (
	"iter"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/capture"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	maxResults      = 1000
	maxResultsBytes = 64 << 20
)

// assemble puts an Execution together from its events. What it holds is taken
// from a share; what the share has no room for is left out and said to be.
func assemble(events iter.Seq2[api.Event, error], share *share) (api.Execution, error) {
	a := assembly{
		stdout: capture.New(guestapi.KeepHead, guestapi.KeepTail),
		stderr: capture.New(guestapi.KeepHead, guestapi.KeepTail),
		share:  share,
	}
	for e, err := range events {
		if err != nil {
			return api.Execution{}, err
		}
		if e.Type == api.EventEnd {
			return a.execution(*e.Execution), nil
		}
		a.add(e)
	}
	return api.Execution{}, fault.New(api.CodeInternal, "the execution ended without saying how")
}

type assembly struct {
	stdout, stderr *capture.Buffer
	last, shown    []api.Event // results: the last expression, and displays
	count          int         // of the started event
	size           int
	left           int            // results that were left out
	share          *share         // of what all assemblies may hold
	held           map[string]int // of it, by stream
}

func (a *assembly) stream(name string) *capture.Buffer {
	if name == "stderr" {
		return a.stderr
	}
	return a.stdout
}

func (a *assembly) add(e api.Event) {
	switch e.Type {
	case api.EventStarted:
		a.count = e.ExecutionCount
	case api.EventStdout, api.EventStderr:
		a.text(e.Type, e.Text+string(e.Raw))
	case api.EventGap:
		a.stream(e.Stream).Gap(e.Dropped)
	case api.EventResult:
		a.result(e)
	}
}

// text keeps output, of which no more is held than what a stream may have.
func (a *assembly) text(name, text string) {
	if a.held == nil {
		a.held = map[string]int{}
	}
	more := min(len(text), guestapi.KeepHead+guestapi.KeepTail-a.held[name])
	if !a.share.take(more) {
		a.stream(name).Gap(int64(len(text)))
		return
	}
	a.held[name] += more
	a.stream(name).Add(text)
}

func (a *assembly) result(e api.Event) {
	size := 0
	for t, data := range e.Data {
		size += len(t) + len(data)
	}
	for k, v := range e.Metadata {
		size += len(k) + len(v)
	}
	if len(a.last)+len(a.shown) >= maxResults || a.size+size > maxResultsBytes || !a.share.take(size) {
		a.left++
		return
	}
	a.size += size
	if e.IsLastExpression {
		a.last = append(a.last, e)
	} else {
		a.shown = append(a.shown, e)
	}
}

// execution completes what the end event said. The value of the last
// expression comes first, displays follow in their order.
func (a *assembly) execution(x api.Execution) api.Execution {
	if x.ExecutionCount == 0 {
		x.ExecutionCount = a.count
	}
	x.Stdout, x.StdoutDropped = a.stdout.Text(x.OutputPath)
	x.Stderr, x.StderrDropped = a.stderr.Text(x.OutputPath)
	x.ResultsDropped = a.left
	x.Truncated = x.Truncated || a.left > 0 || x.StdoutDropped > 0 || x.StderrDropped > 0
	x.Results, x.ResultsMeta = []api.Bundle{}, []api.ResultMeta{}
	for _, e := range append(a.last, a.shown...) {
		x.Results = append(x.Results, e.Data)
		x.ResultsMeta = append(x.ResultsMeta, api.ResultMeta{IsLastExpression: e.IsLastExpression, Metadata: e.Metadata})
	}
	x.Exit = 0
	if x.End != api.EndOK {
		x.Exit = 1
	}
	x.ExitCode = x.Exit
	return x
}
