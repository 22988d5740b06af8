package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// apart says how far a fork is what its run was.
func apart(f *api.AgentForked) string {
	words := fmt.Sprintf("from here on another way than %s at turn %d", f.Of, f.At)
	if f.SnapshotID != "" {
		return words + "; the state before it was restored from the snapshot " + f.SnapshotID
	}
	if f.Cells == 0 {
		return words
	}
	if words += fmt.Sprintf("; the cells before ran again: %d of %d show the same", f.Cells-len(f.Differ), f.Cells); len(f.Differ) > 0 {
		words += ", not " + plain(strings.Join(f.Differ, "; "))
	}
	if f.Outside {
		words += "; they had tools or a network, where what they did happened once more"
	}
	return words
}

type agentReplayCmd struct {
	ID      string            `arg:"" help:"Id of the run."`
	Keep    string            `help:"What becomes of the sandbox at the end." enum:"kill,keep,snapshot" default:"kill"`
	Secret  map[string]string `help:"For a run that had secrets by value: add one that the server keeps to requests for a host, as HOST=NAME." placeholder:"HOST=NAME"`
	File    []string          `help:"For an analyst's run, with those that it follows: a file of its data; may be repeated." placeholder:"FILE" type:"existingfile" sep:"none" xor:"where"`
	Sandbox string            `help:"For the same: a sandbox that has the files, and is left to you." placeholder:"ID" xor:"where"`
}

// replayedCell is a cell of a run beside the same cell run again.
type replayedCell struct {
	Run    string `json:"run"` // the first one
	Turn   int    `json:"turn"`
	Index  int    `json:"index"`
	Same   bool   `json:"same"`
	Before string `json:"before"` // what the model was shown
	After  string `json:"after"`
}

const replayTTL = 2 * time.Hour // of a sandbox for the files of an analyst

// Run runs the cells of a run again and says where what they show differs. Of an
// analyst's run those before it come first, since it has their variables.
func (c *agentReplayCmd) Run(a *app) (err error) {
	client, err := a.client()
	if err != nil {
		return err
	}
	last, err := client.GetAgent(a.ctx, c.ID)
	if err != nil {
		return err
	}
	runs := []*pandastack.AgentRun{last}
	for runs[0].Info.Follows != "" && c.Sandbox+strings.Join(c.File, "") != "" {
		before, err := client.GetAgent(a.ctx, runs[0].Info.Follows)
		if err != nil {
			return err
		}
		runs = append([]*pandastack.AgentRun{before}, runs...)
	}
	req := api.AgentRequest{Keep: c.Keep, Secrets: opening{Secret: c.Secret}.secrets(), SandboxID: c.Sandbox}
	if len(c.File) > 0 {
		ttl := int(replayTTL.Seconds())
		sb, err := a.create(client, pandastack.CreateOptions{Template: "code-interpreter", TTLSeconds: &ttl})
		if err != nil {
			return err
		}
		if c.Keep == "kill" {
			defer func() { err = errors.Join(err, a.undo(sb.Kill)) }()
		} else {
			a.stays(sb, ttl)
		}
		for _, f := range c.File {
			if _, err := a.sendFile(sb, f, analystFolder+"/"+filepath.Base(f)); err != nil {
				return err
			}
		}
		req.SandboxID = sb.ID
	}
	if req.SandboxID != "" {
		req.Keep = "" // it is not the run's
	}
	cells := []replayedCell{}
	var again *pandastack.AgentRun
	for _, run := range runs {
		req.ReplayOf = run.ID
		if again != nil {
			req.Follows, req.SandboxID = again.ID, ""
		}
		before, err := run.Transcript(a.ctx)
		if err != nil {
			return err
		}
		if again, err = client.StartAgent(a.ctx, pandastack.AgentOptions{AgentRequest: req}); err != nil {
			return err
		}
		if err := follow(a, again, nil); err != nil {
			return err
		}
		after, err := again.Transcript(a.ctx)
		if err != nil {
			return err
		}
		cells = append(cells, besides(run.ID, before, after)...)
	}
	same := 0
	for _, cell := range cells {
		if cell.Same {
			same++
		}
	}
	if a.flags.JSON {
		err = a.json(map[string]any{"run": again.Info, "cells": cells, "same": same == len(cells)})
	} else {
		err = showReplay(a, again.ID, cells, same)
	}
	if err == nil && same != len(cells) {
		return failed(exitFailed)
	}
	return err
}

func showReplay(a *app, id string, cells []replayedCell, same int) error {
	for i, cell := range cells {
		if i > 0 && cell.Run != cells[i-1].Run {
			fmt.Fprintf(a.Out, "then %s:\n", cell.Run)
		}
		verdict := "the same"
		if !cell.Same {
			verdict = "differs"
		}
		fmt.Fprintf(a.Out, "turn %d, cell %d: %s\n", cell.Turn, cell.Index, verdict)
		if !cell.Same {
			for _, l := range difference(strings.Split(cell.Before, "\n"), strings.Split(cell.After, "\n")) {
				fmt.Fprintln(a.Out, text(l))
			}
		}
	}
	_, err := fmt.Fprintf(a.Out, "%d of %d cells show the same, times aside; the replay is %s\n", same, len(cells), id)
	return err
}

// besides pairs the outcomes of two runs by turn and number. Digests do not see
// times, addresses and the like.
func besides(run string, before, after []api.AgentEvent) []replayedCell {
	type at struct{ turn, index int }
	again := map[at]*api.AgentOutcome{}
	for _, e := range after {
		if e.Type == api.AgentEventOutcome {
			again[at{e.Turn, e.Outcome.Index}] = e.Outcome
		}
	}
	out := []replayedCell{}
	for _, e := range before {
		if e.Type != api.AgentEventOutcome {
			continue
		}
		cell := replayedCell{Run: run, Turn: e.Turn, Index: e.Outcome.Index, Before: e.Outcome.Text}
		if o := again[at{e.Turn, e.Outcome.Index}]; o != nil {
			cell.After = o.Text
			cell.Same = o.Digest == e.Outcome.Digest && len(o.Figures) == len(e.Outcome.Figures)
		} else {
			cell.After = "(it did not run)"
		}
		out = append(out, cell)
	}
	return out
}

// mostCompared bounds the lines that are compared one with another.
const mostCompared = 2000

// difference shows two texts with - and + before the lines that only one has.
func difference(a, b []string) []string {
	a, b = a[:min(len(a), mostCompared)], b[:min(len(b), mostCompared)]
	longest := make([][]int, len(a)+1) // of what the rests have in common
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if longest[i][j] = max(longest[i+1][j], longest[i][j+1]); a[i] == b[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && longest[i+1][j] >= longest[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}
