package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Store finds the templates in a data directory. Several processes may use the
// same one: a name is one small file that is replaced whole.
//
//	templates/names/NAME.json   which template the name means now
//	templates/snapshots/DIGEST  template.json and image/, what the driver wrote
//	templates/rootfs/DIGEST     root/
//	templates/staging           what is being built
//	templates/logs/NAME.log     of the last build
//	programs/DIGEST             the guest agent and the interpreter side
//	cache                       archives and wheels, which can be had again
type Store struct {
	// InUse names the digests that must stay though no name leads to them any
	// more, because a sandbox was made from them. Nil keeps everything.
	InUse func(ctx context.Context) (map[string]bool, error)

	// Now is the clock; nil means time.Now.
	Now func() time.Time

	dir      string
	contents struct {
		sync.Mutex
		of map[string]string // by root filesystem
	}
}

// sweepGrace is how long something stays after it was first found unused: who
// has just looked a template up may be about to make a sandbox from it.
const sweepGrace = 10 * time.Minute

// cacheGrace is how long what was downloaded stays though no template needs it.
const cacheGrace = 24 * time.Hour

// NewStore opens the store in a data directory, which need not exist yet.
func NewStore(dataDir string) *Store { return &Store{dir: dataDir} }

func (s *Store) names() string     { return filepath.Join(s.dir, "templates", "names") }
func (s *Store) snapshots() string { return filepath.Join(s.dir, "templates", "snapshots") }
func (s *Store) rootfs() string    { return filepath.Join(s.dir, "templates", "rootfs") }
func (s *Store) staging() string   { return filepath.Join(s.dir, "templates", "staging") }
func (s *Store) logs() string      { return filepath.Join(s.dir, "templates", "logs") }
func (s *Store) cache() string     { return filepath.Join(s.dir, "cache") }

func (s *Store) programsDir(digest string) string { return filepath.Join(s.dir, "programs", digest) }

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// makeDirs makes the store's folders. Sandboxes' processes are nobody on the
// host, so they may search what leads to their files, but list nothing.
func (s *Store) makeDirs() error {
	for _, dir := range []string{
		s.dir, filepath.Join(s.dir, "templates"), s.names(), s.snapshots(), s.rootfs(), s.staging(), s.logs(),
		filepath.Join(s.dir, "programs"), s.cache(), filepath.Join(s.cache(), "bootstrap"), filepath.Join(s.cache(), "wheels"),
	} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make the folders of templates: %w", err)
		}
	}
	return nil
}

// Get finds a template by name or alias. The error wraps fault.NotFound and
// names the nearest ones.
func (s *Store) Get(ctx context.Context, nameOrAlias string) (Template, error) {
	all, err := s.List(ctx)
	if err != nil {
		return Template{}, err
	}
	for _, t := range all {
		if t.Name == nameOrAlias {
			return t, nil
		}
	}
	for _, t := range all {
		if slices.Contains(t.Aliases, nameOrAlias) {
			return t, nil
		}
	}
	e := fault.New(api.CodeNotFound, "there is no template %q", nameOrAlias)
	e.Field = "template"
	switch near := Nearest(nameOrAlias, all); {
	case len(all) == 0:
		return Template{}, e.WithHint("none is built yet: pandastack template build code-interpreter")
	default:
		return Template{}, e.WithHint("the nearest names are %s", strings.Join(near, ", "))
	}
}

// ByDigest finds a template that a sandbox was made from, also after its name
// has moved on.
func (s *Store) ByDigest(_ context.Context, digest string) (Template, error) {
	if digest == "" || filepath.Base(digest) != digest {
		return Template{}, fault.New(api.CodeNotFound, "there is no template with the digest %q", digest)
	}
	t, err := s.read(filepath.Join(s.snapshots(), digest, "template.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, fault.Wrap(err, api.CodeNotFound, "the template with the digest %q is gone", digest)
	}
	t.Missing = missing(t)
	return t, err
}

// List gives the current templates, by name. One whose files are gone is left
// out.
func (s *Store) List(ctx context.Context) ([]Template, error) {
	all, err := s.Named(ctx)
	return slices.DeleteFunc(all, func(t Template) bool { return t.Missing != "" }), err
}

// Named is List with those whose files are gone: Missing says which.
func (s *Store) Named(context.Context) ([]Template, error) {
	entries, err := os.ReadDir(s.names())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var all []Template
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		t, err := s.read(filepath.Join(s.names(), entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		t.Missing = missing(t)
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Template) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// missing names a folder of a template that is not there, "" when all are.
func missing(t Template) string {
	for _, dir := range []string{t.Rootfs, t.Snapshot, t.Programs} {
		if _, err := os.Stat(dir); err != nil {
			return dir
		}
	}
	return ""
}

// read reads a template's description and adds the paths.
func (s *Store) read(file string) (Template, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Template{}, err
	}
	var t Template
	if err := json.Unmarshal(raw, &t); err != nil {
		return Template{}, fmt.Errorf("the description %s of a template is damaged: %w", file, err)
	}
	t.Rootfs = filepath.Join(s.rootfs(), t.RootfsDigest, "root")
	t.Snapshot = filepath.Join(s.snapshots(), t.Digest, "image")
	t.Programs = s.programsDir(t.ProgramsDigest)
	return t, nil
}

// Remove takes a name away. What it led to goes at the next Sweep.
func (s *Store) Remove(ctx context.Context, name string) error {
	t, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.names(), t.Name+".json")); err != nil {
		return fmt.Errorf("remove template %s: %w", t.Name, err)
	}
	return nil
}

// point makes a name mean this template, in one step.
func (s *Store) point(t Template) error {
	raw, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.names(), t.Name+".json"), raw)
}

// replaceFile writes a file so that readers, and a machine that loses power,
// have either the old content or the new.
func replaceFile(file string, content []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
