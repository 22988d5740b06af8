package config

import (
	"encoding/json"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/pandastack/pandastack/internal/fault"
)

func readJSON(t *testing.T, file string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

var mine = ClientEntry{APIURL: "http://127.0.0.1:8080", APIKey: "pds_mine", DataDir: "/data"}

func TestMergeIntoNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b", "config.json")
	m, err := MergeClient(file, mine, "")
	if err != nil || m.Profile != "" {
		t.Fatal(m, err)
	}
	doc := readJSON(t, file)
	if doc["api_url"] != mine.APIURL || doc["api_key"] != mine.APIKey {
		t.Errorf("%v", doc)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if e, ok := EntryOf(file, "/data"); !ok || e != mine {
		t.Errorf("found %+v %v", e, ok)
	}
}

func TestMergeKeepsWhatIsThere(t *testing.T) {
	for name, key := range map[string]string{"token": "token", "apiKey": "apiKey", "api_key": "api_key"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(file, []byte(`{"`+key+`":"pds_theirs","other":{"deep":[1,2]}}`), 0o644); err != nil {
				t.Fatal(err)
			}
			m, err := MergeClient(file, mine, "")
			if err != nil || m.Profile != "local" {
				t.Fatal(m, err)
			}
			doc := readJSON(t, file)
			if doc[key] != "pds_theirs" || doc["other"] == nil || doc["api_url"] != nil {
				t.Errorf("what was there has changed: %v", doc)
			}
			if e, ok := EntryOf(file, "/data"); !ok || e != mine {
				t.Errorf("found %+v %v", e, ok)
			}
			info, _ := os.Stat(file)
			if info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v: a key is readable by others", info.Mode())
			}

			// Another daemon gets a profile of its own; the first finds its own again.
			other := ClientEntry{APIURL: "http://127.0.0.1:9", APIKey: "pds_other", DataDir: "/other"}
			if m, err := MergeClient(file, other, ""); err != nil || m.Profile != "local-2" {
				t.Fatal(m, err)
			}
			changed := mine
			changed.APIURL = "http://127.0.0.1:1"
			if m, err := MergeClient(file, changed, ""); err != nil || m.Profile != "local" {
				t.Fatal(m, err)
			}
			if e, _ := EntryOf(file, "/data"); e != changed {
				t.Errorf("found %+v", e)
			}
			if e, _ := EntryOf(file, "/other"); e != other {
				t.Errorf("found %+v", e)
			}
		})
	}
}

func TestMergeReplacesItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if _, err := MergeClient(file, mine, ""); err != nil {
		t.Fatal(err)
	}
	next := mine
	next.APIKey = "pds_next"
	if m, err := MergeClient(file, next, ""); err != nil || m.Profile != "" {
		t.Fatal(m, err)
	}
	if doc := readJSON(t, file); doc["api_key"] != "pds_next" {
		t.Errorf("%v", doc)
	}
}

func TestMergeRefusesWhatItCannotRead(t *testing.T) {
	for _, content := range []string{`{"token":`, `[1]`, `"x"`} {
		file := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := MergeClient(file, mine, ""); err == nil {
			t.Errorf("%s was merged into", content)
		}
		if raw, _ := os.ReadFile(file); string(raw) != content {
			t.Errorf("%s became %s", content, raw)
		}
	}
}

func TestMergeFollowsALink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "dotfiles.json"), filepath.Join(dir, "config.json")
	if err := os.WriteFile(real, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeClient(link, mine, ""); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
	if doc := readJSON(t, real); doc["api_key"] != mine.APIKey || doc["a"] != 1.0 {
		t.Errorf("%v", doc)
	}
}

func TestMergeForAGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	_, err := MergeClient(file, mine, "no such group")
	var f *fault.Error
	if !errors.As(err, &f) || f.Field != "client_group" {
		t.Errorf("a group that is not there: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was written nevertheless: %v", err)
	}
	g, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MergeClient(file, mine, g.Name); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 || int(info.Sys().(*syscall.Stat_t).Gid) != os.Getgid() {
		t.Errorf("%v, %v", info, err)
	}
}
