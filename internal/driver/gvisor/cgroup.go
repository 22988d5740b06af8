package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	cgroupTop   = "pandastack" // above the groups of all daemons on the host
	cpuPeriod   = 100_000      // µs
)

const mountCgroups = "mount -t cgroup2 cgroup2 " + cgroupMount + "; a chroot or a container needs the host's, writable"

// hierarchy is where the cgroups of this driver's sandboxes are: TOP/HASH/ID in
// each controller of version 1, or in the one tree of version 2. We make, set,
// read and remove them; runsc only puts its processes in.
type hierarchy struct {
	unified bool              // version 2
	roots   map[string]string // controller → folder of its tree; with version 2 only ""
	group   string

	mu *sync.Mutex // held while a parent is made or removed
}

// groupOf names the group of the sandboxes in a folder, so that daemons with
// other folders never meet.
func groupOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(cgroupTop, hex.EncodeToString(sum[:4]))
}

// findHierarchy looks at what is mounted.
func findHierarchy(mount, group string) (hierarchy, error) {
	h := hierarchy{roots: map[string]string{}, group: group, mu: &sync.Mutex{}}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		h.unified = true
		h.roots[""] = mount
		return h, nil
	}
	dirs, err := os.ReadDir(mount)
	if err != nil {
		return h, fault.Wrap(err, "unsupported", "cgroups").WithHint(mountCgroups)
	}
	for _, e := range dirs {
		dir := filepath.Join(mount, e.Name())
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil || e.Name() == "unified" {
			continue
		}
		h.roots[e.Name()] = dir
	}
	if len(h.roots) == 0 {
		return h, fault.New("unsupported", "cgroups: nothing is mounted at %s", mount).WithHint(mountCgroups)
	}
	return h, nil
}

// missing are the controllers without which limits do not hold.
func (h hierarchy) missing() []string {
	have := map[string]bool{}
	if h.unified {
		data, _ := os.ReadFile(filepath.Join(h.roots[""], "cgroup.controllers"))
		for _, c := range strings.Fields(string(data)) {
			have[c] = true
		}
	} else {
		for c := range h.roots {
			have[c] = true
		}
	}
	return slices.DeleteFunc([]string{"cpu", "memory", "pids"}, func(c string) bool { return have[c] })
}

// closed is a tree in which no groups can be made, and why; "" if there is none.
func (h hierarchy) closed() (root string, why error) {
	for _, root := range h.roots {
		if err := unix.Access(root, unix.W_OK); err != nil {
			return root, err
		}
	}
	return "", nil
}

// path is the group of a sandbox, from the root of each tree.
func (h hierarchy) path(id string) string { return "/" + filepath.Join(h.group, id) }

// dir is the folder of a sandbox's group in the tree of one controller.
func (h hierarchy) dir(controller, id string) string {
	if h.unified {
		controller = ""
	}
	return filepath.Join(h.roots[controller], h.group, id)
}

// dirs are the folders of a sandbox's group in all trees, each once.
func (h hierarchy) dirs(id string) []string {
	seen := map[string]bool{}
	for _, root := range h.roots {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		seen[filepath.Join(root, h.group, id)] = true
	}
	dirs := make([]string, 0, len(seen))
	for dir := range seen {
		dirs = append(dirs, dir)
	}
	return dirs
}

