package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pandastack/pandastack/internal/fault"
)

var update = flag.Bool("update", false, "rewrite the sample file")

func envOf(m map[string]string) Env {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pandastack.toml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFileEnvironmentFlag(t *testing.T) {
	file := write(t, "listen = \"1.1.1.1:1\"\nmax_sandboxes = 7\ndefault_ttl = \"90s\"\nallowed_hosts = [\"a\", \"b\"]\n")
	env := envOf(map[string]string{"PANDASTACK_LISTEN": "2.2.2.2:2", "PANDASTACK_POOL_READY": "9", "PANDASTACK_MAX_TTL": "7200"})
	c, err := Load(env, file, map[string]string{"listen": "3.3.3.3:3", "data_dir": "/d"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "3.3.3.3:3" || c.MaxSandboxes != 7 || c.PoolReady != 9 || c.DefaultTTL != 90*time.Second || c.MaxTTL != 2*time.Hour {
		t.Errorf("%+v", c)
	}
	if strings.Join(c.AllowedHosts, " ") != "a b" || c.TemplatesDir != "/d/templates" {
		t.Errorf("%+v", c)
	}
	from := map[string]string{}
	for _, s := range c.Show() {
		from[s.Name] = s.Source
	}
	for name, want := range map[string]string{"listen": "flag", "max_sandboxes": file + ":2", "allowed_hosts": file + ":4", "pool_ready": "PANDASTACK_POOL_READY", "driver": "default"} {
		if from[name] != want {
			t.Errorf("%s comes from %q, want %q", name, from[name], want)
		}
	}
}

func TestOrigins(t *testing.T) {
	for given, want := range map[string]string{
		"":                        "",
		"https://App.example.com": "https://app.example.com",
		" http://localhost:5173 , https://a.example": "http://localhost:5173 https://a.example",
	} {
		c, err := Load(envOf(map[string]string{"PANDASTACK_ALLOWED_ORIGINS": given}), "", nil)
		if err != nil || strings.Join(c.AllowedOrigins, " ") != want {
			t.Errorf("%q: %q, %v", given, c.AllowedOrigins, err)
		}
	}
	for _, given := range []string{"*", "null", "app.example.com", "https://*.example.com", "https://a.example/", "https://a.example/x", "https://u@a.example", "file:///tmp/x", "https://", "https://a.example?b"} {
		_, err := Load(envOf(map[string]string{"PANDASTACK_ALLOWED_ORIGINS": given}), "", nil)
		if err == nil || !strings.Contains(err.Error(), "PANDASTACK_ALLOWED_ORIGINS") || !strings.Contains(err.Error(), "https://app.example.com") {
			t.Errorf("%q: %v", given, err)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		file  string
		env   map[string]string
		flags map[string]string
		field string
	}{
		"unknown in the file":       {file: "lisen = \"x\"", field: "lisen"},
		"broken file":               {file: "listen =", field: "config"},
		"wrong type in the file":    {file: "max_sandboxes = \"many\"", field: "max_sandboxes"},
		"negative":                  {env: map[string]string{"PANDASTACK_MAX_SANDBOXES": "-1"}, field: "max_sandboxes"},
		"no duration":               {env: map[string]string{"PANDASTACK_MAX_TTL": "soon"}, field: "max_ttl"},
		"negative duration":         {flags: map[string]string{"max_ttl": "-5s"}, field: "max_ttl"},
		"no number":                 {file: "memory_overcommit = \"much\"", field: "memory_overcommit"},
		"negative factor":           {env: map[string]string{"PANDASTACK_CPU_OVERCOMMIT": "-1"}, field: "cpu_overcommit"},
		"no factor":                 {env: map[string]string{"PANDASTACK_DISK_OVERCOMMIT": "NaN"}, field: "disk_overcommit"},
		"too few processes":         {flags: map[string]string{"max_pids": "0"}, field: "max_pids"},
		"no memory for outputs":     {flags: map[string]string{"output_memory_mb": "0"}, field: "output_memory_mb"},
		"no such choice":            {flags: map[string]string{"log_format": "xml"}, field: "log_format"},
		"unknown flag":              {flags: map[string]string{"colour": "red"}, field: "colour"},
		"lifetime beyond the limit": {flags: map[string]string{"default_ttl": "48h"}, field: "default_ttl"},
		"no lifetime":               {flags: map[string]string{"default_ttl": "0s"}, field: "default_ttl"},
		"no time for a create":      {flags: map[string]string{"create_timeout": "4s"}, field: "create_timeout"},
		"folder of another name":    {flags: map[string]string{"templates_dir": "/x/y"}, field: "templates_dir"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(envOf(tc.env), write(t, tc.file), tc.flags)
			var f *fault.Error
			if !errors.As(err, &f) || f.Field != tc.field {
				t.Fatalf("error %v, want one about %q", err, tc.field)
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	env := envOf(map[string]string{"HOME": t.TempDir(), "XDG_CONFIG_HOME": t.TempDir()})
	if _, err := Load(env, "", nil); err != nil {
		t.Errorf("without a file: %v", err)
	}
	if _, err := Load(env, "/nowhere/pandastack.toml", nil); err == nil {
		t.Error("a file that was named and is missing is no error")
	}
}

func TestSample(t *testing.T) {
	const file = "../../packaging/pandastack.toml"
	if *update {
		if err := os.WriteFile(file, []byte(Sample()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != Sample() {
		t.Errorf("%s is not what the settings say (%v); run this test with -update", file, err)
	}
	// Every line in it, taken out of its comment, is valid and at its default.
	var live []string
	for line := range strings.Lines(Sample()) {
		if rest, ok := strings.CutPrefix(line, "# "); ok && strings.Contains(rest, " = ") {
			live = append(live, rest)
		}
	}
	var values map[string]any
	if err := toml.Unmarshal([]byte(strings.Join(live, "")), &values); err != nil {
		t.Fatal(err)
	}
	c, err := Load(envOf(nil), write(t, strings.Join(live, "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Load(envOf(nil), write(t, ""), map[string]string{"data_dir": rootDataDir})
	if err != nil {
		t.Fatal(err)
	}
	c.sources, d.sources = nil, nil
	if len(values) != len(d.settings()) || !reflect.DeepEqual(c, d) {
		t.Errorf("the sample is not at the defaults: %+v\nwant %+v", c, d)
	}
}

// The table of settings, and with it the sample, holds each field of Config
// once and nothing else.
func TestEveryFieldIsASetting(t *testing.T) {
	var c Config
	fields := map[uintptr]string{}
	for v, i := reflect.ValueOf(&c).Elem(), 0; i < v.NumField(); i++ {
		if f := v.Type().Field(i); f.IsExported() {
			fields[v.Field(i).Addr().Pointer()] = f.Name
		}
	}
	for _, s := range c.settings() {
		at := reflect.ValueOf(s.value).FieldByName("p").Pointer()
		if _, ok := fields[at]; !ok {
			t.Errorf("%s is no field of Config, or is there twice", s.name)
		}
		delete(fields, at)
		if s.doc == "" {
			t.Errorf("%s is not documented", s.name)
		}
	}
	for _, name := range fields {
		t.Errorf("Config.%s is no setting", name)
	}
}

func TestUnknownNamesAreSaidWithTheNearest(t *testing.T) {
	_, err := Load(envOf(nil), write(t, "log_level = \"warn\"\n\nlog_fromat = \"json\"\n"), nil)
	var f *fault.Error
	if !errors.As(err, &f) || !strings.Contains(f.Message, "pandastack.toml:3:") || !strings.Contains(f.Hint, "log_format") {
		t.Errorf("in the file: %v, %+v", err, f)
	}
	_, err = Load(envOf(nil), write(t, ""), map[string]string{"pool_redy": "1"})
	if !errors.As(err, &f) || !strings.Contains(f.Hint, "pool_ready") {
		t.Errorf("a flag: %v, %+v", err, f)
	}
	got := UnknownVariables([]string{
		"PANDASTACK_LOGLEVEL=debug", "PANDASTACK_LISTEN=x", "PANDASTACK_API_KEY=pds_secret", "HOME=/", "PANDASTACK_ZZZZZZ=pds_secret",
	})
	if len(got) != 2 || !strings.Contains(got[0], "did you mean PANDASTACK_LOG_LEVEL?") || strings.Contains(strings.Join(got, ""), "secret") {
		t.Errorf("in the environment: %q", got)
	}
}
