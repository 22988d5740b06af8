package guestd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func steps(resp guestapi.AssignResponse) map[string]guestapi.Step {
	m := map[string]guestapi.Step{}
	for _, s := range resp.Steps {
		m[s.Name] = s
	}
	return m
}

func TestAssignReportsEachStep(t *testing.T) {
	s := start(t)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	req := guestapi.AssignRequest{
		SandboxID: "sb1", Generation: 3, Hostname: name, MachineID: strings.Repeat("0a", 16),
		UnixNano: time.Now().UnixNano(), MemoryMB: 512, Reseed: true, Entropy: randomBytes(64),
	}
	var resp guestapi.AssignResponse
	s.do("POST", "/assign", req, &resp)
	got := steps(resp)
	for _, name := range []string{"clock", "env", "limits", "random", "hostname", "machine_id", "generation_file"} {
		if !got[name].OK {
			t.Errorf("step %s: %+v", name, got[name])
		}
	}
	if got["hostname"].Detail != "set by the host" {
		t.Errorf("hostname: %+v", got["hostname"])
	}
	for path, want := range map[string]string{
		filepath.Join(s.cfg.Etc, "machine-id"): req.MachineID + "\n",
		filepath.Join(s.cfg.Etc, "hostname"):   name + "\n",
		s.cfg.GenerationFile:                   "3\n",
	} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v", path, b, err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(s.cfg.Etc, "hosts")); !strings.Contains(string(b), "127.0.1.1\t"+name) {
		t.Errorf("hosts holds %q", b)
	}
}

// A clock that stood still while the sandbox was stored must not go unnoticed.
func TestAssignReportsSkew(t *testing.T) {
	s := start(t)
	var resp guestapi.AssignResponse
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, UnixNano: time.Now().Add(75 * time.Hour).UnixNano()}, &resp)
	if c := steps(resp)["clock"]; c.OK || !strings.Contains(c.Detail, "-75h0m0") && !strings.Contains(c.Detail, "-74h59m") {
		t.Errorf("got %+v", c)
	}
	if g := steps(resp)["generation_file"]; !g.OK {
		t.Errorf("the steps after it were not done: %+v", resp)
	}
}

func TestAssignIsChecked(t *testing.T) {
	s := start(t)
	good := guestapi.AssignRequest{SandboxID: "sb", Generation: 1}
	for field, change := range map[string]func(*guestapi.AssignRequest){
		"sandbox_id": func(r *guestapi.AssignRequest) { r.SandboxID = "" },
		"generation": func(r *guestapi.AssignRequest) { r.Generation = 0 },
		"hostname":   func(r *guestapi.AssignRequest) { r.Hostname = "a b" },
		"machine_id": func(r *guestapi.AssignRequest) { r.MachineID = "xyz" },
		"entropy":    func(r *guestapi.AssignRequest) { r.Reseed = true },
		"memory_mb":  func(r *guestapi.AssignRequest) { r.MemoryMB = -1 },
		"pids":       func(r *guestapi.AssignRequest) { r.PIDs = -1 },
		"spares":     func(r *guestapi.AssignRequest) { r.Spares = 1000 },
		"envs":       func(r *guestapi.AssignRequest) { r.Envs = map[string]string{"A\x00": ""} },
	} {
		req := good
		change(&req)
		if e := s.fails("POST", "/assign", req, 400, api.CodeInvalid); e.Field != field {
			t.Errorf("field %q, want %q", e.Field, field)
		}
	}
}
