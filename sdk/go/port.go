package pandastack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// Port is a port of a sandbox.
type Port = api.Port

// Ports lists what listens in the sandbox and what was named, by number. It
// does not wake it: in a sandbox that sleeps nothing listens.
func (s *Sandbox) Ports(ctx context.Context) ([]Port, error) {
	var list []Port
	return list, s.client.call(ctx, http.MethodGet, s.path+"/ports", nil, nil, &list)
}

// NamePort names a port, or makes it public, which opens it to everybody who
// knows its address. What was said of it before is replaced.
func (s *Sandbox) NamePort(ctx context.Context, port int, label string, public bool) (Port, error) {
	var p Port
	return p, s.client.call(ctx, http.MethodPost, s.path+"/ports", nil, api.CreatePortRequest{Port: port, Label: label, Public: public}, &p)
}

// ForgetPort forgets what was said of a port; what listens goes on.
func (s *Sandbox) ForgetPort(ctx context.Context, port int) error {
	return s.client.call(ctx, http.MethodDelete, s.path+"/ports/"+strconv.Itoa(port), nil, nil, nil)
}

// PreviewURL is the address of a server in the sandbox. It makes no call, and
// opens nothing: send the key, or use SignedPreviewURL for a browser.
func (s *Sandbox) PreviewURL(port int) (string, error) {
	if port < 1 || port > 65535 {
		return "", fmt.Errorf("pandastack: port must be between 1 and 65535, but is %d", port)
	}
	u, err := url.Parse(s.client.root)
	if err != nil {
		return "", fmt.Errorf("pandastack: %w", err)
	}
	host := s.Info.PreviewHost
	if host == "" {
		host = previewHost(u)
	}
	scheme := u.Scheme
	if strings.HasPrefix(host, "localhost") {
		scheme = "http"
	}
	return fmt.Sprintf("%s://%d-%s.%s/", scheme, port, s.ID, host), nil
}

// previewHost is what ports are seen below when the server has not said it.
func previewHost(u *url.URL) string {
	host := u.Hostname()
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
		if p := u.Port(); p != "" {
			host += ":" + p
		}
		return host
	}
	return strings.TrimPrefix(host, "api.")
}

// PreviewURLs gives the address of each port that something listens on.
func (s *Sandbox) PreviewURLs(ctx context.Context) (map[int]string, error) {
	list, err := s.Ports(ctx)
	if err != nil {
		return nil, err
	}
	urls := map[int]string{}
	for _, p := range list {
		if p.Listening {
			if urls[p.Port], err = s.PreviewURL(p.Port); err != nil {
				return nil, err
			}
		}
	}
	return urls, nil
}

// PreviewOptions say what a signed link opens. The zero value is all of a port
// for an hour.
type PreviewOptions struct {
	TTL   time.Duration // whole seconds, at most 7 days
	Paths []string      // each with all below it
}

// SignedPreviewURL makes a link that opens a port to whoever has it, until it
// expires, the client's key ends, or the sandbox does.
func (s *Sandbox) SignedPreviewURL(ctx context.Context, port int, o PreviewOptions) (api.PreviewToken, error) {
	req := api.PreviewTokenRequest{Port: port, Paths: o.Paths}
	if o.TTL != 0 {
		n := int(o.TTL / time.Second)
		req.TTLSeconds = &n
	}
	var t api.PreviewToken
	return t, s.client.call(ctx, http.MethodPost, s.path+"/preview-token", nil, req, &t)
}

const dialMessage = 64 << 10

// Dial connects to a port of the sandbox, for any protocol over TCP. A sandbox
// that sleeps is woken. The context is for the dial alone. A snapshot of the
// sandbox breaks the connection.
func (s *Sandbox) Dial(ctx context.Context, port int) (*PortConn, error) {
	ws, res, err := websocket.Dial(ctx, s.client.base+s.path+"/ports/"+strconv.Itoa(port)+"/connect", &websocket.DialOptions{
		HTTPClient: s.client.http, HTTPHeader: s.client.headers(),
	})
	if err != nil {
		if res != nil && res.StatusCode >= 300 {
			return nil, readError(res)
		}
		return nil, connectionError(ctx, s.client.root, err)
	}
	ws.SetReadLimit(1 << 20)
	life, end := context.WithCancel(context.Background())
	return &PortConn{ws: ws, life: life, end: end, port: port}, nil
}

// PortConn is a connection to a port of a sandbox. It may be read and written
// at the same time, each by one goroutine.
type PortConn struct {
	ws   *websocket.Conn
	life context.Context //nolint:containedctx // it is the connection's own
	end  context.CancelFunc
	port int
	once sync.Once
	err  error

	left io.Reader // of the message that is being read
	eof  bool
}

var _ net.Conn = (*PortConn)(nil)

// Read gives what the program says; io.EOF when it says no more.
func (c *PortConn) Read(p []byte) (int, error) {
	for {
		if c.eof {
			return 0, io.EOF
		}
		if c.left != nil {
			n, err := c.left.Read(p)
			if errors.Is(err, io.EOF) {
				c.left, err = nil, nil
			}
			if n > 0 || err != nil {
				return n, err
			}
			continue
		}
		kind, r, err := c.ws.Reader(c.life)
		if err != nil {
			return 0, fmt.Errorf("%w: the connection to port %d broke: %w", ErrConnection, c.port, err)
		}
		if kind == websocket.MessageText { // "eof"
			_, _ = io.Copy(io.Discard, r)
			c.eof = true
			c.ws.CloseRead(c.life)
			continue
		}
		c.left = r
	}
}

// Write says something to the program.
func (c *PortConn) Write(p []byte) (int, error) {
	for sent := 0; ; {
		piece := p[sent:min(len(p), sent+dialMessage)]
		if err := c.ws.Write(c.life, websocket.MessageBinary, piece); err != nil {
			return sent, fmt.Errorf("%w: the connection to port %d broke: %w", ErrConnection, c.port, err)
		}
		if sent += len(piece); sent == len(p) {
			return sent, nil
		}
	}
}

// CloseWrite says that nothing more comes. What the program says can still be read.
func (c *PortConn) CloseWrite() error {
	return c.ws.Write(c.life, websocket.MessageText, []byte("eof"))
}

// Close ends the connection.
func (c *PortConn) Close() error {
	c.once.Do(func() {
		c.err = c.ws.CloseNow()
		c.end()
	})
	return c.err
}

// LocalAddr implements net.Conn.
func (c *PortConn) LocalAddr() net.Addr { return portAddr(0) }

// RemoteAddr implements net.Conn.
func (c *PortConn) RemoteAddr() net.Addr { return portAddr(c.port) }

// SetDeadline implements net.Conn: there are none.
func (c *PortConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn: there are none.
func (c *PortConn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn: there are none.
func (c *PortConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// portAddr is a port of a sandbox, 0 for the client's end.
type portAddr int

func (a portAddr) Network() string { return "sandbox" }
func (a portAddr) String() string  { return "sandbox:" + strconv.Itoa(int(a)) }
