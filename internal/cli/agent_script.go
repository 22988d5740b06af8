package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/llm/scripted"
)

type agentScriptCmd struct {
	File   string `arg:"" help:"The script, or the transcript of a run to play its replies again (.jsonl)."`
	Listen string `help:"Loopback address." default:"127.0.0.1:0" placeholder:"HOST:PORT"`
}

func (c *agentScriptCmd) Run(a *app) error {
	f, err := os.Open(c.File)
	if err != nil {
		return usageError{err}
	}
	load := scripted.Load
	if strings.HasSuffix(c.File, ".jsonl") {
		load = scripted.Recorded
	}
	script, err := load(f)
	f.Close()
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", c.File, err)}
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return usageError{err}
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		ln.Close()
		return usageError{errors.New("--listen must be a loopback address: the scripted model knows no keys")}
	}
	model := &scripted.Server{Script: script}
	srv := &http.Server{Handler: model, ReadHeaderTimeout: 10 * time.Second}
	url := "http://" + ln.Addr().String() + "/v1"
	fmt.Fprintln(a.Out, url)
	a.say("pandastack agent run TASK --model openai:scripted --base-url %s   (or anthropic:scripted)", url)
	go func() {
		<-a.ctx.Done()
		srv.Close()
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	for _, p := range model.Problems() {
		a.say("refused: %s", p)
	}
	if n := script.Left(); n > 0 {
		a.say("%d turns of the script were not asked for", n)
	}
	if len(model.Problems()) > 0 {
		return failed(exitFailed)
	}
	return nil
}
