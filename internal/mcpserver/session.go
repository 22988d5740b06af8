// Package mcpserver is PandaStack for programs that speak the Model Context
// Protocol: tools by which a model runs code and commands in a sandbox, works
// with its files and makes, copies and ends sandboxes, and resources for files
// and figures. Package cli serves it over standard input and output, package
// daemon over HTTP.
//
// It is a client of the HTTP API like any other: every call goes through
// sdk/go with the key of who asks, so that scopes, limits and workspaces hold.
// It decides nothing about sandboxes and knows no driver.
package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// What a session does when nothing else is said.
const (
	DefaultTemplate = "code-interpreter"
	DefaultTTL      = time.Hour
)

const (
	farewell     = 20 * time.Second // for ending a session's sandboxes
	maxSandboxes = 16               // that one session may have at once
)

// Options say what a session works with.
type Options struct {
	Version string
	// Template is what sandboxes are made from; "" for code-interpreter.
	Template string
	// TTL is how long a sandbox of the session outlives the last call to it; 0
	// for an hour.
	TTL time.Duration
	// Sandbox is one that is there already. The session works in it, never makes
	// another by itself and does not end it. "": it makes one at the first call.
	Sandbox string
	Log     *slog.Logger // nil for none

	versions []string // of the protocol; nil for all
	id       string   // of the session over HTTP
	stock    *stock   // of all sessions of its key; nil for one of its own
}

// Session is one client's conversation. It keeps a sandbox from call to call.
// Close it.
type Session struct {
	client *pandastack.Client
	opts   Options
	server *mcp.Server
	store  shelf
	turns  turns
	life   context.Context // of the session's calls
	end    context.CancelFunc

	making  sync.Mutex // held while a sandbox is made or looked at
	mu      sync.Mutex
	current string
	own     map[string]bool // sandboxes that end with the session
	closed  bool
}

// New makes a session whose calls are made by client.
func New(client *pandastack.Client, o Options) *Session {
	if o.Template == "" {
		o.Template = DefaultTemplate
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Session{client: client, opts: o, current: o.Sandbox, own: map[string]bool{}, turns: turns{of: map[string]*turn{}}}
	if s.opts.stock == nil {
		s.opts.stock = new(stock)
	}
	s.life, s.end = context.WithCancel(context.Background())
	so := &mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{}, SchemaCache: schemas, SupportedProtocolVersions: o.versions}
	if o.id != "" {
		so.GetSessionID = func() string { return o.id }
	}
	s.server = mcp.NewServer(&mcp.Implementation{Name: "pandastack", Title: "PandaStack sandboxes", Version: o.Version}, so)
	s.addTools()
	s.addResources()
	return s
}

// schemas are those of the tools, which are the same in every session.
var schemas = mcp.NewSchemaCache()

const instructions = "Runs code in an isolated Linux sandbox. The first call makes a sandbox; variables, files and processes stay from call to call. " +
	"Leave sandbox_id out to work in it. When it has ended, the next call makes a fresh one and says so. The network is closed unless the server's operator opened it."

// Server is what to connect transports to: one.
func (s *Session) Server() *mcp.Server { return s.server }

// Close gives up the session's calls and ends its sandboxes. It may be called
// more than once.
func (s *Session) Close(ctx context.Context) error {
	s.end()
	s.mu.Lock()
	s.closed = true
	own := s.own
	s.own = map[string]bool{}
	s.mu.Unlock()
	s.clear()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	var failed []error
	for id := range own {
		if err := s.client.Sandbox(id).Kill(ctx); err != nil && !errors.Is(err, pandastack.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// turns lets one call at a time into a code context, so that who gives up
// waiting stops nobody else's cell.
type turns struct {
	mu sync.Mutex
	of map[string]*turn // of contexts that somebody is in or waits for: their names are the client's
}

type turn struct {
	taken  chan struct{}
	wanted int // by so many; turns.mu guards it
}

func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	if t.of[name] == nil {
		t.of[name] = &turn{taken: make(chan struct{}, 1)}
	}
	mine := t.of[name]
	mine.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.wanted--; mine.wanted == 0 {
			delete(t.of, name)
		}
	}
	select {
	case mine.taken <- struct{}{}:
		return func() { <-mine.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
