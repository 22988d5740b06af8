package guestd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
	"github.com/pandastack/pandastack/internal/guestd/kernels"
	"github.com/pandastack/pandastack/sdk/go/tree"
)

const (
	stepTime    = 2 * time.Second
	clockWithin = time.Second // of the host's
	leastSeed   = 48          // bytes of entropy
)

var (
	hostnameForm  = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,62}[a-zA-Z0-9])?$`)
	machineIDForm = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

func (a *Agent) postAssign(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.AssignRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if err := checkAssign(req); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.assign(req))
}

func checkAssign(req guestapi.AssignRequest) error {
	switch {
	case req.SandboxID == "":
		return fault.InvalidField("sandbox_id", "sandbox_id is missing")
	case req.Generation < 1:
		return fault.InvalidField("generation", "generation must be at least 1, not %d", req.Generation)
	case req.Hostname != "" && !hostnameForm.MatchString(req.Hostname):
		return fault.InvalidField("hostname", "%q cannot be a host name", req.Hostname)
	case req.MachineID != "" && !machineIDForm.MatchString(req.MachineID):
		return fault.InvalidField("machine_id", "machine_id must be 32 hex digits, not %q", req.MachineID)
	case req.Reseed && len(req.Entropy) < leastSeed:
		return fault.InvalidField("entropy", "entropy has %d bytes, at least %d are needed", len(req.Entropy), leastSeed)
	case req.MemoryMB < 0:
		return fault.InvalidField("memory_mb", "memory_mb is negative")
	case req.PIDs < 0:
		return fault.InvalidField("pids", "pids is negative")
	case req.Spares < 0 || req.Spares > guestapi.MaxContexts:
		return fault.InvalidField("spares", "spares must lie between 0 and %d", guestapi.MaxContexts)
	}
	for _, r := range req.Resolvers {
		if _, err := netip.ParseAddr(r); err != nil {
			return fault.InvalidField("resolvers", "%q is not an address", r)
		}
	}
	if req.Packages != nil {
		if err := checkPackages(*req.Packages); err != nil {
			return err
		}
	}
	return checkEnvs("envs", req.Envs)
}

// assign makes this copy into one sandbox, step by step. A step that fails is
// reported and the others go on: the host decides what it can do without.
func (a *Agent) assign(req guestapi.AssignRequest) guestapi.AssignResponse {
	a.assigning.Lock()
	defer a.assigning.Unlock()
	arrived := time.Now()
	var resp guestapi.AssignResponse
	for _, s := range []struct {
		name string
		do   func() (string, error)
	}{
		{"clock", func() (string, error) { return checkClock(req.UnixNano, arrived) }},
		{"env", func() (string, error) { return a.assignEnv(req) }},
		{"limits", func() (string, error) { return a.assignLimits(req) }},
		{"random", func() (string, error) { return a.assignRandom(req) }},
		{"hostname", func() (string, error) { return a.assignHostname(req.Hostname) }},
		{"resolvers", func() (string, error) { return a.assignResolvers(req.Resolvers) }},
		{"packages", func() (string, error) { return a.assignPackages(req.Packages) }},
		{"machine_id", func() (string, error) { return a.assignMachineID(req.MachineID) }},
		{"generation_file", func() (string, error) { return a.assignGeneration(req.Generation) }},
		{"hooks", func() (string, error) { return a.restoreHooks(req.KeepEnvs, req.Generation) }},
		{"rehearsal", func() (string, error) { return a.rehearse(req.Rehearse) }},
	} {
		resp.Steps = append(resp.Steps, runStep(s.name, s.do))
	}
	return resp
}

// runStep runs one step, but no longer than its time: one that hangs must not
// keep the sandbox from its user.
func runStep(name string, do func() (string, error)) guestapi.Step {
	type result struct {
		detail string
		err    error
	}
	start := time.Now()
	done := make(chan result, 1)
	go func() {
		detail, err := do()
		done <- result{detail, err}
	}()
	step := guestapi.Step{Name: name}
	select {
	case r := <-done:
		step.OK, step.Detail = r.err == nil, r.detail
		if r.err != nil {
			step.Detail = r.err.Error()
		}
	case <-time.After(stepTime):
		step.Detail = fmt.Sprintf("it took longer than %v and was left alone", stepTime)
	}
	step.MS = milliseconds(time.Since(start))
	return step
}

func checkClock(host int64, arrived time.Time) (string, error) {
	if host == 0 {
		return "the host gave no time", nil
	}
	skew := arrived.Sub(time.Unix(0, host)).Round(time.Microsecond)
	if skew.Abs() > clockWithin {
		return "", fmt.Errorf("the clock differs from the host's by %v", skew)
	}
	return fmt.Sprintf("differs from the host's by %v", skew), nil
}

func (a *Agent) assignEnv(req guestapi.AssignRequest) (string, error) {
	envs := map[string]string{"PANDASTACK_SANDBOX_ID": req.SandboxID}
	for k, v := range req.Envs {
		envs[k] = v
	}
	a.env.assign(envs, req.KeepEnvs)
	return fmt.Sprintf("%d variables", len(req.Envs)), nil
}

func (a *Agent) assignLimits(req guestapi.AssignRequest) (string, error) {
	a.watchdog.setLimit(int64(req.MemoryMB) << 20)
	if req.PIDs == 0 || !a.cfg.LimitProcesses {
		return "no limit of processes", nil
	}
	limit := unix.Rlimit{Cur: uint64(req.PIDs), Max: uint64(req.PIDs)}
	// Children inherit the agent's own limit; it does not bind the agent, which
	// runs under another user id.
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &limit, nil); err != nil {
		return "", fmt.Errorf("limit the processes: %w", err)
	}
	all, err := child.List()
	if err != nil {
		return "", fmt.Errorf("list processes: %w", err)
	}
	limited := 0
	for _, p := range all {
		if p.PID == os.Getpid() {
			continue
		}
		if err := unix.Prlimit(p.PID, unix.RLIMIT_NPROC, &limit, nil); err == nil {
			limited++
		} else if !errors.Is(err, unix.ESRCH) {
			return "", fmt.Errorf("limit process %d: %w", p.PID, err)
		}
	}
	return fmt.Sprintf("%d processes, set for %d that run already", req.PIDs, limited), nil
}

func (a *Agent) assignRandom(req guestapi.AssignRequest) (string, error) {
	a.kernels.Assign(kernels.Limits{
		MemoryBytes: int64(req.MemoryMB) << 20, Spares: req.Spares, Reseed: req.Reseed, Entropy: req.Entropy,
	})
	if !req.Reseed {
		return "left as it was in the snapshot", nil
	}
	return "made new in every context", nil
}

func (a *Agent) assignHostname(name string) (string, error) {
	if name == "" {
		return "none given", nil
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	detail := "set by the host"
	if unix.ByteSliceToString(uts.Nodename[:]) != name {
		if err := unix.Sethostname([]byte(name)); err != nil {
			return "", fmt.Errorf("set the host name: %w", err)
		}
		detail = "set by the agent"
	}
	if err := replaceFile(filepath.Join(a.cfg.Etc, "hostname"), name+"\n", 0o644); err != nil {
		return "", err
	}
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + name + "\n"
	return detail, replaceFile(filepath.Join(a.cfg.Etc, "hosts"), hosts, 0o644)
}

// ours begins a resolv.conf that the agent wrote and may write again.
const ours = "# The sandbox's own resolver.\n"

// assignResolvers says where names are asked for. What a user wrote stays.
func (a *Agent) assignResolvers(addrs []string) (string, error) {
	if len(addrs) == 0 {
		return "none given", nil
	}
	path := filepath.Join(a.cfg.Etc, "resolv.conf")
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if len(bytes.TrimSpace(have)) > 0 && !bytes.HasPrefix(have, []byte(ours)) {
		return "the user's own stay", nil
	}
	// The answer comes from this machine: what is lost was lost with a daemon.
	want := ours + "nameserver " + strings.Join(addrs, "\nnameserver ") + "\noptions timeout:2 attempts:3\n"
	if want == string(have) {
		return "as they were", nil
	}
	return "", replaceFile(path, want, 0o644)
}

func (a *Agent) assignMachineID(id string) (string, error) {
	if id == "" {
		return "none given", nil
	}
	return "", replaceFile(filepath.Join(a.cfg.Etc, "machine-id"), id+"\n", 0o444)
}

func (a *Agent) rehearse(asked bool) (string, error) {
	if !asked {
		return "not asked for", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	return "", a.kernels.Rehearse(ctx)
}

func (a *Agent) assignGeneration(generation int) (string, error) {
	if a.generation.Swap(int64(generation)) == int64(generation) {
		return "as it was", nil
	}
	return strconv.Itoa(generation), replaceFile(a.cfg.GenerationFile, strconv.Itoa(generation)+"\n", 0o644)
}

// replaceFile writes a file so that readers see the old or the new one.
func replaceFile(path, content string, perm os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), tree.TempOld+"*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(content)
	err = errors.Join(err, tmp.Chmod(perm), tmp.Close())
	if err == nil {
		if err = os.Rename(tmp.Name(), path); err == nil {
			return nil
		}
	}
	// A file that is a mount point cannot be renamed over.
	if errors.Is(err, unix.EBUSY) {
		err = os.WriteFile(path, []byte(content), perm)
	}
	return errors.Join(err, os.Remove(tmp.Name()))
}

func (a *Agent) postWarm(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.WarmRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if req.Spares < 0 || req.Spares > guestapi.MaxContexts {
		return fault.InvalidField("spares", "spares must lie between 0 and %d", guestapi.MaxContexts)
	}
	for _, name := range req.Imports {
		if name == "" || strings.ContainsAny(name, "\x00 ;\n") {
			return fault.InvalidField("imports", "%q is not the name of a module", name)
		}
	}
	a.warming.Store(true)
	defer a.warming.Store(false)
	resp, err := a.kernels.Warm(r.Context(), req)
	if err != nil {
		return err
	}
	shrink()
	return writeJSON(w, http.StatusOK, resp)
}
