package gvisor

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tidyEvery = 15 * time.Second
	maxLog    = 1 << 20 // bytes of one log; a guest can make the sentry write warnings
)

// janitor keeps small what would grow for as long as the daemon runs.
func (d *Driver) janitor() {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	ended := map[process]bool{}
	for {
		select {
		case <-d.closed:
			return
		case <-ticker.C:
			d.trimLogs()
			ended = d.reapStrangers(ended)
		}
	}
}

// Close ends what works in the background. Sandboxes go on, and their
// connections are reset: what was at the other end of them goes.
func (d *Driver) Close() error {
	var err error
	d.closing.Do(func() {
		close(d.closed)
		d.mu.Lock()
		ids := slices.Collect(maps.Keys(d.links))
		d.mu.Unlock()
		for _, id := range ids {
			err = errors.Join(err, d.hangUp(id))
		}
		if d.nets != nil {
			err = errors.Join(err, d.nets.Close())
		}
	})
	return err
}

// trimLogs empties logs that have grown too long. Their writers append.
func (d *Driver) trimLogs() {
	files, _ := filepath.Glob(filepath.Join(d.sandboxes(), "*", "log", "*"))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Size() > maxLog {
			if err := os.Truncate(file, 0); err != nil {
				d.log.Warn("cannot trim a log", "file", file, "error", err)
			}
		}
	}
}

// reapStrangers takes ended orphans of any program off the kernel's list, which
// come to us because we asked to be their reaper. A child that os/exec is to
// wait for looks the same, but is waited for at once; so it takes only those
// that were there the last time too.
func (d *Driver) reapStrangers(before map[process]bool) map[process]bool {
	now := map[process]bool{}
	for _, pid := range children() {
		st, err := readStat(pid)
		if err != nil || st.state != 'Z' {
			continue
		}
		p := process{PID: pid, Start: st.start}
		if before[p] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		} else {
			now[p] = true
		}
	}
	return now
}
