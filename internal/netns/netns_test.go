package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if err := Check(); err != nil {
		t.Fatal(err)
	}
}

// resident is a process in a namespace, as a sandbox is.
func resident(t *testing.T, n *Namespace) int {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+n.Path(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(t, "nsenter has become sleep", func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return string(name) == "sleep\n"
	})
	return cmd.Process.Pid
}

// until waits for what must come about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it never does", what)
		}
	}
}

func TestNamespace(t *testing.T) {
	needRoot(t)
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	pid := resident(t, n)
	run := func(args ...string) string {
		out, err := exec.Command("nsenter", append([]string{"--net=" + fmt.Sprintf("/proc/%d/ns/net", pid)}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	devices := run("cat", "/proc/net/dev")
	if lines := strings.Split(strings.TrimSpace(devices), "\n"); len(lines) != 4 || !strings.Contains(devices, "eth0:") {
		t.Errorf("it has %s", devices)
	}
	// 10.255.255.1 as the default gateway, with its hardware address.
	if routes := run("cat", "/proc/net/route"); !strings.Contains(routes, "eth0\t00000000\t01FFFF0A") {
		t.Errorf("its routes: %s", routes)
	}
	if neighbours := run("cat", "/proc/net/arp"); !strings.Contains(neighbours, gatewayMAC) {
		t.Errorf("its neighbours: %s", neighbours)
	}
	// One address for each protocol, and none that the kernel chose.
	if six := strings.Fields(run("cat", "/proc/net/if_inet6")); len(six) > 0 && strings.Count(strings.Join(six, " "), "eth0") != 1 {
		t.Errorf("its addresses: %s", six)
	}

	// What is sent in it comes out of the descriptor, and nowhere else.
	tap := n.TakeTAP()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 2000)
	sent := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "bash", "-c", "echo hello >/dev/udp/192.0.2.1/9")
	if out, err := sent.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := tap.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for { // the kernel of the host says something of its own first
		got, err := tap.Read(frame)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(frame[:got]), "hello") {
			break
		}
	}
	if to := net.HardwareAddr(frame[:6]).String(); to != gatewayMAC {
		t.Errorf("it is sent to %s", to)
	}

	// It is there for one daemon at a time, and for the next.
	if _, err := Open(pid); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opened twice: %v", err)
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	if tap, err = Open(pid); err != nil {
		t.Fatal(err)
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := net.Interfaces()
	if err != nil || len(after) != len(before) {
		t.Errorf("the host had %d interfaces and has %d, %v", len(before), len(after), err)
	}
}

// Nobody's interface is taken for a sandbox's.
func TestOpenOfNone(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("unshare", "--net", "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "unshare has a namespace of its own", func() bool {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		return err == nil && theirs != ours
	})
	if _, err := Open(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestPool(t *testing.T) {
	needRoot(t)
	p := NewPool(2, slog.New(slog.DiscardHandler))
	seen := map[string]bool{}
	for range 5 {
		n, err := p.Take()
		if err != nil {
			t.Fatal(err)
		}
		inode, err := os.Readlink(n.Path())
		if err != nil || seen[inode] {
			t.Errorf("%s again, %v", inode, err)
		}
		seen[inode] = true
		defer n.Close()
	}
	p.fill() // as its timer does
	if len(p.ready) != 2 {
		t.Errorf("%d are ready", len(p.ready))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if len(p.ready) != 0 {
		t.Errorf("%d are left", len(p.ready))
	}
}
