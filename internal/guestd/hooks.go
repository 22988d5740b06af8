package guestd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Programs that want to know of snapshots put a socket into the folder of
// hooks. The agent says one line of JSON on each and waits for one line back.
const (
	hookTime = 1500 * time.Millisecond // for all of them
	maxHooks = 64
	maxReply = 4 << 10
)

// hookMessage is what a program is told.
type hookMessage struct {
	Event      string `json:"event"` // "snapshot" or "restore"
	Generation int    `json:"generation,omitempty"`
}

// makeHookDir makes a folder that every user inside may put a socket into.
func makeHookDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// callHooks tells every program that listens, side by side, and says how many
// there were. Sockets of programs that are gone are removed.
func (a *Agent) callHooks(ctx context.Context, m hookMessage) (string, error) {
	if a.cfg.HookDir == "" {
		return "no folder for hooks", nil
	}
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	sockets, err := filepath.Glob(filepath.Join(a.cfg.HookDir, "*.sock"))
	if err != nil {
		return "", err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	told := 0
	var failed []error
	for _, path := range sockets[:min(len(sockets), maxHooks)] {
		all.Go(func() {
			err := callHook(ctx, path, m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, unix.ECONNREFUSED):
				_ = os.Remove(path) // its program is gone
			case err != nil:
				failed = append(failed, fmt.Errorf("%s: %w", filepath.Base(path), err))
			default:
				told++
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d programs told", told), errors.Join(failed...)
}

func callHook(ctx context.Context, path string, m hookMessage) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(conn).Encode(m); err != nil {
		return err
	}
	reply, err := bufio.NewReaderSize(conn, maxReply).ReadSlice('\n')
	if err != nil {
		return err
	}
	if said := strings.TrimSpace(string(reply)); said != "ok" {
		return errors.New(short(said))
	}
	return nil
}

// postSnapshotHooks is called before an image is taken.
func (a *Agent) postSnapshotHooks(w http.ResponseWriter, r *http.Request) error {
	detail, err := a.callHooks(r.Context(), hookMessage{Event: "snapshot"})
	if err != nil {
		a.log.Warn("a hook before a snapshot failed", "error", short(err.Error()))
	}
	a.log.Debug("hooks before a snapshot", "detail", detail)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// restoreHooks tells programs that they are in a copy, or awake again.
func (a *Agent) restoreHooks(copied bool, generation int) (string, error) {
	if !copied {
		return "nobody was there to be told", nil
	}
	return a.callHooks(context.Background(), hookMessage{Event: "restore", Generation: generation})
}
