package template

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func tarOf(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, h := range headers {
		content := []byte("content of " + h.Name)
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buffer
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
}

func TestExtractRaisesOwnersAndKeepsModes(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	capability := string([]byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	stream := tarOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		tar.Header{Name: "./locked/", Typeflag: tar.TypeDir, Mode: 0o555, Uid: 33, Gid: 34},
		tar.Header{Name: "./locked/file", Typeflag: tar.TypeReg, Mode: 0o400, Uid: 1000, Gid: 1001},
		tar.Header{Name: "./su", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "./su2", Typeflag: tar.TypeLink, Linkname: "./su"},
		tar.Header{Name: "./ping", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": capability}},
		tar.Header{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "/usr/bin", Uid: 5},
		tar.Header{Name: "./null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3},
	)
	if err := extract(t.Context(), dir, stream, 100000); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		name     string
		mode     uint32
		uid, gid uint32
	}{
		{".", 0o755, 100000, 100000},
		{"tmp", 0o1777, 100000, 100000},
		{"locked", 0o555, 100033, 100034},
		{"locked/file", 0o400, 101000, 101001},
		{"su", 0o4755, 100000, 100000},
		{"ping", 0o755, 100000, 100000},
	} {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(dir, want.name), &st); err != nil {
			t.Error(err)
			continue
		}
		if got := st.Mode & 0o7777; got != want.mode || st.Uid != want.uid || st.Gid != want.gid {
			t.Errorf("%s is %o %d:%d, want %o %d:%d", want.name, got, st.Uid, st.Gid, want.mode, want.uid, want.gid)
		}
		if want.name == "locked" && st.Mtim.Sec != 1_700_000_000 {
			t.Errorf("%s is of %d, want the time of the archive", want.name, st.Mtim.Sec)
		}
	}
	var su, su2 syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(dir, "su"), &su); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Lstat(filepath.Join(dir, "su2"), &su2); err != nil {
		t.Fatal(err)
	}
	if su.Ino != su2.Ino {
		t.Error("the hard link became a file of its own")
	}
	got := make([]byte, 64)
	if n, err := unix.Getxattr(filepath.Join(dir, "ping"), "security.capability", got); err != nil || string(got[:n]) != capability {
		t.Errorf("capability is %q, %v", got[:max(n, 0)], err)
	}
	if link, err := os.Readlink(filepath.Join(dir, "bin")); err != nil || link != "/usr/bin" {
		t.Errorf("bin leads to %q, %v", link, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "null")); !os.IsNotExist(err) {
		t.Errorf("a device was made: %v", err)
	}
}

func TestExtractStaysInItsFolder(t *testing.T) {
	needRoot(t)
	for name, headers := range map[string][]tar.Header{
		"dots":     {{Name: "../escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"symlink":  {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "out/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"absolute": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, {Name: "out/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"hardlink": {{Name: "x", Typeflag: tar.TypeLink, Linkname: "../outside"}},
	} {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			dir := filepath.Join(above, "root")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(above, "outside"), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := extract(t.Context(), dir, tarOf(t, headers...), 100000); err == nil {
				t.Error("the archive was laid out without an error")
			}
			if _, err := os.Lstat(filepath.Join(above, "escaped")); !os.IsNotExist(err) {
				t.Error("a file was written outside the folder")
			}
		})
	}
}

func TestExtractRefusesWhatDoesNotFit(t *testing.T) {
	needRoot(t)
	err := extract(t.Context(), t.TempDir(), tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, Uid: 70000}), 100000)
	if err == nil || !strings.Contains(err.Error(), "70000") {
		t.Errorf("got %v, want an error that names the owner", err)
	}
	half := tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o644})
	half.Truncate(520)
	if err := extract(t.Context(), t.TempDir(), half, 0); err == nil {
		t.Error("half an archive was laid out without an error")
	}
}
