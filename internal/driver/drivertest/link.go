package drivertest

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Call is what the guest program is told to do, see its switch.
type Call struct {
	Do   string `json:"do"`
	Path string `json:"path,omitempty"`
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

// Answer is what it says.
type Answer struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// Link is the socket that the guest of one sandbox dials.
type Link struct {
	dir string
	l   *net.UnixListener
}

// Listen makes a link folder with a socket in it that everyone may connect to.
func Listen(t testing.TB, dir string) *Link {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "link.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return &Link{dir: dir, l: l}
}

// Accept waits for the guest to dial.
func (l *Link) Accept(t testing.TB) *Guest {
	t.Helper()
	_ = l.l.SetDeadline(time.Now().Add(patience))
	conn, err := l.l.Accept()
	if err != nil {
		t.Fatalf("the guest does not call: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &Guest{conn: conn, in: bufio.NewReader(conn)}
}

// Close closes the socket, as the end of the daemon does.
func (l *Link) Close() { _ = l.l.Close() }

// Guest is the program in a sandbox, by one connection.
type Guest struct {
	conn net.Conn
	in   *bufio.Reader
}

// Tell says something without waiting for an answer.
func (g *Guest) Tell(t testing.TB, c Call) {
	t.Helper()
	if err := json.NewEncoder(g.conn).Encode(c); err != nil {
		t.Fatalf("tell the guest: %v", err)
	}
}

// Try asks, and gives the guest's error or that of the connection.
func (g *Guest) Try(c Call) (string, error) {
	if err := json.NewEncoder(g.conn).Encode(c); err != nil {
		return "", err
	}
	_ = g.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := g.in.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return "", err
	}
	if a.Error != "" {
		return "", errors.New(a.Error)
	}
	return a.Text, nil
}

// Do asks for what must work.
func (g *Guest) Do(t testing.TB, c Call) string {
	t.Helper()
	s, err := g.Try(c)
	if err != nil {
		t.Fatalf("the guest, asked to %+v: %v", c, err)
	}
	return s
}

// Silent says whether the guest leaves a question without an answer for a while.
func (g *Guest) Silent(t testing.TB, c Call, d time.Duration) bool {
	t.Helper()
	g.Tell(t, c)
	_ = g.conn.SetReadDeadline(time.Now().Add(d))
	_, err := g.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// Failed reads the error that is the answer to what Tell said.
func (g *Guest) Failed(t testing.TB) error {
	t.Helper()
	_ = g.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := g.in.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no answer of the guest: %v", err)
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	if a.Error == "" {
		return nil
	}
	return errors.New(a.Error)
}

// Answer reads the answer to what Tell or Silent said.
func (g *Guest) Answer(t testing.TB) string {
	t.Helper()
	_ = g.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := g.in.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no answer of the guest: %v", err)
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a.Text
}
