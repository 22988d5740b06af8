package guestd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

func TestReadWelcome(t *testing.T) {
	for _, c := range []struct{ in, err string }{
		{`{"protocol":1,"generation":4}` + "\nPRI * HTTP/2.0", ""},
		{`{"protocol":99}` + "\n", "protocol 99"},
		{`{"protocol":1,"error":"another link is alive"}` + "\n", "another link is alive"},
		{"HTTP/1.1 400\n", "handshake"},
		{`{"protocol":1`, "EOF"},
		{strings.Repeat("x", guestapi.MaxHandshake) + "\n", "longer than"},
	} {
		r := bufio.NewReaderSize(strings.NewReader(c.in), guestapi.MaxHandshake)
		w, err := readWelcome(r)
		if c.err == "" {
			rest, _ := io.ReadAll(r)
			if err != nil || w.Generation != 4 || string(rest) != "PRI * HTTP/2.0" {
				t.Errorf("%.40q: %+v %v, rest %q", c.in, w, err, rest)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.40q: %v, want %q", c.in, err, c.err)
		}
	}
}

func FuzzReadWelcome(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"generation":4}` + "\n"))
	f.Add(bytes.Repeat([]byte{'{'}, 5000))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := readWelcome(bufio.NewReaderSize(bytes.NewReader(b), guestapi.MaxHandshake))
		if err == nil && (w.Protocol < guestapi.OldestProtocol || w.Protocol > guestapi.Protocol || w.Error != "") {
			t.Errorf("took %+v", w)
		}
	})
}

func TestStepThatHangsIsLeftAlone(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	s := runStep("x", func() (string, error) { <-hang; return "", nil })
	if s.OK || !strings.Contains(s.Detail, "left alone") {
		t.Errorf("got %+v", s)
	}
}

func TestParseMeminfo(t *testing.T) {
	used, total, err := parseMeminfo([]byte("MemTotal:        1048576 kB\nMemFree:          400000 kB\nMemAvailable:     548576 kB\n"))
	if err != nil || used != 500000<<10 || total != 1<<30 {
		t.Errorf("got %d of %d, %v", used, total, err)
	}
	if _, _, err := parseMeminfo([]byte("nonsense")); err == nil {
		t.Error("nonsense was taken")
	}
}

// twenty tasks are in these sandboxes.
func twenty() int { return 20 }

func TestWatchdogLooksMoreOftenTheLessIsLeft(t *testing.T) {
	var used int64
	busy := true
	w := newWatchdog(nil, func() (int64, int64, error) { return used, 0, nil }, twenty,
		func() []victim { return []victim{{name: "x", pid: 1 << 30}} }, func() bool { return busy })
	if w.check() != 0 {
		t.Error("it looks without a limit")
	}
	w.limit.Store(1 << 30)
	far := w.check()
	used = 850 << 20
	near := w.check()
	if far != sampleBusy || near >= far || near < sampleFastest {
		t.Errorf("every %v far from the limit, every %v near it", far, near)
	}
	busy = false
	if idle := w.check(); idle < time.Second {
		t.Errorf("it looks every %v while nothing runs", idle)
	}
}

// Freeing the memory of a victim takes a moment: its neighbours must live.
func TestWatchdogEndsNoSecondVictimForTheSameNeed(t *testing.T) {
	reads, kills := 0, 0
	w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) {
		if reads++; reads > 20 {
			return 100 << 20, 0, nil
		}
		return 1000 << 20, 0, nil
	}, twenty, func() []victim {
		return []victim{{name: "a", pid: 1 << 30, kill: func() { kills++ }}, {name: "b", pid: 1<<30 + 1, kill: func() { kills++ }}}
	},
		func() bool { return true })
	w.limit.Store(1 << 30)
	for range 10 {
		w.check()
	}
	if kills != 1 {
		t.Errorf("%d victims", kills)
	}
}

// A busy machine takes longer than the patience to free a gigabyte.
func TestWatchdogWaitsAsLongAsMemoryComesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slowly = 4 * freePatience
		var killed time.Time
		kills := 0
		w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) {
			if killed.IsZero() {
				return 1700 << 20, 0, nil
			}
			freed := int64(900<<20) * int64(time.Since(killed)) / int64(slowly)
			return 1700<<20 - min(freed, 900<<20), 0, nil // more than half of it has to be free until there is room
		}, twenty, func() []victim {
			return []victim{{name: "a", pid: 1 << 30, kill: func() { kills++; killed = time.Now() }}, {name: "b", pid: 1<<30 + 1, kill: func() { kills++ }}}
		}, func() bool { return true })
		w.limit.Store(1 << 30)
		w.check()
		w.check()
		if kills != 1 {
			t.Errorf("%d victims", kills)
		}
	})
}

// The first of it that comes free is room for a moment, which somebody small takes.
func TestWatchdogSparesWhoComesWhileMemoryComesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 30
		var w *watchdog
		var killed []string
		var at time.Time
		taken := int64(0)
		list := []victim{{name: "large", pid: 1 << 30}}
		w = newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) {
			most := w.most(limit)
			if at.IsZero() {
				return most + 10<<20, 0, nil
			}
			freed := (11 << 20) * int64(1+time.Since(at)/(500*time.Millisecond)) // eleven at once, and as much again every half second
			return most + 10<<20 - min(freed, 500<<20) + taken, 0, nil
		}, twenty, func() []victim { return list }, func() bool { return true })
		w.limit.Store(limit)
		kill := func(v *victim) { v.kill = func() { killed, at, list = append(killed, v.name), time.Now(), nil } }
		kill(&list[0])
		w.check()
		small := victim{name: "small", pid: 1<<30 + 1}
		kill(&small)
		list, taken = []victim{small}, 9<<20
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			time.Sleep(max(w.check(), sampleFastest))
		}
		if !slices.Equal(killed, []string{"large"}) {
			t.Errorf("ended %v", killed)
		}
		taken = 200 << 20 // what takes more than has come free is not spared
		w.check()
		if !slices.Equal(killed, []string{"large", "small"}) {
			t.Errorf("ended %v", killed)
		}
	})
}

// Who asks for a context when something large has just ended gets it when that has come free, and is told so when nothing does.
func TestRoomWaitsForWhatComesFree(t *testing.T) {
	for _, step := range []struct {
		freed int64
		every time.Duration
		room  bool
	}{
		{0, time.Second, false},
		{5 << 20, 10 * time.Millisecond, true},
		{128 << 20, freePatience / 2, true}, // the machine stands still in between
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) {
				return 1000<<20 - step.freed*int64(time.Since(began)/step.every), 0, nil
			}, twenty, nil, nil)
			w.limit.Store(1 << 30)
			if _, room := w.room(t.Context(), contextRoom, never); room != step.room || time.Since(began) > 2*freePatience {
				t.Errorf("%d MB every %v: %t after %v", step.freed>>20, step.every, room, time.Since(began))
			}
		})
	}
}

// never is the first of its kind.
func never() bool { return false }

// Contexts that are asked for at the same moment get what they would have got one after the other.
func TestRoomIsPromisedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 50 << 20
		var used atomic.Int64
		w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) { return used.Load(), 0, nil }, twenty, nil, nil)
		w.limit.Store(1 << 30)
		made := func(at int) (n int64) {
			used.Store(500 << 20)
			begin := make(chan struct{}, at)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					begin <- struct{}{}
					defer func() { <-begin }()
					done, ok := w.room(t.Context(), contextRoom, never)
					if !ok {
						return
					}
					time.Sleep(2 * freePatience) // as long as an interpreter may take to start on a busy machine
					used.Add(takes)
					done()
				})
			}
			all.Wait()
			return (used.Load() - 500<<20) / takes
		}
		if one, all := made(1), made(20); one == 0 || one == 20 || all != one {
			t.Errorf("%d contexts one after the other, %d at once", one, all)
		}
	})
}

// A sandbox without any context is of no use, but that is one.
func TestRoomIsThereForTheFirstAndNotForAllThatWouldBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) { return 1000 << 20, 0, nil }, twenty, nil, nil)
		w.limit.Store(1 << 30)
		var made atomic.Int64
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if done, ok := w.room(t.Context(), contextRoom, func() bool { return made.Load() == 0 }); ok {
					time.Sleep(freePatience / 2)
					made.Add(1)
					done()
				}
			})
		}
		if all.Wait(); made.Load() != 1 {
			t.Errorf("%d first ones", made.Load())
		}
	})
}

// What comes free by drops holds nobody for minutes, and what can never fit is refused at once.
func TestRoomIsWaitedForSoLongAndNoLonger(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		waits time.Duration
	}{
		{contextRoom, roomPatience},
		{11 * contextRoom, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) {
				return 1000<<20 - 2<<20*int64(time.Since(began)/(freePatience/2)), 0, nil
			}, twenty, nil, nil)
			w.limit.Store(1 << 30)
			if _, ok := w.room(t.Context(), c.bytes, never); ok || time.Since(began).Truncate(time.Second) != c.waits {
				t.Errorf("%d MB: %t after %v", c.bytes>>20, ok, time.Since(began))
			}
		})
	}
}

// A script of 200 kB for the shell is refused by gVisor with another error than by Linux.
func TestArgumentThatIsTooLongForGVisor(t *testing.T) {
	err := startError(&fs.PathError{Op: "start", Path: "/bin/bash", Err: syscall.ENAMETOOLONG}, guestapi.StartProcess{}, child.Spec{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeTooLarge || f.Hint == "" {
		t.Errorf("got %v", err)
	}
}

// With 150 forks of an interpreter, 1780 MB as seen inside were 1930 MB of the
// 2048 MB of the limit, and the next look came too late for the sandbox.
func TestWatchdogActsInTimeOnForksOfAnInterpreter(t *testing.T) {
	kills := 0
	used := int64(1780 << 20)
	w := newWatchdog(slog.New(slog.DiscardHandler), func() (int64, int64, error) { return used, 0, nil }, twenty,
		func() []victim {
			return []victim{{name: "a", pid: 1 << 30, kill: func() { kills++; used = 160 << 20 }}}
		}, func() bool { return true })
	w.limit.Store(2048 << 20)
	w.tasks = func() int { return 175 }
	if w.check(); kills != 1 {
		t.Errorf("%d victims", kills)
	}
}
