package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Contents describes what a root filesystem holds of programs and libraries: the
// names, sizes and links below usr and opt, without what Python compiles. Two that
// were built of the same recipe differ in it when the distribution had other
// packages. It is found once in the life of a Store.
func (s *Store) Contents(ctx context.Context, t Template) (string, error) {
	s.contents.Lock()
	defer s.contents.Unlock()
	if sum, known := s.contents.of[t.RootfsDigest]; known {
		return sum, nil
	}
	sum, err := contents(ctx, t.Rootfs)
	if err != nil {
		return "", fmt.Errorf("look through %s: %w", t.Rootfs, err)
	}
	if s.contents.of == nil {
		s.contents.of = map[string]string{}
	}
	s.contents.of[t.RootfsDigest] = sum
	return sum, nil
}

func contents(ctx context.Context, rootfs string) (string, error) {
	h := sha256.New()
	for _, top := range []string{"usr", "opt"} {
		err := filepath.WalkDir(filepath.Join(rootfs, top), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && path == filepath.Join(rootfs, top) {
				return nil
			}
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if e.IsDir() && e.Name() == "__pycache__" {
				return fs.SkipDir
			}
			var size int64
			link := ""
			switch {
			case e.Type().IsRegular():
				info, err := e.Info()
				if err != nil {
					return err
				}
				size = info.Size()
			case e.Type()&fs.ModeSymlink != 0:
				if link, err = os.Readlink(path); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(h, "%q %v %d %q\n", path[len(rootfs):], e.Type(), size, link)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
