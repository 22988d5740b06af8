package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// detachKeys is what is typed to leave a terminal while its process goes on.
// The words are those of other tools for containers.
const detachKeys = "ctrl-p,ctrl-q"

var errDetached = errors.New("detached")

// parseKeys reads "ctrl-p,ctrl-q": keys that are typed one after another, "" for none.
func parseKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	var keys []byte
	for name := range strings.SplitSeq(s, ",") {
		letter, ctrl := strings.CutPrefix(name, "ctrl-")
		switch {
		case len(letter) != 1:
			return nil, usageError{fmt.Errorf("%q is no key: detach keys are written like ctrl-p,ctrl-q", name)}
		case !ctrl:
			keys = append(keys, letter[0])
		case letter[0] >= 'a' && letter[0] <= 'z' || strings.Contains(`@[\]^_`, letter):
			keys = append(keys, letter[0]&0x1f)
		default:
			return nil, usageError{fmt.Errorf("there is no key %q: ctrl- goes with a to z and @ [ \\ ] ^ _", name)}
		}
	}
	return keys, nil
}

// keyWatch finds the detach keys in what is typed. Those that may yet become
// all of them are held back until the next key.
type keyWatch struct {
	keys []byte
	held int // of the keys, typed so far
}

// typed gives what to pass on, and whether the last of the keys was typed.
func (w *keyWatch) typed(input []byte) (pass []byte, detach bool) {
	if len(w.keys) == 0 {
		return input, false
	}
	for _, b := range input {
		for {
			if b == w.keys[w.held] {
				if w.held++; w.held == len(w.keys) {
					return pass, true
				}
				break
			}
			if w.held == 0 {
				pass = append(pass, b)
				break
			}
			// The first of those held are none of it; the rest may be.
			held := w.keys[:w.held]
			n := 1
			for !bytes.HasPrefix(w.keys, held[n:]) {
				n++
			}
			pass = append(pass, held[:n]...)
			w.held -= n
		}
	}
	return pass, false
}

// seat is this terminal, while it is at one in a sandbox.
type seat struct {
	*app
	p     *pandastack.Process
	in    *os.File
	modes modes
	watch keyWatch
}

// size is that of this terminal.
func (a *app) size() pandastack.PTY {
	cols, rows := 0, 0
	if f, ok := a.Out.(*os.File); ok {
		cols, rows, _ = term.GetSize(int(f.Fd())) // one that does not say gets the default
	}
	return pandastack.PTY{Rows: min(rows, 1000), Cols: min(cols, 1000)}
}

// attend is at the terminal of a process until that ends, which gives its exit
// code, or until the detach keys are typed, which is errDetached.
func (a *app) attend(p *pandastack.Process, keys []byte) (err error) {
	in, ok := a.In.(*os.File)
	if !ok {
		return usageError{errors.New("standard input is no terminal")}
	}
	s := &seat{app: a, p: p, in: in, watch: keyWatch{keys: keys}}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("this terminal cannot be used: %w", err)
	}
	defer func() {
		s.modes.reset(a.Out)
		if rerr := term.Restore(int(in.Fd()), before); err == nil && rerr != nil {
			err = fmt.Errorf("restoring this terminal: %w", rerr)
		}
	}()
	ctx, leave := context.WithCancelCause(a.ctx)
	defer leave(nil)
	if !signal.Ignored(syscall.SIGHUP) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	go s.followSize(ctx)
	go func() { // it may wait for a key for ever, and need not be waited for
		if err := s.typeIn(ctx); err != nil {
			leave(err)
		}
	}()
	err = s.show(ctx)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}

// redrawPause is between two changes of the size. A program that draws after the
// first may miss a second one: curses does when it comes just before it waits.
const redrawPause = 150 * time.Millisecond

// followSize gives the process the size of this terminal, now and whenever it
// changes. A program that has drawn already is made to do so again, by another
// size for a moment where it would see no change.
func (s *seat) followSize(ctx context.Context) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH, unix.SIGCONT)
	defer signal.Stop(changed)
	if size := s.size(); s.p.Info.LastEvent > 1 && size.Rows > 1 && size == *s.p.Info.PTY {
		size.Rows--
		_ = s.p.Resize(ctx, size) // the next one says what is wrong
		_ = wait(ctx, redrawPause)
	}
	for {
		// One that fails changes nothing but the looks of it; a process that has ended tells so by itself.
		_ = s.p.Resize(ctx, s.size())
		select {
		case sig := <-changed:
			if sig == unix.SIGCONT { // a shell that stopped us has taken the terminal for itself
				_, _ = term.MakeRaw(int(s.in.Fd()))
			}
		case <-ctx.Done():
			return
		}
	}
}

