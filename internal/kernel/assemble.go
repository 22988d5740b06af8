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

// assemble puts an Execution together from its events.
func assemble(events iter.Seq2[api.Event, error]) (api.Execution, error) {
	a := assembly{
		stdout: capture.New(guestapi.KeepHead, guestapi.KeepTail),
		stderr: capture.New(guestapi.KeepHead, guestapi.KeepTail),
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
	full           bool // some results were left out
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
		a.stream(e.Type).Add(e.Text + string(e.Raw))
	case api.EventGap:
		a.stream(e.Stream).Gap(e.Dropped)
	case api.EventResult:
		a.result(e)
	}
}

func (a *assembly) result(e api.Event) {
	size := 0
	for t, data := range e.Data {
		size += len(t) + len(data)
	}
	for k, v := range e.Metadata {
		size += len(k) + len(v)
	}
	if len(a.last)+len(a.shown) >= maxResults || a.size+size > maxResultsBytes {
		a.full = true
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
	x.Truncated = x.Truncated || a.full || x.StdoutDropped > 0 || x.StderrDropped > 0
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
