package guestd_test

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/guestapi"
)

// Programs are told before an image is taken and in the copy; sockets of those
// that are gone go; one that fails is reported and holds nothing up.
func TestHooks(t *testing.T) {
	s := start(t)
	listen := func(name, reply string) chan string {
		l, err := net.Listen("unix", filepath.Join(s.cfg.HookDir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		heard := make(chan string, 8)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				line, _ := bufio.NewReader(conn).ReadString('\n')
				heard <- strings.TrimSpace(line)
				_, _ = conn.Write([]byte(reply + "\n"))
				conn.Close()
			}
		}()
		return heard
	}
	good := listen("1-a.sock", "ok")
	gone := filepath.Join(s.cfg.HookDir, "2-b.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: gone, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()

	s.do("POST", "/hooks/snapshot", nil, nil)
	if got := <-good; got != `{"event":"snapshot"}` {
		t.Errorf("told %q", got)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("the socket of one that is gone: %v", err)
	}
	req := guestapi.AssignRequest{SandboxID: "sb-1", Generation: 7, KeepEnvs: true}
	var resp guestapi.AssignResponse
	s.do("POST", "/assign", req, &resp)
	if got := <-good; got != `{"event":"restore","generation":7}` {
		t.Errorf("told %q", got)
	}
	if h := steps(resp)["hooks"]; !h.OK || h.Detail != "1 programs told" {
		t.Errorf("the step says %+v", h)
	}
	bad := listen("3-c.sock", "ValueError: no")
	s.do("POST", "/assign", req, &resp)
	<-bad
	if h := steps(resp)["hooks"]; h.OK || !strings.Contains(h.Detail, "ValueError: no") {
		t.Errorf("with one that fails it says %+v", h)
	}
	req.KeepEnvs = false // fresh from a template: nobody there had asked
	s.do("POST", "/assign", req, &resp)
	if len(bad) > 0 {
		t.Error("told in a sandbox that is no copy")
	}
}
