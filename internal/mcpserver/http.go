package mcpserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// HTTPOptions are what the streamable HTTP transport works with.
type HTTPOptions struct {
	Options
	// URL is where the API is, for the calls of sessions.
	URL string
	// Silent is how long the session of a client that asks nothing is kept.
	Silent time.Duration
}

const (
	replayBytes    = 64 << 20 // of answers that all clients together may still fetch
	maxSessions    = 256      // of one key at once
	maxMessageBody = 24 << 20 // a file of 16 MB in base64
	keyLife        = 24 * time.Hour
	sessionHeader  = "Mcp-Session-Id"
)

// Handler serves MCP over HTTP. Close it before the server waits for its
// requests to end.
type Handler struct {
	opts HTTPOptions
	sdk  http.Handler
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	sessions map[string]*tracked
	stocks   map[string]*stock // by key, of those that have sessions
}

// tracked is a session, and the requests that are made in it.
type tracked struct {
	*Session
	id, key string
	refs    int
	silent  *time.Timer // while there are none
}

// slot is where the session that a request begins is put.
type slot struct{ begun *tracked }

type slotKey struct{}

// NewHandler makes the handler. Whoever calls it has been found to have a valid
// key; a session belongs to the key that began it. A path with {id} binds the
// session to that sandbox.
func NewHandler(o HTTPOptions) *Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.versions = withSessions()
	h := &Handler{opts: o, sessions: map[string]*tracked{}, stocks: map[string]*stock{}}
	h.life, h.end = context.WithCancel(context.Background())
	replay := mcp.NewMemoryEventStore(nil)
	replay.SetMaxBytes(replayBytes)
	// The SDK asks for a server with each request, also where it has the session,
	// to know the versions.
	known := mcp.NewServer(&mcp.Implementation{Name: "pandastack"}, &mcp.ServerOptions{SupportedProtocolVersions: o.versions})
	streams := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		at, _ := r.Context().Value(slotKey{}).(*slot)
		if r.Header.Get(sessionHeader) != "" || r.Method != http.MethodPost || at == nil {
			return known
		}
		if at.begun == nil {
			at.begun = h.begin(r)
		}
		return at.begun.Server()
	}, &mcp.StreamableHTTPOptions{
		EventStore: replay, Logger: o.Log, MaxRequestBodyBytes: maxMessageBody,
		// The API has looked at Host and Origin already, by its own settings.
		DisableLocalhostProtection: true,
	})
	// A session is of the key that began it, which the SDK knows as its user.
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: user(token), Expiration: time.Now().Add(keyLife)}, nil
	}
	h.sdk = auth.RequireBearerToken(verify, nil)(streams)
	return h
}

// withSessions are the versions of the protocol that have sessions over HTTP,
// as keeping a sandbox needs. Clients of later ones fall back to them.
func withSessions() []string {
	return slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v >= "2026-07-28" })
}

func bearer(r *http.Request) string {
	_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret)
}

// user stands for a key without being one.
func user(key string) string {
	hash := sha256.Sum256([]byte(key))
	return hex.EncodeToString(hash[:])
}

// Close ends the streams on which clients listen. Calls in progress go on.
func (h *Handler) Close() { h.end() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := user(bearer(r))
	if id := r.Header.Get(sessionHeader); id != "" {
		if t := h.hold(id, key); t != nil {
			if r.Method == http.MethodDelete {
				t.end() // the SDK waits for the calls in progress
				defer h.drop(t, true)
			}
			defer h.release(t)
		}
	} else if r.Method == http.MethodPost && h.count(key) >= maxSessions {
		http.Error(w, "this key has 256 MCP sessions, the most there may be", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if r.Method == http.MethodGet { // it waits for what the server may say, and would wait for ever
		defer context.AfterFunc(h.life, cancel)()
	}
	at := &slot{}
	defer func() {
		if at.begun != nil {
			h.release(at.begun)
		}
	}()
	h.sdk.ServeHTTP(w, r.WithContext(context.WithValue(ctx, slotKey{}, at)))
}

// begin makes the session that a request begins, which holds it.
func (h *Handler) begin(r *http.Request) *tracked {
	o := h.opts.Options
	o.Sandbox, o.id = r.PathValue("id"), rand.Text()
	client, err := pandastack.NewClient(pandastack.WithAPIURL(h.opts.URL), pandastack.WithAPIKey(bearer(r)))
	if err != nil {
		panic(err) // both are given
	}
	key := user(bearer(r))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stocks[key] == nil {
		h.stocks[key] = new(stock)
	}
	o.stock = h.stocks[key]
	t := &tracked{Session: New(client, o), id: o.id, key: key, refs: 1}
	h.sessions[t.id] = t
	return t
}

// hold keeps a session from ending for being silent; nil when that key has no
// such session.
func (h *Handler) hold(id, key string) *tracked {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.sessions[id]
	if t == nil || t.key != key {
		return nil
	}
	t.refs++
	if t.silent != nil {
		t.silent.Stop()
		t.silent = nil
	}
	return t
}

func (h *Handler) release(t *tracked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.refs--; t.refs == 0 && h.sessions[t.id] == t {
		t.silent = time.AfterFunc(h.opts.Silent, func() { h.drop(t, false) })
	}
}

// drop ends a session: one whose client has said so, or one to which nobody has
// come back.
func (h *Handler) drop(t *tracked, asked bool) {
	h.mu.Lock()
	gone := (asked || t.refs == 0) && h.sessions[t.id] == t
	if gone {
		delete(h.sessions, t.id)
		if h.of(t.key) == 0 {
			delete(h.stocks, t.key)
		}
		if t.silent != nil {
			t.silent.Stop()
		}
	}
	h.mu.Unlock()
	if !gone {
		return
	}
	if err := t.Close(context.Background()); err != nil {
		h.opts.Log.Warn("sandboxes of an MCP session were not ended; they end with their time to live", "error", err)
	}
	for conn := range t.Server().Sessions() {
		_ = conn.Close() // it has nothing left to wait for
	}
}

func (h *Handler) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of(key)
}

// of is how many sessions a key has. The lock is held.
func (h *Handler) of(key string) (n int) {
	for _, t := range h.sessions {
		if t.key == key {
			n++
		}
	}
	return n
}