// make makes the group of a sandbox in all trees.
func (h hierarchy) make(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, root := range h.roots {
		var err error
		for range 10 { // another daemon may remove the folder above while we make one in it
			if err = h.makeIn(name, root, id); !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

func (h hierarchy) makeIn(controller, root, id string) error {
	dir := root
	for _, part := range strings.Split(filepath.Join(h.group, id), "/") {
		if h.unified {
			if err := delegate(dir); err != nil {
				return err
			}
		}
		up := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if controller != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new group of version 1, which no process can then join
			if err := inherit(filepath.Join(up, file), filepath.Join(dir, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate lets groups below a group of version 2 have limits.
func delegate(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(data)) {
		switch c {
		case "cpu", "cpuset", "memory", "pids":
			if err := write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
				return err
			}
		}
	}
	return nil
}

func inherit(from, to string) error {
	if data, err := os.ReadFile(to); err != nil || strings.TrimSpace(string(data)) != "" {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return write(to, strings.TrimSpace(string(data)))
}

// hostPIDs is how many processes and threads of the host so many of the guest
// need at most: two each, and those of sentry, gofer and a command of runsc.
// The sentry dies when it cannot have one more, so the guest's own limit must
// hold first.
func hostPIDs(guest int) int { return 2*guest + 150 }

// set applies limits. The group's processes feel them at once.
func (h hierarchy) set(id string, l driver.Limits) error {
	var err error
	put := func(controller, file, value string, optional bool) {
		path := filepath.Join(h.dir(controller, id), file)
		if e := write(path, value); e != nil && !(optional && errors.Is(e, fs.ErrNotExist)) {
			err = errors.Join(err, fmt.Errorf("cgroup: %s: %w", file, e))
		}
	}
	memory, quota, pids := "max", "max", "max"
	if l.MemoryMB > 0 {
		memory = strconv.FormatInt(int64(l.MemoryMB)<<20, 10)
	}
	if l.CPU > 0 {
		quota = strconv.Itoa(max(1000, int(math.Round(l.CPU*cpuPeriod)))) // less is refused
	}
	if l.PIDs > 0 {
		pids = strconv.Itoa(hostPIDs(l.PIDs))
	}
	if h.unified {
		put("memory", "memory.oom.group", "1", true)
		put("memory", "memory.swap.max", "0", true)
		put("memory", "memory.max", memory, false)
		put("cpu", "cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod), false)
		put("pids", "pids.max", pids, false)
		return err
	}
	if memory == "max" {
		memory = "-1"
	}
	if quota == "max" {
		quota = "-1"
	}
	// Memory with swap may never be less than memory, so the order depends on the direction.
	put("memory", "memory.memsw.limit_in_bytes", "-1", true)
	put("memory", "memory.limit_in_bytes", memory, false)
	put("memory", "memory.memsw.limit_in_bytes", memory, true)
	put("cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false)
	put("cpu", "cpu.cfs_quota_us", quota, false)
	put("pids", "pids.max", pids, false)
	return err
}

// oomKills is how often the kernel killed for want of memory in the group.
func (h hierarchy) oomKills(id string) int {
	file := "memory.oom_control"
	if h.unified {
		file = "memory.events"
	}
	return int(field(filepath.Join(h.dir("memory", id), file), "oom_kill"))
}

// stats reads what the group uses.
func (h hierarchy) stats(id string) (driver.Stats, error) {
	used, inactive, cpu, unit := "memory.usage_in_bytes", "total_inactive_file", "cpuacct.usage", 1e9
	if h.unified {
		used, inactive, unit = "memory.current", "inactive_file", 1e6
	}
	var s driver.Stats
	var err error
	if s.MemoryBytes, err = number(filepath.Join(h.dir("memory", id), used)); err != nil {
		return s, err
	}
	// Clean pages of files, the snapshot's among them, are given back when needed.
	s.MemoryBytes = max(0, s.MemoryBytes-field(filepath.Join(h.dir("memory", id), "memory.stat"), inactive))
	var spent int64
	if h.unified {
		spent = field(filepath.Join(h.dir("cpu", id), "cpu.stat"), "usage_usec")
	} else if spent, err = number(filepath.Join(h.dir("cpuacct", id), cpu)); err != nil {
		return s, err
	}
	s.CPUSeconds = float64(spent) / unit
	held, unit := "throttled_time", 1e9
	if h.unified {
		held, unit = "throttled_usec", 1e6
	}
	cpuStat := filepath.Join(h.dir("cpu", id), "cpu.stat")
	s.Throttled, s.ThrottledSeconds = field(cpuStat, "nr_throttled"), float64(field(cpuStat, held))/unit
	pids, err := number(filepath.Join(h.dir("pids", id), "pids.current"))
	s.PIDs = int(pids)
	return s, err
}

// members are the processes in the group, those of all trees together.
func (h hierarchy) members(id string) []process {
	var found []process
	for _, dir := range h.dirs(id) {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, f := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(f)
			if err != nil || pid == os.Getpid() {
				continue
			}
			if p, err := findProcess(pid); err == nil && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// list gives the ids that have a group.
func (h hierarchy) list() []string {
	var ids []string
	for _, dir := range h.dirs("") {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(ids, e.Name()) {
				ids = append(ids, e.Name())
			}
		}
	}
	return ids
}

// remove removes the group, and those above it when they are empty. The
// kernel keeps a group busy for a moment after its last process ended.
func (h hierarchy) remove(ctx context.Context, id string) error {
	for _, dir := range h.dirs(id) {
		for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
			err := unix.Rmdir(dir)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("cgroup: remove %s: %w", dir, err)
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("cgroup: remove %s: %w", dir, errors.Join(err, context.Cause(ctx)))
			case <-time.After(wait):
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dir := range h.dirs("") {
		if unix.Rmdir(dir) == nil {
			_ = unix.Rmdir(filepath.Dir(dir)) // shared with other daemons
		}
	}
	return nil
}

// write writes a value to a control file, which must exist.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// number reads a file that holds one number.
func number(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// field reads a number from a file of names and numbers; 0 if it is not there.
func field(path, name string) int64 {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}
