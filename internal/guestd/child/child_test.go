package child

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 100 4096000 250 18446744073709551615"
	for _, name := range []string{"(bash)", "(a b)", "(a) S 9 9 9 (b)", "()"} {
		p, err := parseStat([]byte("77 " + name + tail))
		if err != nil || p.Parent != 1 || p.Group != 42 || p.Session != 42 || p.Zombie || p.Memory != 250*int64(os.Getpagesize()) {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
	for _, bad := range []string{"", "77", "77 (bash", "77 (bash) S 1", "77 (bash) S x 42 42" + tail} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestListHasThisProcess(t *testing.T) {
	all, err := List()
	if err != nil || !slices.ContainsFunc(all, func(p Info) bool { return p.PID == os.Getpid() && p.Memory > 0 }) {
		t.Errorf("not among %d, %v", len(all), err)
	}
}

func TestLookupUser(t *testing.T) {
	etc := t.TempDir()
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/bash\nbroken\n1234:x:7:7::/seven:/bin/sh\npanda:x:1234:55:P:/home/panda:/bin/zsh\n",
		"group":  "root:x:0:\nbamboo:x:55:panda\nzoo:x:66:root,panda\nbroken\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u, err := LookupUser(etc, "panda")
	if err != nil || u.UID != 1234 || u.GID != 55 || u.Home != "/home/panda" || u.Shell != "/bin/zsh" || !slices.Equal(u.Groups, []uint32{55, 66}) {
		t.Errorf("got %+v %v", u, err)
	}
	if u, err = LookupUser(etc, "1234"); err != nil || u.UID != 7 {
		t.Errorf("a name that is a number must win: %+v %v", u, err)
	}
	if u, err = LookupUser(etc, "0"); err != nil || u.Name != "root" {
		t.Errorf("got %+v %v", u, err)
	}
	if u, err = LookupUser(etc, "4000"); err != nil || u.UID != 4000 || u.GID != 4000 {
		t.Errorf("got %+v %v", u, err)
	}
	if u, err = LookupUser(etc, ""); err != nil || u.UID != 0 {
		t.Errorf("got %+v %v", u, err)
	}
	for _, bad := range []string{"ghost", "-1", "4294967295", "99999999999"} {
		if u, err := LookupUser(etc, bad); err == nil {
			t.Errorf("%q gives %+v", bad, u)
		}
	}
	if u, err = LookupUser(t.TempDir(), "root"); err != nil || u.Home != "/root" {
		t.Errorf("without a passwd file: %+v %v", u, err)
	}
}

// The end of a pipe may come together with the last of its bytes, and is then
// told only once.
func TestOutputsEndWithTheirLastBytes(t *testing.T) {
	got := [2]string{}
	o, ends, err := NewOutputs(func(stream int, b []byte) { got[stream] += string(b) })
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		if _, err := end.WriteString("last"); err != nil {
			t.Fatal(err)
		}
		end.Close()
	}
	o.Run()
	<-o.Done()
	if got != [2]string{"last", "last"} {
		t.Errorf("got %q", got)
	}
}

func TestDrainTakesAllThatWasWritten(t *testing.T) {
	n := 0
	o, ends, err := NewOutputs(func(_ int, b []byte) { n += len(b) })
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for i, end := range ends {
		if _, err := end.Write(make([]byte, 60_000+i)); err != nil {
			t.Fatal(err)
		}
		defer end.Close()
	}
	o.Lock()
	o.Drain()
	o.Unlock()
	if n != 120_001 {
		t.Errorf("%d bytes", n)
	}
}
