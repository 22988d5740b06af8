package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	maxID       = 63  // a label of a host name
	unixPathMax = 108 // of a socket's path
)

var validID = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)

// box is one sandbox's place on disk:
//
//	DIR/runsc/                 what runsc keeps (--root)
//	DIR/sandboxes/ID/          the bundle: config.json
//	DIR/sandboxes/ID/box.json  what Adopt needs to know
//	DIR/sandboxes/ID/layer/    the writable layer, a file that runsc unlinks at once
//	DIR/sandboxes/ID/log/      the logs of runsc
type box struct {
	ID      string        `json:"id"`
	Running bool          `json:"running"` // restored or booted, so that it can be adopted
	DiskMB  int           `json:"disk_mb"`
	Memory  int64         `json:"memory,omitempty"` // bytes in the snapshot that it came from, of which some may not be loaded yet
	Direct  bool          `json:"direct"`           // writes go to the root filesystem itself
	Sentry  process       `json:"sentry"`
	Gofer   process       `json:"gofer"`
	Limits  driver.Limits `json:"limits"`
	Network bool          `json:"network,omitempty"` // it has an interface

	dir string
}

func (d *Driver) root() string            { return filepath.Join(d.dir, "runsc") }
func (d *Driver) socket(id string) string { return filepath.Join(d.root(), "runsc-"+id+".sock") }
func (d *Driver) sandboxes() string       { return filepath.Join(d.dir, "sandboxes") }

func (d *Driver) box(id string) *box {
	return &box{ID: id, dir: filepath.Join(d.sandboxes(), id)}
}

func (b *box) layer() string       { return filepath.Join(b.dir, "layer") }
func (b *box) logs() string        { return filepath.Join(b.dir, "log") }
func (b *box) log(n string) string { return filepath.Join(b.logs(), n) }

// make makes the folders.
func (b *box) make() error {
	if err := os.Mkdir(b.dir, 0o711); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fault.New("conflict", "sandbox %s exists already", b.ID)
		}
		return err
	}
	for _, dir := range []string{b.layer(), b.logs()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// save writes box.json whole or not at all.
func (b *box) save() error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(b.dir, "box.json"), data)
}

// load reads box.json.
func (b *box) load() error {
	data, err := os.ReadFile(filepath.Join(b.dir, "box.json"))
	if err != nil {
		return err
	}
	id := b.ID
	if err := json.Unmarshal(data, b); err != nil {
		return fmt.Errorf("%s/box.json: %w", b.dir, err)
	}
	if b.ID != id {
		return fmt.Errorf("%s/box.json is that of %q", b.dir, b.ID)
	}
	return nil
}

// writeFile replaces a file in one step.
func writeFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
