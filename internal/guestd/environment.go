package guestd

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

// environment is what new processes and contexts find in theirs.
type environment struct {
	mu       sync.Mutex
	assigned map[string]string // of this sandbox
	added    map[string]string // where nobody says otherwise
}

func newEnvironment() *environment { return &environment{assigned: map[string]string{}} }

// assign sets the variables of this sandbox, or with keep adds them to those
// that it has as a copy of another.
func (e *environment) assign(envs map[string]string, keep bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]string{}
	if keep {
		maps.Copy(all, e.assigned)
	}
	maps.Copy(all, envs)
	e.assigned = all
}

// addDefaults adds variables that neither the sandbox nor a process needs to set.
func (e *environment) addDefaults(envs map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.added == nil {
		e.added = map[string]string{}
	}
	maps.Copy(e.added, envs)
}

// forUser makes the environment of a user's process. What stands in extra wins
// over what the sandbox was given, and that over the defaults.
func (e *environment) forUser(u child.User, extra map[string]string) map[string]string {
	env := map[string]string{
		"PATH":            "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":            u.Home,
		"USER":            u.Name,
		"LOGNAME":         u.Name,
		"SHELL":           u.Shell,
		"LANG":            "C.UTF-8",
		"TERM":            "xterm-256color",
		"PAGER":           "cat", // nobody is there to turn the pages
		"DEBIAN_FRONTEND": "noninteractive",
	}
	e.add(env, extra)
	return env
}

// forTerminal makes that of a process with a terminal, where somebody can turn
// pages and answer questions.
func (e *environment) forTerminal(u child.User, extra map[string]string) map[string]string {
	env := e.forUser(u, nil)
	delete(env, "PAGER")
	delete(env, "DEBIAN_FRONTEND")
	e.add(env, extra)
	return env
}

func (e *environment) add(env, extra map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(env, e.added)
	maps.Copy(env, e.assigned)
	maps.Copy(env, extra)
}

func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func checkEnvs(field string, envs map[string]string) error {
	for k, v := range envs {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fault.InvalidField(field, "%q cannot be the name of an environment variable", k)
		}
		if strings.Contains(v, "\x00") {
			return fault.InvalidField(field, "the environment variable %s holds a NUL byte", k)
		}
	}
	return nil
}
