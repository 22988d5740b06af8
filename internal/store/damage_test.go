package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/fault"
)

// lived makes a data directory with a backup in which a sandbox and a key are,
// and gives what a killed daemon leaves of it: the log is not merged.
func lived(t *testing.T, rows int) (dir string) {
	t.Helper()
	ctx := context.Background()
	dir, left := t.TempDir(), t.TempDir()
	s := open0(t, dir)
	add(t, s, running("sb-0", epoch))
	if _, err := s.Backup(ctx); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= rows; i++ {
		row := running(fmt.Sprintf("sb-%d", i), epoch)
		row.EndDetail = strings.Repeat("x", 900) // some pages
		add(t, s, row)
	}
	if out, err := exec.Command("cp", "-a", dir+"/.", left).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return left
}

// merged is the same after an orderly end: all is in one file.
func merged(t *testing.T, rows int) (dir string) {
	t.Helper()
	dir = lived(t, rows)
	if err := open0(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// refused opens a damaged store and gives the error, which names the file.
func refused(t *testing.T, dir, file string) *fault.Error {
	t.Helper()
	s, err := Open(context.Background(), dir)
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	var f *fault.Error
	if !errors.As(err, &f) || !strings.Contains(f.Message, filepath.Join(dir, file)) || f.Hint == "" {
		t.Fatalf("the error neither names the file nor says what to do: %v", err)
	}
	return f
}

// follow does what a hint says, and gives the rows that are there then.
func follow(t *testing.T, dir string, f *fault.Error) []Sandbox {
	t.Helper()
	_, command, ok := strings.Cut(f.Hint, ": ")
	if !ok {
		t.Fatalf("no command in the hint %q", f.Hint)
	}
	if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", command, err, out)
	}
	rows, err := open0(t, dir).SandboxesOf(context.Background(), "", Running)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func change(t *testing.T, path string, how func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, how(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedDatabaseIsRefusedAndTheHintRestoresIt(t *testing.T) {
	for name, how := range map[string]func(data []byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"no database":   func(d []byte) []byte { return append([]byte("not"), d[3:]...) },
		"a short head":  func(d []byte) []byte { return d[:50] },
		"half of it":    func(d []byte) []byte { return d[:len(d)/2/4096*4096] },
		"torn in page":  func(d []byte) []byte { return d[:len(d)-2000] },
		"zeroed page":   func(d []byte) []byte { clear(d[2*4096 : 3*4096]); return d },
		"first page":    func(d []byte) []byte { clear(d[100:4096]); return d },
		"index emptied": func(d []byte) []byte { return d[:len(d)-4096] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := merged(t, 60)
			change(t, filepath.Join(dir, fileName), how)
			f := refused(t, dir, fileName)
			if rows := follow(t, dir, f); len(rows) != 1 || rows[0].ID != "sb-0" {
				t.Errorf("from the backup came %+v", rows)
			}
			if _, err := os.Stat(filepath.Join(dir, fileName+".damaged")); err != nil {
				t.Errorf("the damaged file is not kept: %v", err)
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		dir := merged(t, 1)
		if err := os.Remove(filepath.Join(dir, fileName)); err != nil {
			t.Fatal(err)
		}
		if rows := follow(t, dir, refused(t, dir, fileName)); len(rows) != 1 {
			t.Errorf("from the backup came %+v", rows)
		}
	})
	t.Run("no backup", func(t *testing.T) {
		dir := merged(t, 1)
		if err := os.RemoveAll(filepath.Join(dir, "backups")); err != nil {
			t.Fatal(err)
		}
		change(t, filepath.Join(dir, fileName), func([]byte) []byte { return nil })
		if rows := follow(t, dir, refused(t, dir, fileName)); len(rows) != 0 {
			t.Errorf("begun anew with %+v", rows)
		}
	})
}

// Wherever bits are flipped, the store is refused or still says something
// whole: it never crashes, hangs, or loses rows without a word. A flip inside
// a value cannot be seen; SQLite keeps no sums of pages.
func TestFlippedBits(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	whole, err := os.ReadFile(filepath.Join(merged(t, 60), fileName))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for range 60 {
		dir := t.TempDir()
		data := append([]byte(nil), whole...)
		page := random.IntN(len(data) / 4096)
		for range 8 { // heads of pages are the parts that hold it together
			data[page*4096+random.IntN(64)] ^= 1 << random.IntN(8)
		}
		if err := os.WriteFile(filepath.Join(dir, fileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), dir)
		if err != nil {
			seen++
			if !strings.Contains(err.Error(), fileName) {
				t.Errorf("the file is not named: %v", err)
			}
			continue
		}
		rows, err := s.SandboxesOf(context.Background(), "", Running)
		if err == nil && len(rows) < 55 {
			t.Errorf("page %d: %d rows are left, and nobody was told", page, len(rows))
		}
		s.Close()
	}
	if seen < 20 {
		t.Errorf("only %d of 60 were noticed", seen)
	}
}

// A log that a kill cut off is normal; one with a bad piece in its middle is not.
func TestDamagedLog(t *testing.T) {
	const page = 4096 + frameHeader
	wal := fileName + "-wal"
	for _, c := range []struct {
		name   string
		how    func(data []byte) []byte
		refuse bool
		least  int // rows that are there in the end
	}{
		{"whole", func(d []byte) []byte { return d }, false, 61},
		{"last frame torn", func(d []byte) []byte { return d[:len(d)-100] }, false, 55},
		{"last frame flipped", func(d []byte) []byte { d[len(d)-100] ^= 4; return d }, false, 55},
		{"middle flipped", func(d []byte) []byte { d[walHeader+len(d)/2/page*page+500] ^= 4; return d }, true, 20},
		{"frame head flipped", func(d []byte) []byte { d[walHeader+len(d)/2/page*page+2] ^= 4; return d }, true, 20},
		{"header flipped", func(d []byte) []byte { d[17] ^= 4; return d }, true, 0},
		{"header zeroed", func(d []byte) []byte { clear(d[:walHeader]); return d }, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := lived(t, 60)
			change(t, filepath.Join(dir, wal), c.how)
			var rows []Sandbox
			if c.refuse {
				rows = follow(t, dir, refused(t, dir, wal))
			} else {
				var err error
				if rows, err = open0(t, dir).SandboxesOf(context.Background(), "", Running); err != nil {
					t.Fatal(err)
				}
			}
			if len(rows) < c.least {
				t.Errorf("%d rows are left", len(rows))
			}
		})
	}
	t.Run("after the machine went down", func(t *testing.T) {
		dir := lived(t, 60)
		change(t, filepath.Join(dir, wal), func(d []byte) []byte { d[walHeader+len(d)/2/page*page+500] ^= 4; return d })
		change(t, filepath.Join(dir, "lock"), func([]byte) []byte { return []byte("12 another-run\n") })
		open0(t, dir) // what was not yet on the disk is lost, as it must be expected
	})
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	dir := merged(t, 3)
	db, err := sql.Open("sqlite", filepath.Join(dir, fileName))
	if err == nil {
		_, err = db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	f := refused(t, dir, fileName)
	if !strings.Contains(f.Message, "9999") {
		t.Errorf("the version is not named: %v", f)
	}
	if rows := follow(t, dir, f); len(rows) != 1 {
		t.Errorf("from the backup of this version came %+v", rows)
	}
}

// Every change of the tables leaves a backup of what was before, those of the
// last five versions stay, and a change that fails changes nothing.
func TestMigrationLeavesABackup(t *testing.T) {
	ctx := context.Background()
	dir := merged(t, 2)
	steps := fstest.MapFS{}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := fs.ReadFile(migrations, f)
		if err != nil {
			t.Fatal(err)
		}
		steps[filepath.Base(f)] = &fstest.MapFile{Data: data}
	}
	first := len(files) // the version that it has
	for n := range 7 {
		v := first + 1 + n
		steps[fmt.Sprintf("%05d_more.sql", v)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\nCREATE TABLE more%d (a);\n", v)}
		s, err := openWith(ctx, dir, steps)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		copied, err := sql.Open("sqlite", filepath.Join(dir, "backups", fmt.Sprintf("pandastack-v%d.db", v-1)))
		if err != nil {
			t.Fatal(err)
		}
		var rows, tables int
		if err := copied.QueryRow("SELECT (SELECT count(*) FROM sandboxes), (SELECT count(*) FROM sqlite_schema WHERE name LIKE 'more%')").Scan(&rows, &tables); err != nil || rows != 3 || tables != n {
			t.Errorf("the backup of version %d has %d sandboxes and %d of the new tables, %v", v-1, rows, tables, err)
		}
		copied.Close()
	}
	files, err = filepath.Glob(filepath.Join(dir, "backups", "*"))
	if err != nil || len(files) != keepBackups {
		t.Errorf("kept are %q, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a backup is open to others: %v, %v", info, err)
	}

	bad := first + 8
	steps[fmt.Sprintf("%05d_bad.sql", bad)] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE half (a);\nINSERT INTO nowhere VALUES (1);\n")}
	if _, err := openWith(ctx, dir, steps); err == nil || !strings.Contains(err.Error(), fileName) {
		t.Errorf("a migration that fails: %v", err)
	}
	delete(steps, fmt.Sprintf("%05d_bad.sql", bad))
	s, err := openWith(ctx, dir, steps)
	if err != nil {
		t.Fatalf("after it: %v", err)
	}
	if rows, err := s.SandboxesOf(ctx, "", Running); err != nil || len(rows) != 3 {
		t.Errorf("after it: %+v, %v", rows, err)
	}
	s.Close()
}

// The database is in the hands of another program, from the start or later.
func TestLockedByAnotherProgram(t *testing.T) {
	was := busyTime
	busyTime = 50 * time.Millisecond
	defer func() { busyTime = was }()
	dir := merged(t, 1)
	other := locker(t, dir)
	f := refused(t, dir, fileName)
	if !errors.Is(f, fault.Conflict) || !strings.Contains(f.Hint, "fuser") {
		t.Errorf("%v; %s", f, f.Hint)
	}
	other()

	s := open0(t, dir)
	other = locker(t, dir)
	err := s.AddSandbox(context.Background(), running("sb-8", epoch))
	if !errors.Is(err, fault.NoCapacity) {
		t.Errorf("a write meanwhile: %v", err)
	}
	if _, err := s.Sandbox(context.Background(), "sb-0"); err != nil {
		t.Errorf("a read meanwhile: %v", err)
	}
	other()
	add(t, s, running("sb-8", epoch))
}

// locker locks the database as another program would, until it is told to stop.
func locker(t *testing.T, dir string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := db.Exec("ROLLBACK"); err != nil {
			t.Error(err)
		}
		db.Close()
	}
}

// A full disk refuses writes and loses nothing; when there is room again, all
// goes on, also with the next daemon.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ctx := context.Background()
	dir := filepath.Join(disk, "data")
	s := open0(t, dir)
	add(t, s, running("sb-0", epoch))
	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	big := running("sb-1", epoch)
	big.EndDetail = strings.Repeat("x", 1<<20)
	if err := s.AddSandbox(ctx, big); !errors.Is(err, fault.NoSpace) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if _, err := s.Backup(ctx); !errors.Is(err, fault.NoSpace) {
		t.Errorf("a backup on a full disk: %v", err)
	}
	if rows, err := s.SandboxesOf(ctx, "", Running); err != nil || len(rows) != 1 {
		t.Errorf("meanwhile: %+v, %v", rows, err)
	}
	if err := s.Close(); err != nil {
		t.Logf("closing on a full disk: %v", err)
	}
	if _, err := Open(ctx, filepath.Join(disk, "another")); !errors.Is(err, fault.NoSpace) {
		t.Errorf("begun on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s = open0(t, dir)
	if rows, err := s.SandboxesOf(ctx, "", Running); err != nil || len(rows) != 1 {
		t.Errorf("afterwards: %+v, %v", rows, err)
	}
	big.EndDetail = ""
	add(t, s, big)
}

func TestDataDirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file": file, "below a file": filepath.Join(file, "x"), "not writable": "/proc/data"} {
		_, err := Open(context.Background(), dir)
		var f *fault.Error
		if !errors.As(err, &f) || !errors.Is(err, fault.Invalid) || !strings.Contains(f.Message, dir) || f.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
