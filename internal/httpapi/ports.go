package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/preview"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	maxPortLabel = 100
	connectPiece = 32 << 10 // bytes of a message of ours
	connectRead  = 1 << 20  // of one of the client's
	connectEOF   = "eof"    // the text message that says that no more bytes come from its side
)

// listPorts answers what listens in a sandbox and what was named. It wakes none:
// in one that sleeps nothing listens.
func (s *Server) listPorts(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	named, err := s.Sandboxes.Ports(r.Context(), owner(r), id)
	if err != nil {
		return err
	}
	ports := map[int]*api.Port{}
	for _, p := range named {
		ports[p.Port] = s.shownPort(r, id, p, "user")
	}
	listening, err := s.listening(r, id)
	if err != nil {
		return err
	}
	for _, l := range listening {
		p := ports[l.Port]
		if p == nil {
			p = s.shownPort(r, id, store.Port{Port: l.Port}, "detected")
			ports[l.Port] = p
		}
		p.Listening = true
		p.Addresses = append(p.Addresses, l.Address)
	}
	list := []api.Port{}
	for _, p := range ports {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b api.Port) int { return cmp.Compare(a.Port, b.Port) })
	return ok(w, list)
}

// listening asks the sandbox, unless it sleeps or stands still.
func (s *Server) listening(r *http.Request, id string) ([]guestapi.Listener, error) {
	info, err := s.Sandboxes.Get(r.Context(), owner(r), id)
	if err != nil || info.Status != api.StatusRunning {
		return nil, err
	}
	g, done, err := s.Sandboxes.Guest(guest.WithoutWaking(r.Context()), owner(r), id)
	if err != nil {
		return nil, err
	}
	defer done()
	return g.Listeners(r.Context())
}

func (s *Server) shownPort(r *http.Request, id string, p store.Port, source string) *api.Port {
	out := &api.Port{Port: p.Port, Label: p.Label, Public: p.Public, Source: source}
	out.ProxyURL = scheme(r) + "://" + r.Host + "/v1/sandboxes/" + id + "/proxy/" + strconv.Itoa(p.Port) + "/"
	if domain := s.previewHost(r); domain != "" {
		out.URL = scheme(r) + "://" + preview.Name{Port: p.Port, SandboxID: id}.Host(domain) + "/"
	}
	return out
}

func (s *Server) createPort(w http.ResponseWriter, r *http.Request) error {
	var req api.CreatePortRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := checkPort(req.Port); err != nil {
		return err
	}
	if len(req.Label) > maxPortLabel || strings.ContainsFunc(req.Label, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fault.InvalidField("label", "label must be at most %d bytes without control characters", maxPortLabel)
	}
	id, p := r.PathValue("id"), store.Port{Port: req.Port, Label: req.Label, Public: req.Public}
	if err := s.Sandboxes.SetPort(r.Context(), owner(r), id, p); err != nil {
		return err
	}
	out := s.shownPort(r, id, p, "user")
	listening, err := s.listening(r, id)
	if err != nil {
		return err
	}
	for _, l := range listening {
		if l.Port == p.Port {
			out.Listening = true
			out.Addresses = append(out.Addresses, l.Address)
		}
	}
	writeJSON(w, http.StatusCreated, out)
	return nil
}

func (s *Server) deletePort(w http.ResponseWriter, r *http.Request) error {
	port, err := parsePort(r.PathValue("port"))
	if err != nil {
		return err
	}
	return done(w, s.Sandboxes.RemovePort(r.Context(), owner(r), r.PathValue("id"), port))
}

