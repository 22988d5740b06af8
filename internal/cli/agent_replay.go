package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm/scripted"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type agentReplayCmd struct {
	ID   string   `arg:"" help:"Id of the run."`
	File []string `help:"Files that the run was given; what was in them is not in its transcript." placeholder:"FILE"`
}

func (c *agentReplayCmd) Help() string {
	return "What the model said is taken from the transcript: no model is asked, and nothing is paid. Its replies are served on loopback, so this is for the server's own machine, and needs an admin key. " +
		"The exit code is 0 when the same came of every cell."
}

// replayed is a cell, then and now.
type replayed struct {
	Turn  int    `json:"turn"`
	Index int    `json:"index"`
	Same  bool   `json:"same"`
	Then  string `json:"then"` // as the model was shown it
	Now   string `json:"now"`
}

// replay is the answer to programs.
type replay struct {
	Run   api.AgentRun `json:"run"` // the new one
	Cells []replayed   `json:"cells"`
}

func (c *agentReplayCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	old, err := client.GetAgent(a.ctx, c.ID)
	if err != nil {
		return err
	}
	transcript, err := old.Transcript(a.ctx)
	if err != nil {
		return err
	}
	url, stop, err := playBack(transcript)
	if err != nil {
		return err
	}
	defer stop()
	var now []api.AgentEvent
	req, err := c.again(transcript, url)
	if err != nil {
		return err
	}
	run, err := a.agent(pandastack.AgentOptions{AgentRequest: req}, func(e api.AgentEvent) { now = append(now, e) })
	if err != nil {
		return err
	}
	cells := compared(outcomes(transcript), outcomes(now))
	if a.flags.JSON {
		if err := a.json(replay{run.Info, cells}); err != nil {
			return err
		}
	}
	differ := 0
	for _, cell := range cells {
		words := "the same"
		if !cell.Same {
			words = "otherwise"
			differ++
		}
		if a.flags.JSON || a.flags.Quiet && cell.Same {
			continue
		}
		fmt.Fprintf(a.Out, "turn %d, cell %d: %s\n", cell.Turn, cell.Index, words)
		if !cell.Same {
			fmt.Fprintf(a.Out, "--- then\n%s\n--- now\n%s\n", text(cell.Then), text(cell.Now))
		}
	}
	if differ > 0 {
		a.say("%d of %d cells came out otherwise", differ, len(cells))
		return failed(exitFailed)
	}
	a.say("the same came of all %d cells", len(cells))
	return nil
}

// playBack serves the model's replies of a transcript on loopback.
func playBack(transcript []api.AgentEvent) (url string, stop func(), err error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, e := range transcript {
		if err := enc.Encode(e); err != nil {
			return "", nil, err
		}
	}
	script, err := scripted.Recorded(&lines)
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: &scripted.Server{Script: script}, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String() + "/v1", func() { _ = errors.Join(srv.Close(), <-served) }, nil
}

// again asks for the same as a run did, of what was recorded. A sandbox of its
// caller's may not be as it was: a new one takes its place.
func (c *agentReplayCmd) again(transcript []api.AgentEvent, url string) (req api.AgentRequest, err error) {
	for _, e := range transcript {
		if e.Type == api.AgentEventStarted && e.Request != nil {
			req = *e.Request
		}
	}
	req.Model, req.BaseURL, req.SandboxID, req.Keep = "openai:recorded", url, "", ""
	given, err := (&agentRunCmd{File: c.File}).files()
	if err != nil {
		return req, err
	}
	for _, f := range req.Files {
		if !slices.ContainsFunc(given, func(g api.AgentFile) bool { return g.Path == path.Base(f.Path) }) {
			return req, usageError{fmt.Errorf("the run was given %s: name it with --file", f.Path)}
		}
	}
	req.Files = given
	return req, nil
}

// placed is the outcome of a cell, and where it was.
type placed struct {
	turn int
	api.AgentOutcome
}

func outcomes(events []api.AgentEvent) (all []placed) {
	for _, e := range events {
		if e.Outcome != nil {
			all = append(all, placed{e.Turn, *e.Outcome})
		}
	}
	return all
}

// compared holds cells against each other, in the order in which they ran.
func compared(then, now []placed) []replayed {
	cells := []replayed{}
	for i := range max(len(then), len(now)) {
		var c replayed
		var one, other string
		if i < len(then) {
			c.Turn, c.Index, c.Then, one = then[i].turn, then[i].Index, then[i].Text, then[i].Digest
		}
		if i < len(now) {
			c.Turn, c.Index, c.Now, other = now[i].turn, now[i].Index, now[i].Text, now[i].Digest
		}
		c.Same = one == other
		cells = append(cells, c)
	}
	return cells
}
