package guestd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	flowDialTime = 5 * time.Second
	flowPiece    = 32 << 10 // read of a program at once
)

// portOf reads the port that a request names.
func portOf(r *http.Request) (int, error) {
	port, err := strconv.Atoi(r.URL.Query().Get("port"))
	if err != nil || port < 1 || port > 65535 {
		return 0, fault.InvalidField("port", "port must be between 1 and 65535")
	}
	return port, nil
}

func (a *Agent) getPorts(w http.ResponseWriter, _ *http.Request) error {
	list, err := listeners(a.cfg.ProcNet)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

// postFlow connects to a port and passes bytes both ways until both sides have
// said that there are no more, or one is gone.
func (a *Agent) postFlow(w http.ResponseWriter, r *http.Request) error {
	port, err := portOf(r)
	if err != nil {
		return err
	}
	if n := a.flows.Add(1); n > guestapi.MaxFlows {
		a.flows.Add(-1)
		return fault.New(api.CodeRateLimited, "%d connections to ports of this sandbox are open, the most there may be", guestapi.MaxFlows)
	}
	defer a.flows.Add(-1)
	conn, err := a.dialPort(r.Context(), port)
	if err != nil {
		return err
	}
	defer conn.Close()
	// A host that goes away frees whoever waits for the program.
	defer context.AfterFunc(r.Context(), func() { conn.Close() })()

	out := &flowWriter{w: w}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if err := out.flush(); err != nil {
		return nil // the host is gone
	}
	var up sync.WaitGroup
	up.Go(func() { upload(conn, r.Body, out) })
	if err = download(out, conn); err != nil {
		r.Body.Close() // which ends the upload
	}
	up.Wait()
	if err != nil {
		return errors.Join(err, http.ErrAbortHandler)
	}
	return nil
}

// dialPort connects to whatever listens on a port: on loopback, or else on the
// address that it has chosen.
func (a *Agent) dialPort(ctx context.Context, port int) (*net.TCPConn, error) {
	addresses := []string{"127.0.0.1", "::1"}
	if list, err := listeners(a.cfg.ProcNet); err == nil {
		for _, l := range list {
			if ip := net.ParseIP(l.Address); l.Port == port && !ip.IsUnspecified() && !ip.IsLoopback() {
				addresses = append(addresses, l.Address)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, flowDialTime)
	defer cancel()
	for _, address := range addresses {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		switch {
		case err == nil:
			return conn.(*net.TCPConn), nil
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EAFNOSUPPORT):
		case ctx.Err() != nil:
			return nil, fault.New(api.CodeTimeout, "port %d has not taken a connection for %s", port, flowDialTime)
		default:
			return nil, fmt.Errorf("connecting to port %d: %w", port, err)
		}
	}
	return nil, fault.New(api.CodeConflict, "nothing listens on port %d", port)
}

// flowWriter writes frames, from two sides.
type flowWriter struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (f *flowWriter) flush() error { return http.NewResponseController(f.w).Flush() }

func (f *flowWriter) frame(kind byte, length int, data []byte) error {
	var head [guestapi.FlowHeader]byte
	guestapi.PutFlowHeader(head[:], kind, length)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.w.Write(head[:]); err != nil {
		return err
	}
	if _, err := f.w.Write(data); err != nil {
		return err
	}
	return f.flush()
}

// download passes on what the program says.
func download(out *flowWriter, conn *net.TCPConn) error {
	buf := make([]byte, flowPiece)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := out.frame(guestapi.FlowData, n, buf[:n]); err != nil {
				conn.Close()
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return out.frame(guestapi.FlowEOF, 0, nil)
		case err != nil:
			return err
		}
	}
}

// upload passes on what the host says. It takes all of it off the link at once
// and keeps what the program has not read yet: never more than the window.
func upload(conn *net.TCPConn, body io.Reader, out *flowWriter) {
	q := &flowQueue{}
	q.more = sync.NewCond(&q.mu)
	var written sync.WaitGroup
	written.Go(func() {
		for {
			piece := q.take()
			if piece == nil {
				_ = conn.CloseWrite() // it may be gone, which the other side sees
				return
			}
			if _, err := conn.Write(piece); err != nil {
				q.drop() // it reads no more; what it still has to say is read
				return
			}
			if out.frame(guestapi.FlowTaken, len(piece), nil) != nil {
				return
			}
		}
	})
	buf := make([]byte, flowPiece)
	for {
		n, err := body.Read(buf)
		if n > 0 && !q.put(buf[:n]) {
			err = errors.Join(err, errFlowWindow)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || errors.Is(err, errFlowWindow) {
				conn.Close() // the host gave it up
			}
			q.end()
			break
		}
	}
	written.Wait()
}

var errFlowWindow = errors.New("the host sent more than the window of a flow")

// flowQueue holds bytes for a program.
type flowQueue struct {
	mu      sync.Mutex
	more    *sync.Cond
	bytes   []byte
	ended   bool
	dropped bool // nobody reads them
}

func (q *flowQueue) put(p []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped {
		return true
	}
	if len(q.bytes)+len(p) > guestapi.FlowWindow {
		return false
	}
	q.bytes = append(q.bytes, p...)
	q.more.Signal()
	return true
}

// take waits for bytes; nil when there are no more.
func (q *flowQueue) take() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.bytes) == 0 && !q.ended {
		q.more.Wait()
	}
	if len(q.bytes) == 0 {
		return nil
	}
	p := q.bytes[:min(len(q.bytes), guestapi.FlowWindow/2)] // the other half comes meanwhile
	q.bytes = q.bytes[len(p):]
	return p
}

func (q *flowQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Signal()
}

func (q *flowQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped, q.bytes = true, nil
}