func (s *Server) createPreviewToken(w http.ResponseWriter, r *http.Request) error {
	var req api.PreviewTokenRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := checkPort(req.Port); err != nil {
		return err
	}
	ttl, err := s.linkTTL(req.TTLSeconds)
	if err != nil {
		return err
	}
	if err := preview.CheckPaths(req.Paths); err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := s.Sandboxes.Ports(r.Context(), owner(r), id); err != nil {
		return err
	}
	who := stateOf(r.Context()).who
	c := preview.Claims{SandboxID: id, Port: req.Port, Owner: who.Owner, Key: who.Prefix, Expires: time.Now().Add(ttl).Unix(), Paths: req.Paths}
	token := s.Links.Sign(c)
	return ok(w, api.PreviewToken{
		URL: scheme(r) + "://" + r.Host + linkPrefix + token + "/", Token: token, SandboxID: id, Port: req.Port, Paths: req.Paths, ExpiresAt: c.ExpiresAt(),
	})
}

// linkTTL is how long a link is to live.
func (s *Server) linkTTL(seconds *int) (time.Duration, error) {
	ttl := preview.DefaultTTL
	if seconds != nil {
		if n := *seconds; n < 1 || n > int(preview.MaxTTL/time.Second) {
			return 0, fault.InvalidField("ttl_seconds", "ttl_seconds must be between 1 and %d, but is %d", int(preview.MaxTTL/time.Second), n)
		}
		ttl = time.Duration(*seconds) * time.Second
	}
	if s.Links == nil {
		return 0, fault.New(api.CodeUnsupported, "this server makes no links")
	}
	return ttl, nil
}

// connectPort carries a connection to a port over a WebSocket: binary messages
// are its bytes, and the text "eof" says that there are no more of one side's.
func (s *Server) connectPort(w http.ResponseWriter, r *http.Request) error {
	port, err := parsePort(r.PathValue("port"))
	if err != nil {
		return err
	}
	// Dialled first, so that a port on which nothing listens is an ordinary answer.
	flow, err := s.dialPort(r.Context(), owner(r), r.PathValue("id"), port)
	if err != nil {
		return err
	}
	defer flow.Close()
	conn, err := upgrade(w, r)
	if conn == nil {
		return err
	}
	conn.SetReadLimit(connectRead)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- fromPort(ctx, conn, flow) }()
	up := make(chan error, 1)
	go func() { up <- toPort(ctx, flow, conn) }()
	// Either side may end first. Without an error the other goes on.
	select {
	case err = <-down:
		if err == nil {
			err = <-up
		}
	case err = <-up:
		if err == nil {
			err = <-down
		}
	}
	flow.Close()
	status, why := websocket.StatusNormalClosure, ""
	switch {
	case errors.Is(context.Cause(r.Context()), ErrStopping):
		status, why = websocket.StatusGoingAway, ErrStopping.Error()
	case websocket.CloseStatus(err) != -1: // the client said goodbye
		err = nil
	case err != nil:
		body, _ := s.failure(r, err)
		status, why = websocket.StatusInternalError, body.Message[:min(len(body.Message), 120)]
	}
	stateOf(r.Context()).err = err
	_ = conn.Close(status, why) // it may be gone
	return nil
}

// fromPort passes on what the program says, until it says no more.
func fromPort(ctx context.Context, conn *websocket.Conn, flow *portConn) error {
	buf := make([]byte, connectPiece)
	for {
		n, err := flow.Read(buf)
		if n > 0 {
			if err := conn.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return conn.Write(ctx, websocket.MessageText, []byte(connectEOF))
		}
		if err != nil {
			return err
		}
	}
}

// toPort passes on what the client says, until it says no more.
func toPort(ctx context.Context, flow *portConn, conn *websocket.Conn) error {
	for {
		kind, raw, err := conn.Read(ctx)
		switch {
		case err != nil:
			return err
		case kind == websocket.MessageBinary:
			if _, err := flow.Write(raw); err != nil {
				return err
			}
		case string(raw) == connectEOF:
			conn.CloseRead(ctx) // its goodbye is still heard
			return flow.CloseWrite()
		default:
			return fault.New(api.CodeInvalid, "a message that is neither bytes nor %q", connectEOF)
		}
	}
}
