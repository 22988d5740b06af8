package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// wheelsMount is where steps see the wheels and their lock.
const wheelsMount = "/run/pandastack/wheels"

// mountPoints are the folders that sandboxes mount something on. They are made
// before the first step: later the tree may hold links that a step made.
var mountPoints = []string{
	"/proc", "/sys", "/dev", "/tmp", "/run", wheelsMount,
	guestapi.LinkDir, guestapi.ProgramDir, guestapi.OutputDir, guestapi.Workspace,
}

func makeMountPoints(dir string, owner int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, point := range mountPoints {
		made := ""
		for part := range strings.SplitSeq(strings.Trim(point, "/"), "/") {
			made = filepath.Join(made, part)
			if err := root.Mkdir(made, 0o755); errors.Is(err, os.ErrExist) {
				continue
			} else if err != nil {
				return fmt.Errorf("make the mount point %s: %w", point, err)
			}
			if err := root.Lchown(made, owner, owner); err != nil {
				return fmt.Errorf("make the mount point %s: %w", point, err)
			}
		}
	}
	return nil
}

// systemScript sets up what the distribution leaves to the machine. It takes
// away what the bootstrapper copied from the host.
const systemScript = `
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > /etc/hosts
echo sandbox > /etc/hostname
: > /etc/resolv.conf
: > /etc/machine-id
id user >/dev/null 2>&1 || useradd --create-home --uid 1000 --shell /bin/bash user
chmod 1777 /tmp
chown root:root /workspace /var/log/pandastack
chmod 0755 /workspace /var/log/pandastack
mkdir -p /etc/profile.d
echo 'PATH="'"$VENV"'/bin:$PATH"' > /etc/profile.d/pandastack.sh
printf '[global]\ndisable-pip-version-check = true\nroot-user-action = ignore\n' > /etc/pip.conf
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/log/bootstrap.log /var/log/alternatives.log
`

// installScript makes the virtual environment from the wheels.
const installScript = `
python3 -c 'import sys; have = "%d.%d" % sys.version_info[:2]; want = sys.argv[1]; sys.exit(have != want and "the distribution has Python " + have + ", the recipe wants " + want)' "$PYTHON_VERSION"
python3 -m venv "$VENV"
"$VENV"/bin/pip install --no-index --no-deps --no-compile --no-cache-dir --require-hashes --progress-bar=off --quiet \
    --find-links ` + wheelsMount + ` --requirement ` + wheelsMount + `/` + lockName + `
"$VENV"/bin/pip check
`

// compileScript compiles what sandboxes may import; what packages ship as their
// own tests is left to who runs them.
const compileScript = `
"$VENV"/bin/python -m compileall -q -j 0 -x '/(tests?|idle_test|lib2to3)/' "$VENV"/lib /usr/lib/python3 || echo 'some modules do not compile; they are left as they are'
`

// stepLimits bound a step. Steps may need more than the sandboxes made later.
var stepLimits = driver.Limits{MemoryMB: 4096, PIDs: 4096}

// stepDiskMB bounds what a step may write where it writes to a layer.
const stepDiskMB = 16384

// run is one build of one template.
type run struct {
	b        *Builder
	recipe   Recipe
	digests  digests
	programs string // host folder
	staging  string // host folder, removed at the end
	log      *os.File
	fresh    sync.Once // empties the log before the first step
	track    *tracker
}

// inside runs a script as root in a sandbox that writes into the root
// filesystem itself and has no network.
func (r *run) inside(ctx context.Context, rootfs, name, script string, binds map[string]string) error {
	log := filepath.Join(r.staging, name+".log")
	link := filepath.Join(r.staging, "no-link")
	if err := os.MkdirAll(link, 0o755); err != nil {
		return err
	}
	inst, err := r.b.Driver.Boot(ctx, driver.BootSpec{
		Spec: driver.Spec{
			ID: newID(), Hostname: "build", Rootfs: rootfs, LinkDir: link, Programs: r.programs,
			DiskMB: stepDiskMB, Limits: stepLimits,
		},
		Writable: true,
		Argv:     []string{"/bin/sh", "-eu", "-c", script},
		Env: []string{
			"DEBIAN_FRONTEND=noninteractive", "PYTHONDONTWRITEBYTECODE=", "VENV=" + r.recipe.Python.Venv,
			"PYTHON_VERSION=" + r.recipe.Python.Version,
		},
		Binds: binds,
		Log:   log,
	})
	if err != nil {
		return fmt.Errorf("start a sandbox: %w", err)
	}
	exit, err := inst.Wait(ctx)
	stopErr := inst.Stop(context.WithoutCancel(ctx))
	copyErr := r.appendLog(log)
	if err != nil {
		return errors.Join(err, stopErr)
	}
	if exit.Code != 0 || exit.Reason != "exited" {
		return &stepExit{exit: exit, tail: tailOf(log)}
	}
	return errors.Join(stopErr, copyErr)
}

// appendLog adds a step's log to the build's.
func (r *run) appendLog(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	_, err = r.log.Write(raw)
	return err
}

// stepExit is how a step's program ended when it did not end well.
type stepExit struct {
	exit driver.Exit
	tail string
}

func (e *stepExit) Error() string {
	switch {
	case e.exit.Reason == "oom":
		return fmt.Sprintf("it needed more than %d MB of memory", stepLimits.MemoryMB)
	case e.exit.Reason != "exited":
		return fmt.Sprintf("the sandbox ended (%s): %s", e.exit.Reason, e.exit.Detail)
	default:
		return fmt.Sprintf("exit status %d", e.exit.Code)
	}
}
