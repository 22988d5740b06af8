package mcpserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// stopTime is how long a cell or command may take to end when its caller has
// given it up.
const stopTime = 15 * time.Second

type runCodeIn struct {
	Code           string  `json:"code" jsonschema:"Python of one cell, as in a notebook: the value of the last expression is shown, figures are captured, !cmd and %magics work"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"default 30, at most 3600; the cell is then interrupted and variables stay"`
	Context        string  `json:"context,omitempty" jsonschema:"name of a separate interpreter, made on first use; default: the sandbox's main one"`
	SandboxID      string  `json:"sandbox_id,omitempty" jsonschema:"default: this session's sandbox"`
}

func (s *Session) runCode(ctx context.Context, req *mcp.CallToolRequest, in runCodeIn) (*mcp.CallToolResult, any, error) {
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	cid := firstOf(in.Context, api.DefaultContext)
	done, err := s.turns.take(ctx, p.ID+"/"+cid)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	c := &cell{session: s, place: p, progress: s.progress(ctx, req)}
	defer c.progress.stop()
	err = c.run(ctx, cid, in)
	if errors.Is(err, pandastack.ErrNotFound) && in.Context != "" && !c.started.Load() {
		if _, err := p.CreateContext(ctx, api.CreateContextRequest{ID: cid}); err != nil && !errors.Is(err, pandastack.ErrConflict) {
			return nil, nil, err
		}
		err = c.run(ctx, cid, in)
	}
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: p.told(c.blocks()), IsError: c.end.End != api.EndOK}, nil, nil
}

// cell is one run of code, made into content blocks.
type cell struct {
	session  *Session
	place    place
	progress *progress
	started  atomic.Bool
	id       string
	out      spool
	stream   string // that the last text was of
	content  []mcp.Content
	images   int
	shown    int  // results that have got a name
	results  int  // that came
	valued   bool // the value of the last expression was among them
	end      *api.Execution
}

// run runs the cell to its end. When the caller gives up, it is interrupted,
// and its end is waited for: the next one finds the interpreter idle.
func (c *cell) run(ctx context.Context, cid string, in runCodeIn) error {
	code := c.place.Context(cid)
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		if !c.started.Load() { // it waits; the server takes it back when nobody follows it
			stop(ctx.Err())
			return
		}
		limited, cancel := context.WithTimeout(running, stopTime)
		defer cancel()
		if err := code.Interrupt(limited); err != nil {
			stop(err)
			return
		}
		<-limited.Done()
		stop(ctx.Err())
	})()
	o := pandastack.RunOptions{Timeout: time.Duration(in.TimeoutSeconds * float64(time.Second))}
	for e, err := range code.Stream(running, in.Code, o) {
		if err != nil {
			return err
		}
		c.take(e)
	}
	if c.end == nil {
		return errors.New("the server did not say how the cell ended")
	}
	return ctx.Err() // of who has given up, and gets no answer
}

func (c *cell) take(e api.Event) {
	switch e.Type {
	case api.EventStarted:
		c.id = e.ExecutionID
		c.started.Store(true)
	case api.EventStdout, api.EventStderr:
		if e.Type != c.stream && (c.stream != "" || e.Type == api.EventStderr) {
			c.out.add("\n[" + e.Type + "]\n")
		}
		c.stream = e.Type
		c.out.add(e.Text)
		c.progress.say(e.Text)
	case api.EventGap:
		c.out.skip(e.Dropped)
	case api.EventResult:
		c.result(e)
	case api.EventInputRequest:
		c.out.add("\n[the cell asked for input; nobody can answer]\n")
	case api.EventEnd:
		c.end = e.Execution
	}
}

var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// result makes a block of a result: a picture where there is one, otherwise
// its text. Pictures and tables are resources, too.
func (c *cell) result(e api.Event) {
	if c.results++; c.results > maxResults && (!e.IsLastExpression || c.valued) {
		return // code shows as much as it likes
	}
	c.valued = c.valued || e.IsLastExpression
	c.flush()
	for _, mime := range pictures {
		raw, ok := e.Data[mime]
		if !ok {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(raw)
		if err != nil {
			c.content = append(c.content, text("[a picture that cannot be read: %v]", err))
			return
		}
		uri := c.keep(strings.TrimPrefix(mime, "image/"), mime, data)
		c.images++
		if c.images > maxImages || len(data) > maxImage {
			c.content = append(c.content, &mcp.ResourceLink{URI: uri, Name: "figure", MIMEType: mime, Size: new(int64(len(data)))})
			return
		}
		c.content = append(c.content, &mcp.ImageContent{Data: data, MIMEType: mime, Meta: mcp.Meta{"uri": uri}})
		return
	}
	plain, hasText := e.Data["text/plain"]
	for _, mime := range []string{"text/markdown", "text/latex", "application/json"} {
		if v, ok := e.Data[mime]; ok && !hasText {
			plain, hasText = v, true
		}
	}
	if hasText {
		c.content = append(c.content, text("%s", middle(plain, maxValue)))
	}
	for mime, ext := range map[string]string{"text/html": "html", "image/svg+xml": "svg"} {
		if v, ok := e.Data[mime]; ok {
			uri := c.keep(ext, mime, []byte(v))
			c.content = append(c.content, &mcp.ResourceLink{
				URI: uri, Name: "result as " + ext, MIMEType: mime, Size: new(int64(len(v))), Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}},
			})
			hasText = true
		}
	}
	if !hasText {
		var types []string
		for t := range e.Data {
			types = append(types, t)
		}
		c.content = append(c.content, text("[a result of the types %s, which has no text]", strings.Join(types, ", ")))
	}
}

// keep puts a result on the session's shelf and gives its URI.
func (c *cell) keep(ext, mime string, data []byte) string {
	c.shown++
	return c.session.shelve(resultURI(c.place.ID, c.id, fmt.Sprintf("%d.%s", c.shown, ext)), mime, data)
}

// flush makes a block of the text so far.
func (c *cell) flush() {
	if words := strings.Trim(c.out.String(), "\n"); words != "" {
		c.content = append(c.content, &mcp.TextContent{Text: words})
	}
	c.out, c.stream = spool{}, ""
}

func (c *cell) blocks() []mcp.Content {
	c.flush()
	x := c.end
	if x.Error != nil && *x.Error != "" {
		c.content = append(c.content, text("%s", middle(*x.Error, maxValue)))
	}
	var notes []string
	if x.End != api.EndOK {
		state := "variables are still there"
		if !x.StateSurvived {
			state = "variables are gone, the interpreter is a new one"
		}
		notes = append(notes, fmt.Sprintf("end: %s; %s", x.End, state))
	}
	if x.OutputPath != "" {
		notes = append(notes, "the whole output is in "+x.OutputPath+" of the sandbox")
	}
	if n := c.results - maxResults; n > 1 || n == 1 && !c.valued {
		notes = append(notes, fmt.Sprintf("there were %d results, of which the first %d are here", c.results, maxResults))
	}
	if x.ResultsDropped > 0 {
		notes = append(notes, fmt.Sprintf("%d results were left out", x.ResultsDropped))
	}
	if len(c.content) == 0 && len(notes) == 0 {
		notes = append(notes, "no output")
	}
	if len(notes) > 0 {
		c.content = append(c.content, text("[%s]", strings.Join(notes, "; ")))
	}
	return c.content
}
