package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxForwardCmd struct {
	ID    string   `arg:"" help:"Id of the sandbox."`
	Ports []string `arg:"" name:"ports" placeholder:"[LOCAL:]REMOTE" help:"Port of this machine, and port of the sandbox; the same when there is one, any that is free when LOCAL is 0."`
	Bind  string   `default:"127.0.0.1" help:"Address of this machine to listen on. Any but a loopback address lets others in."`
}

// Run forwards until it is interrupted. Connections come and go meanwhile; each
// is one of its own into the sandbox, whatever it speaks.
func (c *sandboxForwardCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if err := sb.Refresh(a.ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	for _, words := range c.Ports {
		local, remote, err := parseForward(words)
		if err != nil {
			return usageError{err}
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(c.Bind, strconv.Itoa(local)))
		if err != nil {
			return fault.Wrap(err, api.CodeConflict, "this machine's port %d cannot be listened on", local).WithHint("choose another: %d:%d", local+1, remote)
		}
		context.AfterFunc(ctx, func() { ln.Close() })
		if a.flags.JSON {
			err = a.json(map[string]any{"local": ln.Addr().String(), "port": remote})
		} else {
			_, err = fmt.Fprintf(a.Out, "%s → port %d of %s\n", ln.Addr(), remote, c.ID)
		}
		if err != nil {
			return err
		}
		wg.Go(func() { a.forward(ctx, ln, sb, remote, &wg) })
	}
	<-ctx.Done()
	return nil
}

// parseForward reads "8888:80", "80", or "0:80".
func parseForward(s string) (local, remote int, err error) {
	first, second, two := strings.Cut(s, ":")
	if !two {
		second = first
	}
	local, lerr := strconv.Atoi(first)
	remote, rerr := strconv.Atoi(second)
	if lerr != nil || rerr != nil || local < 0 || local > 65535 || remote < 1 || remote > 65535 {
		return 0, 0, fmt.Errorf("%q is not [LOCAL:]REMOTE with ports between 1 and 65535", s)
	}
	return local, remote, nil
}

func (a *app) forward(ctx context.Context, ln net.Listener, sb *pandastack.Sandbox, port int, wg *sync.WaitGroup) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return // it was closed: we are done
		}
		wg.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := carry(ctx, conn.(*net.TCPConn), sb, port); err != nil && ctx.Err() == nil {
				a.say("a connection to port %d: %s", port, plain(err.Error()))
			}
		})
	}
}

// carry passes bytes both ways until both sides have ended, or one has broken.
func carry(ctx context.Context, local *net.TCPConn, sb *pandastack.Sandbox, port int) error {
	remote, err := sb.Dial(ctx, port)
	if err != nil {
		_ = local.SetLinger(0) // the program here sees a reset, as if nobody listened
		return err
	}
	defer remote.Close()
	defer context.AfterFunc(ctx, func() { remote.Close() })()
	up := make(chan error, 1)
	go func() {
		_, err := io.Copy(struct{ io.Writer }{remote}, local)
		if err == nil {
			err = remote.CloseWrite()
		} else {
			remote.Close() // the program here is gone
		}
		up <- err
	}()
	_, err = io.Copy(local, struct{ io.Reader }{remote})
	if err == nil {
		err = local.CloseWrite()
	}
	if err != nil {
		_ = local.SetLinger(0)
		local.Close()
		remote.Close()
		<-up
		return err
	}
	return <-up
}
