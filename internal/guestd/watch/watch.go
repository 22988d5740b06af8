// Package watch tells what changes in a folder of the sandbox: a Watcher makes
// events of what inotify says, and a Log keeps the last of them, numbered, for
// whoever connects.
//
// inotify speaks of one folder at a time, and of names in it. A Watcher follows
// folders that come, go and are moved; tells of what was put into a new folder
// before that was watched; makes one rename of the two halves that inotify
// gives; and says so wherever something may have been missed. It follows no
// links.
package watch

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/files"
	"github.com/pandastack/pandastack/sdk/go/tree"
)

const (
	asked = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	how = unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

	halfTime  = 20 * time.Millisecond // in which the second half of a rename comes, if it comes
	halfAhead = 1024                  // events among which it is looked for
	dirBatch  = 1024                  // names read from a folder at once
)

// Options say what is watched. Zero limits are those that hold in a sandbox.
type Options struct {
	Path      string // absolute and clean
	Recursive bool   // with all folders below it

	Folders int // at most so many
	Queue   int // bytes of events that may wait; the kernel of a sandbox has no limit of its own
}

// Watcher watches one path until it is closed, or there is nothing to watch any
// more.
type Watcher struct {
	Options
	real string // Path, without links
	only string // the name in real of the one file that is watched; "" for all in it
	tell func(api.FileEvent)

	top   *folder
	byWD  map[int32]*folder
	ahead []*folder // those with names that were told ahead of inotify
	queue []raw     // read, and not taken yet

	mu     sync.Mutex
	in     *inotify // replaced when events were lost
	closed bool
}

// folder is one that is watched.
type folder struct {
	wd    int32
	name  string
	above *folder // nil at the top
	below map[string]*folder
	// told has the names that a look into the folder found, of which inotify may
	// be about to tell, too.
	told map[string]bool
}

// Start begins to watch. What changes from now on is told by Run.
func Start(o Options) (*Watcher, error) {
	if o.Folders == 0 {
		o.Folders = guestapi.MaxWatchedFolders
	}
	if o.Queue == 0 {
		o.Queue = guestapi.MaxWatchQueue
	}
	w := &Watcher{Options: o, tell: func(api.FileEvent) {}}
	real, err := filepath.EvalSymlinks(o.Path)
	if err != nil {
		return nil, files.Explain(err, "path", o.Path)
	}
	info, err := os.Lstat(real)
	if err != nil {
		return nil, files.Explain(err, "path", o.Path)
	}
	if files.ShownByKernel(real) {
		return nil, fault.InvalidField("path", "%s cannot be watched: it is on no disk, the kernel shows it", o.Path)
	}
	w.real = real
	if !info.IsDir() { // programs replace files: whatever comes to stand there is watched, too
		w.real, w.only, w.Recursive = filepath.Dir(real), filepath.Base(real), false
	}
	left, err := w.begin()
	if err == nil && left != "" {
		err = fault.InvalidField("path", "%s has more than %d folders, and one watch may have no more", o.Path, o.Folders).
			WithHint("watch a folder further down, or without recursive")
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

var errClosed = errors.New("the watch is closed")

// Close ends the watch; Run returns.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.in != nil {
		w.in.close()
	}
}

// open makes a new inotify instance in place of the one there is.
func (w *Watcher) open() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in != nil {
		w.in.close()
	}
	if w.closed {
		return errClosed
	}
	in, err := newInotify()
	if err == nil {
		w.in = in
	}
	return err
}

// begin watches all there is to watch, or gives a folder for which there is no
// place.
func (w *Watcher) begin() (left string, err error) {
	if err := w.open(); err != nil {
		return "", err
	}
	w.byWD, w.ahead, w.queue, w.top = map[int32]*folder{}, nil, nil, nil
	if _, err := w.add(nil, ""); err != nil {
		return "", files.Explain(err, "path", w.Path)
	}
	return w.look(w.top, false), nil
}

// again begins anew after something was missed.
func (w *Watcher) again() error {
	left, err := w.begin()
	if err != nil {
		return err
	}
	w.tell(api.FileEvent{Type: api.FileOverflow, Reason: api.OverflowQueue})
	w.full(left)
	return nil
}

// full tells of a folder for which there is no place.
func (w *Watcher) full(left string) {
	if left != "" {
		w.event(api.FileEvent{Type: api.FileOverflow, IsDir: true, Reason: api.OverflowFolders}, left, "")
	}
}

var (
	errFull = errors.New("there is no place for one more folder")
	errLoop = errors.New("the folder is one above it, bound there")
)

// add watches a folder. One that is watched already was moved here.
func (w *Watcher) add(above *folder, name string) (*folder, error) {
	path := w.real
	if above != nil {
		path = w.pathOf(above, name)
	}
	wd, err := w.in.add(path, asked|how)
	if err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) {
			return nil, errFull
		}
		return nil, err
	}
	f := w.byWD[wd]
	if f == nil {
		f = &folder{wd: wd}
		w.byWD[wd] = f
		if len(w.byWD) > w.Folders {
			w.forget(f)
			return nil, errFull
		}
	}
	for a := above; a != nil; a = a.above {
		if a == f {
			return nil, errLoop
		}
	}
	if above == nil {
		w.top = f
		return f, nil
	}
	w.put(f, above, name)
	return f, nil
}

