package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/netns"
)

// What a host must have at least.
const (
	minKernel = "5.10"    // pidfds that can be polled
	minDiskMB = 2 << 10   // free, where the sandboxes' layers are
	checkID   = "doctor0" // of the sandbox that Check makes
)

// Check implements driver.Driver. The last check makes a sandbox as Prepare
// does, and removes it.
func (d *Driver) Check(ctx context.Context) []driver.Check {
	checks := []driver.Check{
		checkRoot(), checkKernel(), d.checkRunsc(ctx), checkUserNamespaces(ctx), checkSeccomp(), d.checkCgroups(), d.checkDisk(),
	}
	if d.nets != nil {
		checks = append(checks, checkNetwork())
	}
	for _, c := range checks {
		if !c.OK {
			return checks // a sandbox would fail for the same reason, with worse words
		}
	}
	return append(checks, d.checkStart(ctx))
}

func checkRoot() driver.Check {
	if uid := os.Geteuid(); uid != 0 {
		return driver.Failed("root", "run it as root, for instance with sudo; sandboxes themselves never run as root", "the program runs as user %d, and only root can make namespaces with ids of their own", uid)
	}
	return driver.Passed("root", "runs as root")
}

func checkKernel() driver.Check {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return driver.Failed("kernel", "see the detail", "uname: %v", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	if older(release, minKernel) {
		return driver.Failed("kernel", "upgrade to Linux "+minKernel+" or newer", "Linux %s", release)
	}
	return driver.Passed("kernel", "Linux %s", release)
}

// older compares the first two numbers of versions.
func older(have, need string) bool {
	var h, n [2]int
	_, _ = fmt.Sscanf(have, "%d.%d", &h[0], &h[1])
	_, _ = fmt.Sscanf(need, "%d.%d", &n[0], &n[1])
	return h[0] < n[0] || h[0] == n[0] && h[1] < n[1]
}

func (d *Driver) checkRunsc(ctx context.Context) driver.Check {
	const fix = "put the runsc that belongs to this build beside the program (make build does), readable and executable for everyone (chmod 755)"
	info, err := os.Stat(d.runsc)
	if err != nil {
		return driver.Failed("runsc", fix, "%v", err)
	}
	if info.Mode()&0o005 != 0o005 {
		return driver.Failed("runsc", fix, "%s has mode %s, and the sandboxes' processes run it as nobody", d.runsc, info.Mode())
	}
	version, err := d.version()
	if err != nil {
		return driver.Failed("runsc", fix, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.runsc, "--version")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = d.start(cmd)
	if err == nil {
		err = cmd.Wait()
		d.ended(cmd)
	}
	if err != nil {
		return driver.Failed("runsc", fix, "%s does not run: %v: %s", d.runsc, err, strings.TrimSpace(said.String()))
	}
	return driver.Passed("runsc", "%s, gVisor %s", d.runsc, version)
}

func checkUserNamespaces(ctx context.Context) driver.Check {
	const name = "user namespaces"
	const file = "/proc/sys/user/max_user_namespaces"
	if data, err := os.ReadFile(file); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n == 0 {
			return driver.Failed(name, "sysctl user.max_user_namespaces=10000", "%s is 0", file)
		}
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: IDBase, Size: IDCount}}
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return driver.Failed(name, "let root make user namespaces: the kernel lets nobody in a chroot (pivot_root instead, as systemd-nspawn does), and a container needs CAP_SYS_ADMIN and no seccomp profile that forbids clone and unshare", "a user namespace with the ids from %d cannot be made: %v %s", IDBase, err, out)
	}
	return driver.Passed(name, "ids 0 to %d inside are %d and up on the host", IDCount-1, IDBase)
}

func checkSeccomp() driver.Check {
	data, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil || !strings.Contains(string(data), "trap") {
		return driver.Failed("seccomp", "boot a kernel with CONFIG_SECCOMP_FILTER", "the kernel has no seccomp filters: %v", err)
	}
	return driver.Passed("seccomp", "filters are available")
}

func (d *Driver) checkCgroups() driver.Check {
	kind := "version 1"
	if d.cgroups.unified {
		kind = "version 2"
	}
	if missing := d.cgroups.missing(); len(missing) > 0 {
		return driver.Failed("cgroups", "mount the controllers, or enable them on the kernel's command line (cgroup_enable=memory)", "%s without %s, so limits would not hold", kind, strings.Join(missing, ", "))
	}
	if root, why := d.cgroups.closed(); why != nil {
		return driver.Failed("cgroups", "mount -o remount,rw "+root+"; a container needs the host's cgroups, writable", "no groups can be made in %s: %v", root, why)
	}
	return driver.Passed("cgroups", "%s", kind)
}

func (d *Driver) checkDisk() driver.Check {
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		return driver.Failed("disk", "see the detail", "%s: %v", d.dir, err)
	}
	free := int64(st.Bavail) * int64(st.Bsize) >> 20
	if free < minDiskMB {
		return driver.Failed("disk", fmt.Sprintf("free at least %d MB, or choose another data directory", minDiskMB), "%d MB are free at %s", free, d.dir)
	}
	return driver.Passed("disk", "%d MB are free at %s", free, d.dir)
}

func checkNetwork() driver.Check {
	const name = "network"
	if err := netns.Check(); err != nil {
		fix := "see the detail; or run without networks: network_interface = false"
		var e *fault.Error
		if errors.As(err, &e) && e.Hint != "" {
			fix = e.Hint
		}
		return driver.Failed(name, fix, "%v", err)
	}
	return driver.Passed(name, "a namespace with an interface was made and removed")
}

// checkStart makes a sandbox that never runs anything.
func (d *Driver) checkStart(ctx context.Context) driver.Check {
	const name = "sandbox"
	dir := filepath.Join(d.dir, "check")
	spec := driver.BootSpec{Spec: driver.Spec{
		ID: checkID, Hostname: checkID, Rootfs: filepath.Join(dir, "rootfs"), LinkDir: filepath.Join(dir, "link"), Programs: filepath.Join(dir, "programs"),
	}}
	defer os.RemoveAll(dir)
	var err error
	for _, path := range []string{dir, spec.Rootfs, spec.LinkDir, spec.Programs} {
		if e := os.Mkdir(path, 0o755); e != nil && !errors.Is(e, os.ErrExist) {
			err = errors.Join(err, e)
		}
	}
	if err == nil {
		err = os.Chown(spec.Rootfs, IDBase, IDBase)
	}
	if err == nil {
		err = d.validate(spec)
	}
	began := time.Now()
	if err == nil {
		if _, err = d.create(ctx, spec, d.prepares); err == nil {
			unlock := d.lock(checkID)
			err = d.clear(ctx, checkID)
			unlock()
		}
	}
	if err != nil {
		fix := "the detail ends with what runsc said"
		var e *fault.Error
		if errors.As(err, &e) && e.Hint != "" {
			fix = e.Hint
		}
		return driver.Failed(name, fix, "a sandbox cannot be made: %v", err)
	}
	return driver.Passed(name, "one was made and removed in %d ms", time.Since(began).Milliseconds())
}
