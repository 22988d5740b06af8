package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// controlTime is how long the sentry may take to answer.
const controlTime = 10 * time.Second

// control calls a method of the sentry's own control protocol, a JSON object
// each way. An error of kind fault.Invalid is the sentry's own.
func (d *Driver) control(ctx context.Context, id, method string, arg, result any) error {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket(id))
	if err != nil {
		return fmt.Errorf("reach the sentry: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(aLongTimeAgo) })
	defer stop()
	call := struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{"containerManager." + method, arg}
	if err := json.NewEncoder(conn).Encode(call); err != nil {
		return fmt.Errorf("ask the sentry: %w", errors.Join(context.Cause(ctx), err))
	}
	answer := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("hear the sentry: %w", errors.Join(context.Cause(ctx), err))
	}
	if !answer.Success {
		return fault.New("invalid", "the sentry refuses: %s", answer.Err)
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
		if err := json.NewDecoder(conn).Decode(&answer); err != nil || !answer.Success {
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