// put gives a folder its place. What was watched there is no more.
func (w *Watcher) put(f, above *folder, name string) {
	if f.above != nil && f.above.below[f.name] == f {
		delete(f.above.below, f.name)
	}
	if old := above.below[name]; old != nil {
		w.forget(old)
	}
	f.name, f.above = name, above
	if above.below == nil {
		above.below = map[string]*folder{}
	}
	above.below[name] = f
}

// forget watches a folder and those below it no more.
func (w *Watcher) forget(f *folder) {
	for _, g := range f.below {
		w.forget(g)
	}
	if w.byWD[f.wd] == f {
		delete(w.byWD, f.wd)
		w.in.remove(f.wd)
	}
	if f.above != nil && f.above.below[f.name] == f {
		delete(f.above.below, f.name)
	}
}

// look watches the folders in a folder and those below, if that is wanted. With
// tell it says of all that it finds that it is new. It gives the first folder
// for which there is no place.
func (w *Watcher) look(f *folder, tell bool) (left string) {
	if !w.Recursive {
		return ""
	}
	todo := []*folder{f}
	for len(todo) > 0 {
		f := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for e := range entriesOf(w.pathOf(f, "")) {
			path := w.pathOf(f, e.Name())
			if tell && !isTemporary(e.Name()) {
				w.event(api.FileEvent{Type: api.FileCreate, IsDir: e.IsDir()}, path, "")
				if e.Type().IsRegular() { // it may be whole; if not, it is told again
					w.event(api.FileEvent{Type: api.FileClose}, path, "")
				}
				w.toldAhead(f, e.Name())
			}
			if !e.IsDir() || files.ShownByKernel(path) {
				continue
			}
			switch g, err := w.add(f, e.Name()); {
			case errors.Is(err, errFull):
				left = cmp.Or(left, path)
			case err == nil: // otherwise it is gone, or no folder any more
				todo = append(todo, g)
			}
		}
	}
	return left
}

