package cli

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxCpCmd struct {
	Recursive bool   `short:"r" help:"Folders are copied with all that is in them anyway; this is for those who are used to it."`
	From      string `arg:"" help:"What to copy: a local path, - for standard input, or ID:/path."`
	To        string `arg:"" help:"Where to: a local path, - for standard output, or ID:/path."`
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
	meter := a.meter()
	res, err := sb.UploadDir(a.ctx, from, to, meter.options())
	meter.end()
	if err != nil {
		return err
	}
	return a.copied(api.TarResult{Path: to, Files: res.Files, Folders: res.Folders, Links: res.Links, Bytes: res.Bytes, LeftOut: res.LeftOut + meter.leftOut})
}

// copied says what was copied, to programs.
func (a *app) copied(res api.TarResult) error {
	if !a.flags.JSON {
		return nil
	}
	return a.json(res)
}

func (a *app) uploadFile(sb *pandastack.Sandbox, from, to string) error {
	res, err := a.sendFile(sb, from, to)
	if err != nil {
		return err
	}
	return a.copied(api.TarResult{Path: to, Files: 1, Bytes: res.Bytes})
}

// sendFile copies a file into a sandbox, and shows how far it is.
func (a *app) sendFile(sb *pandastack.Sandbox, from, to string) (res api.WriteResult, err error) {
	f, err := os.Open(from)
	if err != nil {
		return res, usageError{err}
	}
	defer f.Close()
	var o pandastack.WriteOptions
	if info, err := f.Stat(); err == nil && info.Mode()&0o111 != 0 {
		o.Mode = info.Mode().Perm() // a program stays one
	}
	meter := a.meter()
	res, err = sb.WriteFrom(a.ctx, to, meter.reader(f), o)
	meter.end()
	if err != nil {
		return res, fmt.Errorf("%s: %w", to, err)
	}
	return res, nil
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

func (a *app) downloadDir(sb *pandastack.Sandbox, from, to string) error {
	meter := a.meter()
	done, err := sb.DownloadDir(a.ctx, from, to, meter.options())
	meter.end()
	if err != nil {
		return err
	}
	return a.copied(api.TarResult{Path: to, Files: done.Files, Folders: done.Folders, Links: done.Links, Bytes: done.Bytes, LeftOut: done.LeftOut})
}

// downloadFile copies a file.
func (a *app) downloadFile(sb *pandastack.Sandbox, from, to string) error {
	r, err := sb.Open(a.ctx, from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer r.Close()
	meter := a.meter()
	n, err := writeWhole(to, 0o644, meter.reader(r))
	meter.end()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return a.copied(api.TarResult{Path: to, Files: 1, Bytes: n})
}

// writeWhole writes a file, which is there when it is whole and never before.
func writeWhole(to string, mode os.FileMode, from io.Reader) (n int64, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(to), ".pandastack-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp.Name())
	n, err = io.Copy(tmp, from)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return n, err
	}
	return n, os.Rename(tmp.Name(), to)
}
