package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// Doctor looks at this machine with the eyes of the daemon. It changes nothing.
func Doctor(ctx context.Context, cfg *config.Config) []driver.Check {
	mounts := checkMounts("/")
	if !mounts.OK {
		return []driver.Check{mounts} // all others would fail for the same reason, with worse words
	}
	checks := []driver.Check{
		mounts,
		checkDataDir(cfg.DataDir),
		checkPrograms(),
	}
	checks = append(checks, checkDriver(ctx, cfg)...)
	return append(checks, checkTemplates(ctx, cfg), checkListen(ctx, cfg.Listen))
}

// ofError puts an error and its hint into a check.
func ofError(name string, err error, fix string) driver.Check {
	var f *fault.Error
	if errors.As(err, &f) && f.Hint != "" {
		fix = f.Hint
	}
	return driver.Failed(name, fix, "%v", err)
}

// nearestDir is the folder itself, or the one that it would be made in.
func nearestDir(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// checkMounts looks for what a chroot or a container may lack of a whole
// system. What drivers need beyond that they check themselves.
func checkMounts(root string) driver.Check {
	const name = "mounts"
	proc := filepath.Join(root, "proc")
	var st unix.Statfs_t
	if err := unix.Statfs(proc, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return driver.Failed(name, "mount -t proc proc "+proc, "%s is not mounted", proc)
	}
	null := filepath.Join(root, "dev", "null")
	if info, err := os.Stat(null); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return driver.Failed(name, "mount --bind the host's /dev, or mknod -m 666 "+null+" c 1 3", "%s is no device", null)
	}
	return driver.Passed(name, "/proc and /dev are there")
}

func checkDataDir(dir string) driver.Check {
	const name = "data directory"
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return driver.Failed(name, "move it away, or choose another with --data-dir", "%s is not a folder", dir)
	}
	if err := unix.Access(nearestDir(dir), unix.W_OK|unix.X_OK); err != nil {
		return driver.Failed(name, "run as root, or choose another with --data-dir", "%s is not writable: %v", nearestDir(dir), err)
	}
	return driver.Passed(name, "%s", dir)
}

func checkPrograms() driver.Check {
	const name = "guest programs"
	programs, err := Programs()
	if err != nil {
		return ofError(name, err, "make build")
	}
	info, err := fs.Stat(programs, "guest")
	if err != nil {
		return ofError(name, err, "make build")
	}
	return driver.Passed(name, "the agent is compiled in, %.1f MB", float64(info.Size())/1e6)
}

func checkDriver(ctx context.Context, cfg *config.Config) []driver.Check {
	drv, remove, err := probeDriver(cfg, slog.New(slog.DiscardHandler))
	if remove != nil {
		defer remove()
	}
	if err != nil {
		return []driver.Check{ofError("driver", err, "see the detail")}
	}
	return drv.Check(ctx)
}

func checkTemplates(ctx context.Context, cfg *config.Config) driver.Check {
	const name = "templates"
	list, err := Templates(ctx, cfg)
	if err != nil {
		return ofError(name, err, "see the detail")
	}
	if len(list) == 0 {
		return driver.Failed(name, "pandastack template build code-interpreter", "none is built")
	}
	var names, stale []string
	for _, t := range list {
		names = append(names, t.Name)
	}
	if stale, err = staleTemplates(ctx, cfg); err != nil {
		return ofError(name, err, "see the detail")
	}
	if len(stale) > 0 {
		return driver.Failed(name, "pandastack template build "+stale[0], "built for another version or machine: %s", strings.Join(stale, ", "))
	}
	return driver.Passed(name, "%s", strings.Join(names, ", "))
}

// staleTemplates names those that the driver cannot restore. What the driver
// itself lacks is for its own checks to say.
func staleTemplates(ctx context.Context, cfg *config.Config) ([]string, error) {
	drv, remove, err := probeDriver(cfg, slog.New(slog.DiscardHandler))
	if remove != nil {
		defer remove()
	}
	r, ok := drv.(driver.Restorer)
	if err != nil || !ok {
		return nil, nil
	}
	list, err := templatesFor(cfg).Templates(ctx)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, t := range list {
		if err := r.Restorable(ctx, t.Snapshot); errors.Is(err, driver.ErrStale) {
			stale = append(stale, t.Info.Name)
		}
	}
	return stale, nil
}

// checkListen says whether the address is free, or ours already.
func checkListen(ctx context.Context, addr string) driver.Check {
	const name = "address"
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		ln.Close()
		return driver.Passed(name, "%s is free; start the daemon with: pandastack serve", addr)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, rerr := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if rerr != nil {
		return driver.Failed(name, "give --listen as host:port", "%v", rerr)
	}
	res, rerr := http.DefaultClient.Do(req)
	if rerr == nil {
		defer res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return driver.Passed(name, "a daemon answers at %s", addr)
		}
	}
	return driver.Failed(name, "end what uses it, or choose another with --listen", "%s is not to be had: %v", addr, err)
}
