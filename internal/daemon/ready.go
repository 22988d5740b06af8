package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/sandbox"
)

const (
	readyFor    = time.Second            // a good answer holds for so long, however often it is asked for
	unreadyFor  = 100 * time.Millisecond // a bad one, which somebody waits to see changed
	readyTime   = 5 * time.Second
	readyDiskMB = 256 // under this much free space sandboxes and the database fail soon
)

// prober is the store.
type prober interface {
	Probe(ctx context.Context, now time.Time) error
}

// readiness says whether sandboxes can be made.
type readiness struct {
	dataDir string
	manager *sandbox.Manager
	store   prober
	log     *slog.Logger
	diskMB  func(dir string) (int64, error)

	mu   sync.Mutex
	at   time.Time
	last api.Readiness
}

// check looks again when the last look is too long ago. A pool that is empty
// is no reason: a create takes longer then, and works.
func (r *readiness) check(ctx context.Context) api.Readiness {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := readyFor
	if len(r.last.Reasons) > 0 {
		holds = unreadyFor
	}
	if time.Since(r.at) < holds {
		return r.last
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	out := r.look(ctx)
	if ctx.Err() == nil { // what a caller that left has seen is no answer for others
		r.at, r.last = time.Now(), out
	}
	return out
}

func (r *readiness) look(ctx context.Context) api.Readiness {
	out := api.Readiness{Status: "ready", Reasons: []api.Reason{}, Warnings: []api.Reason{}}
	unready := func(id, fix, format string, args ...any) {
		out.Status = "unready"
		out.Reasons = append(out.Reasons, api.Reason{ID: id, Detail: fmt.Sprintf(format, args...), Fix: fix})
	}
	if !r.manager.Taken() {
		unready("starting", "wait a moment", "the sandboxes of the last daemon are being taken over")
	}
	const build = "pandastack template build "
	switch good, stale, err := r.manager.Usable(ctx); {
	case err != nil:
		r.log.Warn("the templates cannot be read", "error", err)
		unready("no_template", "look at the server's log", "the templates cannot be read")
	case len(good)+len(stale) == 0:
		unready("no_template", build+"code-interpreter", "no template is built")
	case len(good) == 0:
		unready("template_stale", build+stale[0], "every template was built for another version or machine: %s", strings.Join(stale, ", "))
	case len(stale) > 0:
		out.Warnings = append(out.Warnings, api.Reason{
			ID: "template_stale", Detail: "built for another version or machine: " + strings.Join(stale, ", "), Fix: build + stale[0],
		})
	}
	if mb, err := r.diskMB(r.dataDir); err != nil {
		r.log.Warn("the free space of the data directory cannot be read", "error", err)
		unready("disk_full", "see that the data directory is there", "the free space of the data directory cannot be read")
	} else if mb < readyDiskMB {
		unready("disk_full", "free space on the disk of the data directory; killing sandboxes frees some", "%d MB are free for the data directory, %d are needed", mb, readyDiskMB)
	}
	if err := r.store.Probe(ctx, time.Now()); err != nil {
		r.log.Warn("the database does not work", "error", err)
		unready("store_broken", "look at the server's log, and at the disk of the data directory", "the database does not take what is written to it")
	}
	return out
}

// freeMB is the space that is left for the daemon on a folder's disk.
func freeMB(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize >> 20, nil
}
