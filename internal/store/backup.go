package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// keepBackups is how many backups are kept: the last one of each of that many
// versions of the database.
const keepBackups = 5

type backup struct {
	version int64
	path    string
}

var backupName = regexp.MustCompile(`^pandastack-v(\d+)\.db$`)

func (s *Store) backupDir() string { return filepath.Join(s.dir, "backups") }

// backups gives those that there are, the newest version first.
func (s *Store) backups() []backup {
	entries, err := os.ReadDir(s.backupDir())
	if err != nil {
		return nil // none was made, or none can be had
	}
	var out []backup
	for _, e := range entries {
		if m := backupName.FindStringSubmatch(e.Name()); m != nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				out = append(out, backup{n, filepath.Join(s.backupDir(), e.Name())})
			}
		}
	}
	slices.SortFunc(out, func(a, b backup) int { return cmp.Compare(b.version, a.version) })
	return out
}

// Backup writes a copy of the database to backups/pandastack-vN.db in the data
// directory, N being the version of its tables. It replaces the last one of
// that version; those of the five newest versions are kept. Open makes one by
// itself before it changes the tables.
func (s *Store) Backup(ctx context.Context) (path string, err error) {
	if err := os.MkdirAll(s.backupDir(), 0o700); err != nil {
		return "", fmt.Errorf("backing up the database: %w", kind(err))
	}
	path = filepath.Join(s.backupDir(), fmt.Sprintf("pandastack-v%d.db", s.version))
	tmp := path + ".new"
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("backing up the database to %s: %w", path, err), ignoreGone(os.Remove(tmp)))
		}
	}()
	if err := ignoreGone(os.Remove(tmp)); err != nil {
		return "", err
	}
	if _, err := s.write.ExecContext(ctx, "VACUUM INTO ?", tmp); err != nil {
		return "", err
	}
	if err := syncFile(tmp); err != nil {
		return "", kind(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", err
	}
	for _, old := range s.backups()[min(keepBackups, len(s.backups())):] {
		if err := ignoreGone(os.Remove(old.path)); err != nil {
			return "", err
		}
	}
	return path, nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Sync(), f.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
