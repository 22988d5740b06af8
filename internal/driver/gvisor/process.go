package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process names a process of the host for good: its id may be used again by
// another, which then has another start time.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since the host booted
}

// findProcess completes the name of a process that runs now.
func findProcess(pid int) (process, error) {
	st, err := readStat(pid)
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: st.start}, nil
}

// watch is a handle on a process that may not be our child.
type watch struct {
	process
	f *os.File // a pidfd that the runtime polls
}

// open takes a handle on the process, or says os.ErrProcessDone.
func (p process) open() (*watch, error) {
	w, err := p.handle()
	if err != nil {
		return nil, err
	}
	st, err := readStat(p.PID)
	if err != nil || st.start != p.Start || st.state == 'Z' {
		w.close()
		return nil, os.ErrProcessDone
	}
	return w, nil
}

// handle takes a handle on whatever has the process's number now.
func (p process) handle() (*watch, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd of %d: %w", p.PID, err)
	}
	return &watch{process: p, f: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// wait returns when the process has ended. If it was our child, it is taken off
// the kernel's list.
func (w *watch) wait() error {
	conn, err := w.f.SyscallConn()
	if err != nil {
		return err
	}
	if err := conn.Read(ready); err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) {
		_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil)
	})
}

// over says whether the process has ended.
func (w *watch) over() (over bool) {
	if conn, err := w.f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { over = ready(fd) })
	}
	return over
}

// ready says whether a pidfd tells of an end.
func ready(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

// kill ends the process at once.
func (w *watch) kill() {
	conn, err := w.f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
}

func (w *watch) close() { _ = w.f.Close() }

// end kills a process and waits until it is gone. It says whether there was one.
func (p process) end(ctx context.Context) (was bool, err error) {
	w, err := p.open()
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(aLongTimeAgo) })
	defer stop()
	defer w.close()
	w.kill()
	if err := w.wait(); err != nil {
		return true, fmt.Errorf("process %d does not end: %w", p.PID, errors.Join(context.Cause(ctx), err))
	}
	return true, nil
}

type stat struct {
	name    string
	state   byte
	session int
	start   uint64
}

// readStat reads /proc/PID/stat, whose second field may hold spaces and brackets.
func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	s := string(data)
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("/proc/%d/stat: no name in %q", pid, s)
	}
	f := strings.Fields(s[end+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat: too short: %q", pid, s)
	}
	session, err1 := strconv.Atoi(f[3])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	return stat{name: s[open+1 : end], state: f[0][0], session: session, start: start}, errors.Join(err1, err2)
}

// start starts a command so that reapOrphans will leave it to os/exec.
func (d *Driver) start(cmd *exec.Cmd) error {
	d.spawn.Lock()
	defer d.spawn.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	d.own[cmd.Process.Pid] = struct{}{}
	return nil
}

func (d *Driver) ended(cmd *exec.Cmd) { d.disown(cmd.Process.Pid) }

// claim makes reapOrphans leave a process to the watch over it.
func (d *Driver) claim(pid int) {
	d.spawn.Lock()
	defer d.spawn.Unlock()
	d.own[pid] = struct{}{}
}

func (d *Driver) disown(pid int) {
	d.spawn.Lock()
	defer d.spawn.Unlock()
	delete(d.own, pid)
}

// A sandbox's processes, the command that made them, and one to spare.
const orphansOfOrphans = 3

// reapOrphans takes what ended commands of runsc left to us off the kernel's
// list, and waits for what is just ending, which then leaves its own to us in
// turn. Children that os/exec waits for, ours and those of others, are not touched.
func (d *Driver) reapOrphans() {
	for range orphansOfOrphans {
		found := d.orphans()
		if len(found) == 0 {
			return
		}
		for _, w := range found {
			_ = w.wait()
			w.close()
		}
	}
}

func (d *Driver) orphans() []*watch {
	d.spawn.Lock()
	defer d.spawn.Unlock()
	var found []*watch
	for _, pid := range children() {
		if _, ours := d.own[pid]; ours {
			continue
		}
		st, err := readStat(pid)
		if err != nil || !strings.HasPrefix(st.name, "runsc") && (st.name != "exe" || st.session != pid) {
			continue // runsc starts itself as /proc/self/exe, in a session of its own
		}
		if st.state != 'Z' {
			if argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); err != nil || len(argv) > 0 {
				continue // it lives; without arguments it has given up its memory already
			}
		}
		if w, err := (process{PID: pid, Start: st.start}).handle(); err == nil {
			found = append(found, w)
		}
	}
	return found
}

// children are the ids of this process's children.
func children() []int {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// processes are those of this driver on the host, by the id of their sandbox:
// sentries, gofers and commands of runsc whose flags name our folder.
func (d *Driver) processes() map[string][]process {
	found := map[string][]process{}
	dirs, _ := os.ReadDir("/proc")
	root := "--root=" + d.root()
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", dir.Name(), "cmdline"))
		if err != nil || len(data) == 0 {
			continue
		}
		argv := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		for _, arg := range argv[1:] {
			if arg == root {
				if p, err := findProcess(pid); err == nil {
					id := argv[len(argv)-1]
					found[id] = append(found[id], p)
				}
				break
			}
		}
	}
	return found
}
