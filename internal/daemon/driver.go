package daemon

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/netns"
)

// The folders of drivers in the data directory. That of sandboxes is called as
// the first driver was.
const (
	sandboxDir = "gvisor"
	buildDir   = "build"
)

// newDriver makes the driver that the settings name. A new driver is one line
// here and a folder of its own. It keeps what it needs in dir, which stands in
// the data directory.
func newDriver(cfg *config.Config, dir string, log *slog.Logger) (driver.Driver, error) {
	switch cfg.Driver {
	case "gvisor":
		runsc, err := findRunsc(cfg.Runsc)
		if err != nil {
			return nil, err
		}
		return gvisor.New(gvisor.Config{
			Runsc: runsc, Dir: filepath.Join(cfg.DataDir, dir), Log: log,
			Network: cfg.Network && dir == sandboxDir, // builds need none, and what they make can be given one
		})
	case "fake":
		return fake.New(fake.NewHost()), nil
	}
	return nil, fault.InvalidField("driver", "there is no driver %q", cfg.Driver)
}

// mayServe refuses at once what would fail for every sandbox, with words that
// nobody would find in the log of a create.
func mayServe(cfg *config.Config) error {
	if cfg.Driver == "gvisor" && os.Geteuid() != 0 {
		return fault.New(api.CodeDenied, "this runs as user %d, and only root can make sandboxes: they get namespaces with user ids of their own", os.Geteuid()).
			WithHint("run it as root, with sudo or as the service of the package; sandboxes never run as root, and clients need no root")
	}
	return nil
}

// mayConnect says at once when no sandbox could have an interface.
func mayConnect(cfg *config.Config) error {
	if cfg.Driver != "gvisor" || !cfg.Network {
		return nil
	}
	return netns.Check()
}

// probeDriver makes the driver in a folder that goes away, for looking at the
// host beside a daemon that may be running. It is on the disk that the data
// directory is or will be on, when that can be.
func probeDriver(cfg *config.Config, log *slog.Logger) (driver.Driver, func(), error) {
	dir, err := os.MkdirTemp(nearestDir(cfg.DataDir), "doctor-")
	if err != nil {
		dir, err = os.MkdirTemp("", "pandastack-doctor-")
	}
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o711); err != nil { // sandboxes' processes are nobody on the host
		return nil, remove, err
	}
	probe := *cfg
	probe.DataDir = dir
	drv, err := newDriver(&probe, sandboxDir, log)
	return drv, remove, err
}

// findRunsc looks where the setting says, beside this program, and in PATH.
func findRunsc(setting string) (string, error) {
	if setting != "" {
		if err := unix.Access(setting, unix.R_OK|unix.X_OK); err != nil {
			return "", fault.Wrap(err, api.CodeUnsupported, "gVisor's program %s, which the setting runsc names, cannot be run", setting).
				WithHint("put it there, or leave the setting out if it is beside this program")
		}
		return setting, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "runsc")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	if p, err := exec.LookPath("runsc"); err == nil {
		return filepath.Abs(p)
	}
	return "", fault.New(api.CodeUnsupported, "gVisor's program runsc is neither beside this program nor in PATH").
		WithHint("make build puts it into bin; or name it with --set runsc=PATH")
}
