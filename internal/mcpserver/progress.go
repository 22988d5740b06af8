package mcpserver

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	progressEvery = 500 * time.Millisecond // at most, while there is output
	progressQuiet = 5 * time.Second        // without output
	maxMessage    = 200                    // bytes of the last line
)

// progress tells a client that asked for it how a call is getting on: the
// seconds that it has taken, and the last line of output.
type progress struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	line string
	news bool
}

// progress begins to tell. Stop it before the answer.
func (s *Session) progress(ctx context.Context, req *mcp.CallToolRequest) *progress {
	ctx, end := context.WithCancel(ctx)
	p := &progress{end: end}
	token := req.Params.GetProgressToken()
	if token == nil {
		return p
	}
	p.done.Go(func() {
		began := time.Now()
		last := began
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			line, news := p.take()
			if !news && time.Since(last) < progressQuiet {
				continue
			}
			last = time.Now()
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // who is gone hears nothing
				ProgressToken: token, Progress: last.Sub(began).Seconds(), Message: firstOf(line, "running"),
			})
		}
	})
	return p
}

func (p *progress) stop() {
	p.end()
	p.done.Wait()
}

func (p *progress) take() (line string, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.news = p.news, false
	return p.line, news
}

// say takes output, of which the last line is told.
func (p *progress) say(output string) {
	lines := strings.FieldsFunc(output, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return
	}
	line := clip(strings.TrimSpace(lines[len(lines)-1]), maxMessage)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line, p.news = line, true
}
