package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/internal/daemon"
	"github.com/pandastack/pandastack/internal/mcpserver"
)

type mcpCmd struct {
	Sandbox  string        `help:"Work in this sandbox, which is not ended with the session; without it the first call makes one." placeholder:"ID"`
	Template string        `default:"code-interpreter" help:"Template of the sandboxes that it makes."`
	TTL      time.Duration `name:"ttl" default:"1h" help:"How long its sandbox outlives the last call to it, should this program be killed." placeholder:"DURATION"`
}

// Run speaks until standard input ends.
func (c *mcpCmd) Run(a *app) (err error) {
	if c.TTL < time.Second {
		return usageError{errors.New("--ttl must be a second or more")}
	}
	if a.InTerm {
		a.say("this speaks the Model Context Protocol on standard input and output: let a client start it, see docs/mcp.md. Ctrl-D ends it.")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	session := mcpserver.New(client, mcpserver.Options{
		Version: daemon.Version("").Version, Template: c.Template, TTL: c.TTL, Sandbox: c.Sandbox, Log: a.logger("text", "warn"),
	})
	defer func() { err = errors.Join(err, session.Close(context.WithoutCancel(a.ctx))) }()
	in, out := io.NopCloser(a.In), nopCloser{a.Out}
	err = session.Server().Run(a.ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if a.ctx.Err() != nil || errors.Is(err, io.EOF) { // it was told to end, or its client has gone
		return nil
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