// typeIn passes on what is typed.
func (s *seat) typeIn(ctx context.Context) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.in.Read(buf)
		pass, detach := s.watch.typed(buf[:n])
		if len(pass) > 0 {
			if terr := s.p.Type(ctx, pass); errors.Is(terr, pandastack.ErrConflict) {
				return nil // it has ended, which its output tells
			} else if terr != nil {
				return terr
			}
		}
		switch {
		case detach:
			return errDetached
		case errors.Is(err, io.EOF):
			return errDetached // the terminal is gone
		case err != nil:
			return fmt.Errorf("reading this terminal: %w", err)
		}
	}
}

// show writes what the process has written and writes, up to its exit.
func (s *seat) show(ctx context.Context) error {
	var old []byte // what it wrote before
	for e, err := range s.p.Events(ctx, 0) {
		if err != nil {
			return err
		}
		switch e.Type {
		case api.EventStdout:
			raw := pandastack.Bytes(e)
			if e.Seq <= s.p.Info.LastEvent {
				old = append(old, raw...)
				break
			}
			old = s.draw(old)
			if err := s.write(raw); err != nil {
				return err
			}
		case api.EventExit:
			s.draw(old)
			return s.ended(*e.Exit)
		}
		if e.Seq >= s.p.Info.LastEvent {
			old = s.draw(old)
		}
	}
	return io.ErrUnexpectedEOF
}

// draw writes old output.
func (s *seat) draw(old []byte) []byte {
	if len(old) > 0 {
		_ = s.write(questions.ReplaceAll(old, nil)) // the next write says what is wrong
	}
	return nil
}

func (s *seat) write(raw []byte) error {
	s.modes.see(raw)
	_, err := s.Out.Write(raw)
	return err
}

// questions are what programs ask a terminal: where the cursor is, who it is,
// what its colours are. An answer to one of long ago would be typed into
// whatever runs now.
var questions = regexp.MustCompile(`\x1b\[[>=]?[0-9;]*c` + // device attributes
	`|\x1b\[\??[56]n` + // status, cursor
	`|\x1b\[>[0-9]*q` + // version
	`|\x1b\[\?u` + // keyboard
	`|\x1b\[\??[0-9;]*\$p` + // modes
	`|\x1b\[(?:1[13-689]|2[01])t` + // window
	`|\x1b\][0-9;]+;\?(?:\x07|\x1b\\)` + // colours
	`|\x1bP(?:\+q|\$q)[^\x1b]*\x1b\\` + // capabilities, settings
	`|\x05`)

// modes are the private modes that programs have set in this terminal: the other
// screen, the mouse, the keys.
type modes struct {
	set  []int // 25, the cursor, when it is hidden
	rest []byte
}

var modeSwitch = regexp.MustCompile(`\x1b\[\?([0-9;]+)([hl])`)

// undone are the modes that must not outlast a program, each with what is
// switched to undo it.
var undone = map[int]byte{
	1: 'l', 9: 'l', 25: 'h', 47: 'l', 1000: 'l', 1001: 'l', 1002: 'l', 1003: 'l', 1004: 'l', 1005: 'l', 1006: 'l', 1015: 'l', 1016: 'l', 1047: 'l', 1049: 'l', 2004: 'l',
}

const modeLongest = 64 // bytes of a switch that may be cut in two

func (m *modes) see(output []byte) {
	seen := append(m.rest, output...)
	for _, found := range modeSwitch.FindAllSubmatch(seen, -1) {
		for field := range strings.SplitSeq(string(found[1]), ";") {
			n, err := strconv.Atoi(field)
			undo, known := undone[n]
			if err != nil || !known {
				continue
			}
			m.set = slices.DeleteFunc(m.set, func(o int) bool { return o == n })
			if found[2][0] != undo {
				m.set = append(m.set, n)
			}
		}
	}
	m.rest = nil
	if i := bytes.LastIndexByte(seen, 0x1b); i >= 0 && len(seen)-i < modeLongest && !modeSwitch.Match(seen[i:]) {
		m.rest = bytes.Clone(seen[i:])
	}
}

// reset undoes what is still set.
func (m *modes) reset(out io.Writer) {
	for _, n := range slices.Backward(m.set) {
		fmt.Fprintf(out, "\x1b[?%d%c", n, undone[n])
	}
	if len(m.set) > 0 {
		fmt.Fprint(out, "\x1b[m\r\n")
	}
}
