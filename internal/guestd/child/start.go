package child

import (
	"os"
	"syscall"
)

// Spec is a process to start. It becomes the leader of a session of its own.
type Spec struct {
	Path  string // of the program, absolute
	Argv  []string
	Env   []string
	Dir   string
	Files []*os.File // descriptors 0, 1, 2, …
	User  User

	Terminal bool // descriptor 0 is one, and controls the session
}

// Start starts a process. The error is the bare errno of the failed step,
// since the caller knows best what it means.
func (r *Reaper) Start(spec Spec) (*Child, error) {
	files := make([]uintptr, len(spec.Files))
	for i, f := range spec.Files {
		files[i] = f.Fd()
	}
	attr := &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Setctty:    spec.Terminal, // of descriptor 0
			Credential: &syscall.Credential{Uid: spec.User.UID, Gid: spec.User.GID, Groups: spec.User.Groups},
		},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(spec.Path, spec.Argv, attr)
	if err != nil {
		return nil, err
	}
	c := newChild(pid)
	r.waiting[pid] = c
	return c, nil
}
