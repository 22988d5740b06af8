package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxCpCmd struct {
	From string `arg:"" help:"What to copy: a local path, - for standard input, or ID:/path."`
	To   string `arg:"" help:"Where to: a local path, - for standard output, or ID:/path."`
}

// remote splits ID:/path.
func remote(s string) (id, p string, ok bool) {
	id, p, ok = strings.Cut(s, ":")
	return id, p, ok && id != "" && strings.HasPrefix(p, "/") && !strings.ContainsAny(id, `/\.`)
}

func (c *sandboxCpCmd) Run(a *app) error {
	fromID, from, down := remote(c.From)
	toID, to, up := remote(c.To)
	switch {
	case down && up:
		return usageError{fmt.Errorf("one side must be a local path")}
	case up:
		sb, err := a.sandbox(toID)
		if err != nil {
			return err
		}
		return a.upload(sb, c.From, to)
	case down:
		sb, err := a.sandbox(fromID)
		if err != nil {
			return err
		}
		return a.download(sb, from, c.To)
	}
	return usageError{fmt.Errorf("one side must be ID:/path, with an absolute path in the sandbox")}
}

func (a *app) upload(sb *pandastack.Sandbox, from, to string) error {
	if from == "-" {
		_, err := sb.WriteFrom(a.ctx, to, a.In, pandastack.WriteOptions{})
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return usageError{err}
	}
	if there, err := sb.Stat(a.ctx, to); strings.HasSuffix(to, "/") || err == nil && there.IsDir {
		to = path.Join(to, filepath.Base(from))
	}
	if !info.IsDir() {
		return a.uploadFile(sb, from, to)
	}
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		target := path.Join(to, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			return sb.Mkdir(a.ctx, target)
		case d.Type().IsRegular():
			return a.uploadFile(sb, p, target)
		}
		a.say("%s is not a file or folder and was left out", p)
		return nil
	})
}

func (a *app) uploadFile(sb *pandastack.Sandbox, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return usageError{err}
	}
	defer f.Close()
	var o pandastack.WriteOptions
	if info, err := f.Stat(); err == nil && info.Mode()&0o111 != 0 {
		o.Mode = info.Mode().Perm() // a program stays one
	}
	if _, err := sb.WriteFrom(a.ctx, to, f, o); err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	return nil
}

func (a *app) download(sb *pandastack.Sandbox, from, to string) error {
	if to == "-" {
		r, err := sb.Open(a.ctx, from)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(a.Out, r)
		return err
	}
	info, err := sb.Stat(a.ctx, from)
	if err != nil {
		return err
	}
	if there, err := os.Stat(to); err == nil && there.IsDir() {
		to = filepath.Join(to, path.Base(from))
	}
	if info.IsDir {
		return a.downloadDir(sb, from, to)
	}
	return a.downloadFile(sb, from, to)
}

// downloadDir copies a folder. Names come from the sandbox, so what would
// leave the target is refused.
func (a *app) downloadDir(sb *pandastack.Sandbox, from, to string) error {
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	entries, err := sb.ReadDir(a.ctx, from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !filepath.IsLocal(e.Name) || strings.ContainsAny(e.Name, `/\`) {
			return fmt.Errorf("the sandbox has a file called %q, which is not copied", e.Name)
		}
		src, dst := path.Join(from, e.Name), filepath.Join(to, e.Name)
		switch e.Mode {
		case "d":
			err = a.downloadDir(sb, src, dst)
		case "f":
			err = a.downloadFile(sb, src, dst)
		default:
			a.say("%s is not a file or folder and was left out", plain(src))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// downloadFile copies a file; one that breaks off leaves nothing behind.
func (a *app) downloadFile(sb *pandastack.Sandbox, from, to string) error {
	r, err := sb.Open(a.ctx, from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer r.Close()
	tmp, err := os.CreateTemp(filepath.Dir(to), ".pandastack-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := io.Copy(tmp, r); err != nil {
		tmp.Close()
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := tmp.Chmod(0o644); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}
