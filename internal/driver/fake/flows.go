package fake

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Serve lets an HTTP server listen on a port of the sandbox, until the listener
// that it returns is closed. It listens on a port of this machine's loopback.
func (g *Guest) Serve(port int, h http.Handler) (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.Listen(port, ln.Addr().String())
	go func() { _ = http.Serve(ln, h) }() //nolint:gosec // of a test
	return ln, nil
}

// Listen says that what listens at an address of this machine does so on a port
// of the sandbox. An empty address takes it away.
func (g *Guest) Listen(port int, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ports == nil {
		g.ports = map[int]string{}
	}
	g.ports[port] = address
	if address == "" {
		delete(g.ports, port)
	}
}

func (g *Guest) listPorts(w http.ResponseWriter, _ *http.Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []guestapi.Listener{}
	for port := range g.ports {
		list = append(list, guestapi.Listener{Port: port, Address: "127.0.0.1"})
	}
	return answer(w, list)
}

func (g *Guest) flow(w http.ResponseWriter, r *http.Request) error {
	port, _ := strconv.Atoi(r.URL.Query().Get("port")) // 0 is nobody's
	g.mu.Lock()
	address := g.ports[port]
	g.mu.Unlock()
	if address == "" {
		return fault.New(api.CodeConflict, "nothing listens on port %d", port)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if err := rc.Flush(); err != nil {
		return nil
	}
	var mu sync.Mutex
	frame := func(kind byte, n int, data []byte) error {
		var head [guestapi.FlowHeader]byte
		guestapi.PutFlowHeader(head[:], kind, n)
		mu.Lock()
		defer mu.Unlock()
		_, err := w.Write(append(head[:], data...))
		return errors.Join(err, rc.Flush())
	}
	var up sync.WaitGroup
	up.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				if _, werr := conn.Write(buf[:n]); werr != nil {
					return
				}
				_ = frame(guestapi.FlowTaken, n, nil)
			}
			if errors.Is(err, io.EOF) {
				_ = conn.(*net.TCPConn).CloseWrite()
				return
			}
			if err != nil {
				conn.Close()
				return
			}
		}
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 && frame(guestapi.FlowData, n, buf[:n]) != nil {
			conn.Close()
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = frame(guestapi.FlowEOF, 0, nil)
			} else {
				r.Body.Close()
			}
			up.Wait()
			if !errors.Is(err, io.EOF) {
				panic(http.ErrAbortHandler)
			}
			return nil
		}
	}
}
