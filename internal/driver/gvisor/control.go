package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
)

const (
	controlTime   = 10 * time.Second // that the sentry may take to answer
	controlAnswer = 1 << 20          // bytes of its answer: who has broken it may say anything
)

// refusal is what a sentry says that did not do what it was asked for.
type refusal string

func (r refusal) Error() string { return "the sentry refuses: " + string(r) }

// control calls a method of the sentry's own control protocol, a JSON object
// each way. A refusal is the sentry's own error.
func (d *Driver) control(ctx context.Context, id, method string, arg, result any) error {
	return d.controlFiles(ctx, controlTime, id, method, arg, result, nil)
}

// controlFiles is control for a method that takes open files, or more time.
func (d *Driver) controlFiles(ctx context.Context, limit time.Duration, id, method string, arg, result any, files []*os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	dialled, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket(id))
	if err != nil {
		return fmt.Errorf("reach the sentry: %w", err)
	}
	conn := dialled.(*net.UnixConn)
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(aLongTimeAgo) })
	defer stop()
	call := struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{"containerManager." + method, arg}
	asked, err := json.Marshal(call)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(asked, rights, nil)
	if err == nil && n < len(asked) {
		_, err = conn.Write(asked[n:])
	}
	if err != nil {
		return fmt.Errorf("ask the sentry: %w", errors.Join(context.Cause(ctx), err))
	}
	answer := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	if err := json.NewDecoder(io.LimitReader(conn, controlAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("hear the sentry: %w", errors.Join(context.Cause(ctx), err))
	}
	if !answer.Success {
		return refusal(answer.Err)
	}
	return nil
}

// sentryLimits tells the sentry the limits that it holds itself: what the
// sandbox sees as its memory, the size of its disk and that of /dev/shm, which
// is half of its memory, as Linux has it. runsc as gVisor has it knows no such
// call: see added/boot.go.
func (d *Driver) sentryLimits(ctx context.Context, id string, l driver.Limits) error {
	args := struct {
		MemoryBytes int64 `json:"memory_bytes"`
		DiskBytes   int64 `json:"disk_bytes"`
		ShmBytes    int64 `json:"shm_bytes"`
	}{int64(l.MemoryMB) << 20, int64(l.DiskMB) << 20, min(shmBytes, int64(l.MemoryMB)<<19)}
	return d.control(ctx, id, "SetLimits", args, nil)
}

// setRestore tells the sentry before a restore what runsc has no options for: how
// to load the snapshot's pages, either only those that the sandbox asks for, which
// keeps the snapshot's file open, or all, those that it asks for first; and the
// host name, if it is not that of the description.
func (d *Driver) setRestore(ctx context.Context, id string, onDemand bool, hostname string) error {
	args := struct {
		OnDemand bool   `json:"on_demand"`
		Hostname string `json:"hostname"`
	}{onDemand, hostname}
	return d.control(ctx, id, "SetRestore", args, nil)
}

// checkpoint has the sentry write memory and files of a sandbox, which goes on or
// stays held. It is what "runsc checkpoint" does, without a program to start.
func (d *Driver) checkpoint(ctx context.Context, id, dir string) error {
	var files []*os.File
	for _, name := range []string{"checkpoint.img", "pages_meta.img", "pages.img"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	args := struct {
		Metadata      map[string]string `json:"metadata"`
		HavePagesFile bool              `json:"have_pages_file"`
		Resume        bool
	}{map[string]string{"compression": "none"}, true, true}
	return d.controlFiles(ctx, checkpointTimeout, id, "Checkpoint", args, nil, files)
}

// hold has the sentry hold a sandbox still or let it go on, and says whether
// that changed anything. A save that a daemon before this one asked for ends first.
func (d *Driver) hold(ctx context.Context, b *box, still bool) (changed bool, err error) {
	args := struct {
		Still bool `json:"still"`
	}{still}
	err = d.controlFiles(ctx, checkpointTimeout+pauseTimeout, b.ID, "Hold", args, &changed, nil)
	var older refusal
	if errors.As(err, &older) {
		return d.holdOlder(ctx, b, still)
	}
	return changed, err
}

// holdOlder is hold for a sandbox whose sentry an earlier version started, and
// which knows no such call: runsc knows whether it has paused it.
func (d *Driver) holdOlder(ctx context.Context, b *box, still bool) (changed bool, err error) {
	now, err := d.state(b.ID)
	if err != nil || (now.Status == "paused") == still {
		return false, err
	}
	verb := "resume"
	if still {
		verb = "pause"
	}
	return true, d.command(ctx, pauseTimeout, b, nil, verb, b.ID)
}

// loadAll has the sentry load what it has not yet, and gives the size of the
// sandbox's memory.
func (d *Driver) loadAll(ctx context.Context, id string) (bytes int64, err error) {
	var out struct {
		MemoryBytes int64 `json:"memory_bytes"`
	}
	err = d.control(ctx, id, "LoadAll", struct{}{}, &out)
	return out.MemoryBytes, err
}

// use is what the sentry knows of the use of a sandbox.
type use struct {
	Tasks        int   `json:"tasks"`
	TasksRefused int64 `json:"tasks_refused"`
	DiskBytes    int64 `json:"disk_bytes"`
	DiskRefused  int64 `json:"disk_refused"`
}

// waitInit asks the sentry for the end of the sandbox's first program and gives
// its exit code, 128 + n for signal n. The channel is closed without one when
// the sentry ends before it can tell. It speaks runsc's own control protocol, a
// JSON object each way, because the alternative is a runsc process a sandbox
// that does nothing but wait.
func (d *Driver) waitInit(id string) <-chan int {
	code := make(chan int, 1)
	conn, err := net.Dial("unix", d.socket(id))
	if err != nil {
		close(code)
		return code
	}
	go func() {
		defer close(code)
		defer conn.Close()
		call := struct {
			Method string `json:"method"`
			Arg    string `json:"arg"`
		}{"containerManager.Wait", id}
		if err := json.NewEncoder(conn).Encode(call); err != nil {
			return
		}
		var answer struct {
			Success bool   `json:"success"`
			Err     string `json:"err"`
			Result  uint32 `json:"result"`
		}
		if err := json.NewDecoder(io.LimitReader(conn, controlAnswer)).Decode(&answer); err != nil || !answer.Success {
			if err == nil {
				d.log.Warn("runsc does not tell how a sandbox ends", "sandbox", id, "error", answer.Err)
			}
			return
		}
		status := unix.WaitStatus(answer.Result)
		switch {
		case status.Exited():
			code <- status.ExitStatus()
		case status.Signaled():
			code <- 128 + int(status.Signal())
		}
	}()
	return code
}
