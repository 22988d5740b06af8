package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/fault"
)

// How long a command of runsc may take. They are bounds for a machine in
// trouble, far above what is seen. Callers that give creates and restores more
// time are heeded: see patience.
const (
	createTimeout     = 30 * time.Second
	restoreTimeout    = 60 * time.Second
	checkpointTimeout = 120 * time.Second
	pauseTimeout      = 20 * time.Second
	stopTimeout       = 20 * time.Second
	endTime           = 10 * time.Second // of a sandbox whose sentry was killed, until that is seen
)

// logTail is how much of a log goes into an error.
const logTail = 2 << 10

// flags are runsc's own, before the command. Those that shape the sandbox must
// be the same in every command on it.
func (d *Driver) flags(b *box) []string {
	overlay := "none"
	if !b.Direct {
		overlay = fmt.Sprintf("root:dir=%s", b.layer())
		if b.DiskMB > 0 {
			overlay += fmt.Sprintf(",size=%dM", b.DiskMB)
		}
	}
	network := "none" // but a loopback
	if b.Network {
		network = "sandbox" // what the namespace has
	}
	return []string{
		"--root=" + d.root(),
		"--log=" + b.log("runsc.log"),
		"--debug-log=" + b.log("%COMMAND%.log"),
		"--panic-log=" + b.log("panic.log"),
		"--network=" + network,
		"--host-uds=open",
		"--overlay2=" + overlay,
		"--gofer-network-namespace=new", // the default pins one with a mount that would stay behind
		"--host-settings=ignore",
	}
}

// command runs one command of runsc to its end. The sandbox inherits out as its
// standard output and error when the command makes one; nil is /dev/null.
func (d *Driver) command(ctx context.Context, limit time.Duration, b *box, out *os.File, verb string, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, d.runsc, append(append(d.flags(b), verb), args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.WaitDelay = 2 * time.Second
	var stderr bytes.Buffer
	switch {
	case out != nil:
		cmd.Stdout, cmd.Stderr = out, out
	case verb != "create" && verb != "run":
		cmd.Stderr = &stderr
	}
	if err := d.start(cmd); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOEXEC) {
			err = d.broken(err)
		}
		return fmt.Errorf("runsc %s: %w", verb, err)
	}
	err := cmd.Wait()
	d.ended(cmd)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("runsc %s: %w", verb, context.Cause(ctx))
	}
	said := strings.TrimSpace(stderr.String())
	if said == "" {
		said = tail(b.log("runsc.log"), logTail)
	}
	if boot := tail(b.log("boot.log"), logTail); boot != "" {
		said += "\nsentry: " + boot
	}
	return fmt.Errorf("runsc %s: %w: %s", verb, err, said)
}

// patience is how long a create or a restore may take: what its caller allows,
// when that is longer than is usual. The operator of a slow machine says so. The
// second more leaves the words about it to the caller.
func patience(ctx context.Context, usual time.Duration) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return max(usual, time.Until(until)+time.Second)
	}
	return usual
}

// broken is for a runsc that cannot be run.
func (d *Driver) broken(err error) error {
	return fault.Wrap(err, "internal", "gVisor's program %s is gone or damaged", d.runsc).
		WithHint("the operator has to put the runsc of this build back, executable for everyone; make build makes it, pandastack doctor checks it")
}

// tail is the end of a file, whole lines of it, or nothing.
func tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(0, size-n)
	data := make([]byte, size-from)
	if _, err := f.ReadAt(data, from); err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	if from > 0 {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(data), "?"))
}

// head is the beginning of a file.
func head(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(data), "?"))
}
