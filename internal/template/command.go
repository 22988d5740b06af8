package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// endGrace is how long a program of the host has to clean up when a build is
// given up, before it is killed.
const endGrace = 15 * time.Second

// hostCommand prepares a program of the host, such as the bootstrapper. It is
// the first process of a namespace, so that nothing it started outlives it,
// however this process ends. As such it only heeds signals that it handles:
// stop is the one that makes it clean up.
func hostCommand(ctx context.Context, stop syscall.Signal, log io.Writer, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(stop) }
	cmd.WaitDelay = endGrace
	return cmd
}

// runCommand starts the program, calls during beside it, and waits for both.
func runCommand(ctx context.Context, cmd *exec.Cmd, during func() error) error {
	done := make(chan error, 1)
	go func() {
		// The death signal is tied to the thread that started the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			done <- err
			return
		}
		var err error
		if during != nil {
			err = during()
		}
		if err != nil {
			_ = cmd.Cancel()
			kill := time.AfterFunc(endGrace, func() { _ = cmd.Process.Kill() })
			err = errors.Join(err, cmd.Wait())
			kill.Stop()
		} else {
			err = cmd.Wait()
		}
		done <- err
	}()
	err := <-done
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// logTail is how much of a failed step's log its error shows.
const (
	logTailLines = 20
	logTailBytes = 8 << 10
)

// tailOf gives the last lines of a log.
func tailOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTailBytes {
		if _, err := f.Seek(-logTailBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	raw, err := io.ReadAll(io.LimitReader(f, logTailBytes))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(raw), "\uFFFD")), "\n")
	return strings.Join(lines[max(0, len(lines)-logTailLines):], "\n")
}

// StepError is the failure of one step of a build.
type StepError struct {
	Step string
	Tail string // the last lines of the step's log
	Log  string // host file that keeps the whole build's log
	Err  error
}

// Error gives the step, the cause and the end of the log.
func (e *StepError) Error() string {
	text := fmt.Sprintf("the step %q failed: %v", e.Step, e.Err)
	if e.Tail != "" {
		text += "\n  | " + strings.ReplaceAll(e.Tail, "\n", "\n  | ")
	}
	if e.Log != "" {
		text += "\nThe whole log is " + e.Log
	}
	return text
}

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }
