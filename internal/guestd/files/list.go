package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

const (
	nameBatch = 4096     // names read from a folder at once
	pageBytes = 12 << 20 // of a listing as JSON, at the very most
)

// Stat describes what is at a path; of a link, the link.
func Stat(path string, names child.Names) (api.FileInfo, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return api.FileInfo{}, Explain(err, "path", path)
	}
	return info(path, st, names), nil
}

func info(path string, st fs.FileInfo, names child.Names) api.FileInfo {
	fi := api.FileInfo{
		Name: st.Name(), Path: path, IsDir: st.IsDir(), Size: st.Size(), Mode: letter(st.Mode()),
		MTime: st.ModTime().Unix(), ModifiedAt: st.ModTime().UTC(),
	}
	if !utf8.ValidString(fi.Name) {
		fi.RawName = []byte(fi.Name)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		fi.UID, fi.GID = int(sys.Uid), int(sys.Gid)
		fi.Owner, fi.Group = names.User(sys.Uid), names.Group(sys.Gid)
		fi.Permissions = octal(sys.Mode & 0o7777)
		fi.Symbolic = symbolic(fi.Mode, sys.Mode)
	}
	if fi.Mode == "l" {
		fi.Target, _ = os.Readlink(path) // a link that is gone meanwhile leads nowhere
	}
	return fi
}

func octal(mode uint32) string {
	return string([]byte{'0' + byte(mode>>9&7), '0' + byte(mode>>6&7), '0' + byte(mode>>3&7), '0' + byte(mode&7)})
}

// symbolic shows a mode as ls does.
func symbolic(letter string, mode uint32) string {
	if letter == "f" {
		letter = "-"
	}
	b := []byte(letter + "rwxrwxrwx")
	for i := range 9 {
		if mode&(1<<(8-i)) == 0 {
			b[1+i] = '-'
		}
	}
	for _, special := range []struct {
		bit     uint32
		at      int
		with    byte // when the execute bit beside it is set
		without byte
	}{{syscall.S_ISUID, 3, 's', 'S'}, {syscall.S_ISGID, 6, 's', 'S'}, {syscall.S_ISVTX, 9, 't', 'T'}} {
		switch {
		case mode&special.bit == 0:
		case b[special.at] == 'x':
			b[special.at] = special.with
		default:
			b[special.at] = special.without
		}
	}
	return string(b)
}

func letter(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "f"
	case mode.IsDir():
		return "d"
	case mode&fs.ModeSymlink != 0:
		return "l"
	case mode&fs.ModeNamedPipe != 0:
		return "p"
	case mode&fs.ModeSocket != 0:
		return "s"
	case mode&fs.ModeCharDevice != 0:
		return "c"
	}
	return "b"
}

// List lists what comes after a name in a folder, in the order of the names'
// bytes: at most limit entries, all that fit when that is 0.
func List(path, after string, limit int, names child.Names) (api.DirListing, error) {
	list := api.DirListing{Path: path, Entries: []api.FileInfo{}}
	if limit <= 0 || limit > guestapi.MaxEntries {
		limit = guestapi.MaxEntries
	}
	st, err := os.Stat(path)
	if err != nil {
		return list, Explain(err, "path", path)
	}
	if !st.IsDir() {
		return list, fault.InvalidField("path", "%s is not a folder", path)
	}
	found, more, err := firstNames(path, after, limit)
	if err != nil {
		return list, Explain(err, "path", path)
	}
	list.Truncated = more
	size := 0
	for _, name := range found {
		p := filepath.Join(path, name)
		st, err := os.Lstat(p)
		if err != nil {
			continue // removed meanwhile
		}
		fi := info(p, st, names)
		// A byte may become six in JSON.
		if size += 512 + 6*(len(fi.Path)+len(fi.Name)+len(fi.Target)); size > pageBytes && len(list.Entries) > 0 {
			list.Truncated = true
			break
		}
		list.Entries = append(list.Entries, fi)
	}
	return list, nil
}

// firstNames gives the first names in a folder that come after one, and
// whether there are more. A folder of any size takes the memory of a few pages.
func firstNames(path, after string, limit int) (found []string, more bool, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer dir.Close()
	keep := func() {
		slices.Sort(found)
		if len(found) > limit {
			found, more = found[:limit], true
		}
	}
	for {
		batch, err := dir.Readdirnames(nameBatch)
		for _, name := range batch {
			if name > after {
				found = append(found, name)
			}
		}
		if len(found) > 2*guestapi.MaxEntries {
			keep()
		}
		if errors.Is(err, io.EOF) {
			keep()
			return found, more, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}
