package template

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const deb822 = `# the machine's own
Types: deb deb-src
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
 bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://user:word@mirror.test/security/
Suites: bookworm-security
Components: main
Check-Valid-Until: no
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://off.test/debian
Suites: trixie
Components: main
`

func aptFS(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{"sources.list.d/readme.txt": {Data: []byte("deb http://ignored.test/debian trixie main")}}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestBootstrapSources(t *testing.T) {
	const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	for name, test := range map[string]struct {
		files map[string]string
		want  string // lines of sources.list, or words of the error
		fails bool
	}{
		"deb822": {
			files: map[string]string{"sources.list.d/debian.sources": deb822},
			want: "deb [signed-by=" + keyring + "] http://mirror.test/debian trixie main\n" +
				"deb [signed-by=" + keyring + "] http://mirror.test/debian trixie-updates main\n" +
				"deb [signed-by=" + keyring + " check-valid-until=no] http://user:word@mirror.test/security/ trixie-security main\n",
		},
		"one line": {
			files: map[string]string{"sources.list": "# comment\ndeb-src http://a.test/debian bookworm main\n" +
				"deb [arch=amd64 trusted=yes] http://a.test/debian/ stable main non-free-firmware # end\n"},
			want: "deb [trusted=yes] http://a.test/debian/ trixie main\n",
		},
		"others' archives": {
			files: map[string]string{
				"sources.list.d/a.list":         "deb [signed-by=/k/vendor.gpg] http://vendor.test/apt bookworm main\n",
				"sources.list.d/debian.sources": deb822,
				"sources.list.d/node.sources":   "Types: deb\nURIs: http://node.test\nSuites: nodistro\nComponents: main\n",
			},
			want: "deb [signed-by=" + keyring + "] http://mirror.test/debian trixie main\n" +
				"deb [signed-by=" + keyring + "] http://mirror.test/debian trixie-updates main\n" +
				"deb [signed-by=" + keyring + " check-valid-until=no] http://user:word@mirror.test/security/ trixie-security main\n",
		},
		"old security, cdrom": {
			files: map[string]string{"sources.list": "deb cdrom:[Debian]/ bullseye main\n" +
				"deb https://a.test/debian bullseye main\ndeb https://a.test/security bullseye/updates main\n"},
			want: "deb https://a.test/debian trixie main\ndeb https://a.test/security trixie-security main\n",
		},
		"security only": {
			files: map[string]string{"sources.list": "deb https://a.test/security bookworm-security main\n"},
			want:  "no Debian archive", fails: true,
		},
		"another distribution": {
			files: map[string]string{"sources.list": "deb https://a.test/ubuntu noble main universe\n"},
			want:  "no Debian archive", fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := readAptSources(aptFS(test.files))
			if err != nil {
				t.Fatal(err)
			}
			picked, err := bootstrapSources(all, "trixie")
			if test.fails {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want an error that says %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var lines string
			for _, src := range picked {
				lines += src.line(src.SignedBy)
			}
			if diff := cmp.Diff(test.want, lines); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestSourcesForTheBootstrapperAndForSandboxes(t *testing.T) {
	const inline = `Types: deb
URIs: https://robot:secret@mirror.test/debian
Suites: trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEYCQjIxYJKwYB
 -----END PGP PUBLIC KEY BLOCK-----
`
	scratch := t.TempDir()
	boot := bootstrapper{etcApt: aptFS(map[string]string{"sources.list.d/d.sources": inline})}
	lines, err := boot.sources("trixie", scratch)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(scratch, "key-0.asc")
	want := []string{"deb [signed-by=" + key + "] https://robot:secret@mirror.test/debian trixie main"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
	block, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(block), "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME") {
		t.Errorf("the key is %q", block)
	}
	inside, err := os.ReadFile(filepath.Join(scratch, "sources.list"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://mirror.test/debian trixie main\n"; string(inside) != want {
		t.Errorf("sandboxes get %q, want %q", inside, want)
	}
}

func TestConfiguredMirror(t *testing.T) {
	boot := bootstrapper{etcApt: fstest.MapFS{}, mirror: "deb [trusted=yes] http://own.test/debian bookworm main"}
	lines, err := boot.sources("trixie", t.TempDir())
	if err != nil || len(lines) != 1 || lines[0] != "deb [trusted=yes] http://own.test/debian trixie main" {
		t.Errorf("got %q, %v", lines, err)
	}
	boot.mirror = "http://own.test/debian"
	if _, err := boot.sources("trixie", t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a line of sources.list") {
		t.Errorf("got %v", err)
	}
}

func TestAcquireOptions(t *testing.T) {
	got := acquireOptions(`Acquire "";
Acquire::Check-Valid-Until "false";
Acquire::GzipIndexes "true";
Acquire::http "";
Acquire::http::Proxy "http://proxy.test:3128";
Acquire::http::Proxy::internal.test "DIRECT";
Acquire::https::CaInfo "/etc/ssl/private-ca.pem";
Acquire::IndexTargets::deb::Packages::MetaKey "x";
`)
	want := []string{
		`--aptopt=Acquire::Check-Valid-Until "false"`,
		`--aptopt=Acquire::http ""`,
		`--aptopt=Acquire::http::Proxy "http://proxy.test:3128"`,
		`--aptopt=Acquire::http::Proxy::internal.test "DIRECT"`,
		`--aptopt=Acquire::https::CaInfo "/etc/ssl/private-ca.pem"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzAptSources(f *testing.F) {
	f.Add(deb822)
	f.Add("deb [signed-by=/k.gpg] http://a.test/debian bookworm main")
	f.Fuzz(func(t *testing.T, text string) {
		all := append(parseOneLine("x", text), parseDeb822("x", text)...)
		picked, err := bootstrapSources(all, "trixie")
		if err != nil {
			return
		}
		for _, src := range picked {
			if len(src.Suites) != 1 || !strings.HasPrefix(src.Suites[0], "trixie") || len(src.URIs) == 0 {
				t.Errorf("picked %+v", src)
			}
		}
	})
}