// entriesOf reads a folder. One that cannot be read is gone.
func entriesOf(path string) iter.Seq[fs.DirEntry] {
	return func(yield func(fs.DirEntry) bool) {
		d, err := os.Open(path)
		if err != nil {
			return
		}
		defer d.Close()
		for {
			entries, err := d.ReadDir(dirBatch)
			for _, e := range entries {
				if !yield(e) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// toldAhead keeps in mind that something was told of of which inotify may be
// about to tell.
func (w *Watcher) toldAhead(f *folder, name string) {
	if f.told == nil {
		f.told = map[string]bool{}
		w.ahead = append(w.ahead, f)
	}
	f.told[name] = true
}

// wasTold tells whether that was so, once.
func (f *folder) wasTold(name string) bool {
	was := f.told[name]
	delete(f.told, name)
	return was
}

// pathOf is where something in a folder is; without a name, the folder.
func (w *Watcher) pathOf(f *folder, name string) string {
	parts := []string{name}
	for ; f.above != nil; f = f.above {
		parts = append(parts, f.name)
	}
	parts = append(parts, w.real)
	slices.Reverse(parts)
	return filepath.Join(parts...)
}

// event tells of what is at a path, and was at another.
func (w *Watcher) event(e api.FileEvent, path, from string) {
	e.Path, e.RawPath = w.shown(path)
	if from != "" {
		e.From, e.RawFrom = w.shown(from)
	}
	w.tell(e)
}

// shown gives a path as whoever watches knows it, who may have come by a link.
func (w *Watcher) shown(path string) (text string, raw []byte) {
	path = filepath.Join(w.Path, strings.TrimPrefix(path, filepath.Join(w.real, w.only)))
	if utf8.ValidString(path) {
		return path, nil
	}
	return strings.ToValidUTF8(path, "\uFFFD"), []byte(path)
}

// Run tells of changes, one after the other, until what is watched is gone,
// which it reports, or until Close.
func (w *Watcher) Run(tell func(api.FileEvent)) (gone bool) {
	w.tell = tell
	for {
		if len(w.queue) == 0 {
			if w.in.waiting() == 0 { // inotify has caught up
				for _, f := range w.ahead {
					f.told = nil
				}
				w.ahead = nil
			}
			more, err := w.in.read(0)
			if err != nil {
				return false
			}
			w.queue = more
			if w.in.waiting() > w.Queue {
				w.queue = []raw{{mask: unix.IN_Q_OVERFLOW}}
			}
			continue
		}
		r := w.queue[0]
		w.queue = w.queue[1:]
		switch {
		case r.mask&unix.IN_Q_OVERFLOW != 0:
			if err := w.again(); err != nil {
				return !errors.Is(err, errClosed)
			}
		case w.take(r):
			return true
		}
	}
}

// take makes what is to be told of an event. It reports whether what is watched
// is gone.
func (w *Watcher) take(r raw) (gone bool) {
	f := w.byWD[r.wd]
	switch {
	case f == nil: // a folder that was forgotten
	case r.mask&unix.IN_IGNORED != 0:
		w.forget(f)
		return f == w.top
	case r.name == "":
		return f == w.top && w.itself(r)
	case r.mask&unix.IN_MOVED_FROM != 0:
		w.moved(f, r)
	case r.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.came(f, r)
	case r.mask&unix.IN_DELETE != 0:
		w.went(f, r)
	case r.mask&unix.IN_MODIFY != 0:
		w.say(api.FileWrite, f, r)
	case r.mask&unix.IN_CLOSE_WRITE != 0:
		w.say(api.FileClose, f, r)
	case r.mask&unix.IN_ATTRIB != 0:
		w.say(api.FileChmod, f, r)
	}
	return false
}

// itself takes an event of what is watched. Of folders below it those above tell.
func (w *Watcher) itself(r raw) (gone bool) {
	if r.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 {
		return true
	}
	if _, err := os.Lstat(w.real); err == nil && w.only == "" && r.mask&unix.IN_ATTRIB != 0 {
		w.event(api.FileEvent{Type: api.FileChmod, IsDir: true}, w.real, "")
	}
	return false
}

func (w *Watcher) visible(name string) bool {
	return !isTemporary(name) && (w.only == "" || name == w.only)
}

func (w *Watcher) say(kind string, f *folder, r raw) {
	if w.visible(r.name) {
		w.event(api.FileEvent{Type: kind, IsDir: r.isDir()}, w.pathOf(f, r.name), "")
	}
}

// came takes something that has come to be in a folder.
func (w *Watcher) came(f *folder, r raw) {
	if f.wasTold(r.name) {
		return // and what is in it was looked at
	}
	w.say(api.FileCreate, f, r)
	if r.mask&unix.IN_MOVED_TO != 0 && !r.isDir() { // it was whole before
		w.say(api.FileClose, f, r)
	}
	w.enter(f, r)
}

// enter watches a new folder, and tells of what is in it already.
func (w *Watcher) enter(f *folder, r raw) {
	if !w.Recursive || !r.isDir() || files.ShownByKernel(w.pathOf(f, r.name)) {
		return
	}
	switch g, err := w.add(f, r.name); {
	case errors.Is(err, errFull):
		w.full(w.pathOf(f, r.name))
	case err == nil: // otherwise it is gone again, of which there will be an event
		w.full(w.look(g, true))
	}
}

// went takes something that is no more in a folder.
func (w *Watcher) went(f *folder, r raw) {
	f.wasTold(r.name)
	if g := f.below[r.name]; g != nil {
		w.forget(g)
	}
	w.say(api.FileRemove, f, r)
}

// moved takes the first half of a rename. Without the second, what was moved is
// outside.
func (w *Watcher) moved(f *folder, r raw) {
	to, found := w.otherHalf(r.cookie)
	into := w.byWD[to.wd]
	switch {
	case !found || into == nil:
		w.went(f, r)
	case isTemporary(r.name):
		w.placed(into, to, strings.HasPrefix(r.name, tree.TempOld))
	case !w.visible(r.name):
		w.came(into, to)
	case !w.visible(to.name), into.wasTold(to.name): // its new place was looked at, and it was told of there
		w.went(f, r)
	default:
		w.renamed(f, r, into, to)
	}
}

func (w *Watcher) renamed(f *folder, r raw, into *folder, to raw) {
	f.wasTold(r.name)
	from, g := w.pathOf(f, r.name), f.below[r.name]
	if old := into.below[to.name]; old != nil && old != g {
		w.forget(old)
	}
	if g != nil {
		w.put(g, into, to.name)
	}
	w.event(api.FileEvent{Type: api.FileRename, IsDir: r.isDir()}, w.pathOf(into, to.name), from)
	if g == nil {
		w.enter(into, to) // it was moved before it could be watched
	}
}

// placed takes a file of the agent's own writing, which it makes under another
// name first: for all others it is there at once, and whole.
func (w *Watcher) placed(f *folder, r raw, replaces bool) {
	switch {
	case replaces:
		w.say(api.FileWrite, f, r)
	case !f.wasTold(r.name):
		w.say(api.FileCreate, f, r)
	}
	w.say(api.FileClose, f, r)
}

// otherHalf finds the second half of a rename, which follows closely.
func (w *Watcher) otherHalf(cookie uint32) (raw, bool) {
	deadline := time.Now().Add(halfTime)
	for seen := 0; ; {
		for ; seen < len(w.queue); seen++ {
			if r := w.queue[seen]; r.mask&unix.IN_MOVED_TO != 0 && r.cookie == cookie {
				w.queue = slices.Delete(w.queue, seen, seen+1)
				return r, true
			}
		}
		left := time.Until(deadline)
		if seen >= halfAhead || left <= 0 {
			return raw{}, false
		}
		more, err := w.in.read(left)
		if err != nil || len(more) == 0 {
			return raw{}, false
		}
		w.queue = append(w.queue, more...)
	}
}

// isTemporary tells the names under which the agent itself makes files.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, tree.TempNew) || strings.HasPrefix(name, tree.TempOld)
}
