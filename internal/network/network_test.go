package network_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/network"
	"github.com/pandastack/pandastack/internal/store"
)

var key = bytes.Repeat([]byte("k"), 32)

func open(t *testing.T) (*network.Service, *store.Store, string) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return service(t, st, key), st, dir
}

func service(t *testing.T, st *store.Store, key []byte) *network.Service {
	t.Helper()
	ca, err := egress.LoadCA(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]api.NetworkPolicy{"index": {Allow: []api.NetworkRule{api.Rule("index.example")}}}
	s, err := network.New(network.Options{Store: st, Key: key, Named: named, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const value = "Bearer very-secret-indeed"

func policy(hosts ...string) *api.NetworkPolicy {
	p := &api.NetworkPolicy{}
	for _, h := range hosts {
		p.Allow = append(p.Allow, api.Rule(h))
	}
	return p
}

func TestPlansKeepSecretsEncrypted(t *testing.T) {
	s, st, dir := open(t)
	secrets := api.Secrets{"api.example": {Header: "Authorization", Value: value}}
	n, err := s.Plan(t.Context(), "ann", policy("api.example"), &secrets, store.Network{})
	if err != nil {
		t.Fatal(err)
	}
	row := store.Sandbox{ID: "sb-1", Owner: "ann", State: store.Running, Network: n, CreatedAt: time.Now()}
	if err := st.AddSandbox(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	if row, err = st.Sandbox(t.Context(), "sb-1"); err != nil {
		t.Fatal(err)
	}
	info := s.Show(row)
	if info.Secrets["api.example"].Header != "Authorization" || len(info.Policy.Allow) != 1 || strings.Contains(fmt.Sprint(info), "very-secret") {
		t.Errorf("%+v", info)
	}
	if pem, err := s.Certificate(t.Context(), row); err != nil || !bytes.Contains(pem, []byte("CERTIFICATE")) || bytes.Contains(pem, []byte("PRIVATE")) {
		t.Errorf("%v %s", err, pem)
	}
	if err := st.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		if raw, err := os.ReadFile(f); err == nil && bytes.Contains(raw, []byte("very-secret")) {
			t.Errorf("%s has the secret in it", f)
		}
	}
	// What is not said again stays; nothing of it holds for another workspace.
	more, err := s.Plan(t.Context(), "ann", policy("api.example", "other.example"), nil, row.Network)
	if err != nil || len(s.Show(store.Sandbox{Owner: "ann", Network: more}).Secrets) != 1 {
		t.Errorf("%v", err)
	}
	if _, err := s.Plan(t.Context(), "bob", nil, nil, row.Network); err == nil {
		t.Error("another workspace's secrets were opened")
	}
	none, err := s.Plan(t.Context(), "ann", nil, &api.Secrets{}, row.Network)
	if err != nil || len(none.Sealed) != 0 {
		t.Errorf("taken out: %v", err)
	}
	if _, err := service(t, st, bytes.Repeat([]byte("x"), 32)).Plan(t.Context(), "ann", nil, nil, row.Network); err == nil || !strings.Contains(err.Error(), "master.key") {
		t.Errorf("with another key: %v", err)
	}
}

// What goes to another server names secrets, and has no value of any.
func TestWhatTravels(t *testing.T) {
	here, _, _ := open(t)
	there, st, _ := open(t)
	if _, err := here.PutSecret(t.Context(), "ann", "token", "very-secret"); err != nil {
		t.Fatal(err)
	}
	p := policy("api.example", "other.example")
	p.Policy = "readonly"
	kept, err := here.Plan(t.Context(), "ann", policy("api.example", "other.example"),
		&api.Secrets{"api.example": {Header: "Authorization", Ref: "token"}, "other.example": {Header: "X-Key", Value: value}}, store.Network{})
	if err != nil {
		t.Fatal(err)
	}
	kept.Policy = p
	out, left, err := here.Carry(t.Context(), store.Snapshot{ID: "sn-1", Owner: "ann", Network: kept})
	if err != nil {
		t.Fatal(err)
	}
	if want := []api.SnapshotMissing{{Kind: api.MissingValue, Name: "X-Key", For: "other.example"}}; !slices.Equal(left, want) {
		t.Errorf("left out: %+v", left)
	}
	raw, err := json.Marshal(out)
	if err != nil || bytes.Contains(raw, []byte("very-secret")) || !bytes.Contains(raw, []byte(`"ref":"token"`)) {
		t.Errorf("it takes along %s, %v", raw, err)
	}
	out.Names = []string{"api.example"}

	got, missing, err := there.Admit(t.Context(), "bob", "sn-9", out)
	if err != nil {
		t.Fatal(err)
	}
	want := []api.SnapshotMissing{{Kind: api.MissingPolicy, Name: "readonly"}, {Kind: api.MissingSecret, Name: "token", For: "api.example"}}
	if !slices.Equal(missing, want) {
		t.Errorf("missing: %+v", missing)
	}
	if names, err := st.NetworkState(t.Context(), "sn-9"); err != nil || !slices.Equal(names.Names, out.Names) {
		t.Errorf("it remembers %+v, %v", names, err)
	}
	got.Policy = policy("api.example", "other.example") // the operator has the named one, too
	if _, err := there.Plan(t.Context(), "bob", nil, nil, got); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("a sandbox is made without the secret: %v", err)
	}
	if _, err := there.PutSecret(t.Context(), "bob", "token", "another"); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Plan(t.Context(), "bob", nil, nil, got); err != nil {
		t.Errorf("with the secret: %v", err)
	}
	if _, missing, err := there.Admit(t.Context(), "bob", "sn-9", out); err != nil || len(missing) != 1 {
		t.Errorf("then missing: %+v, %v", missing, err)
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	s, _, _ := open(t)
	use := func(u api.SecretUse) *api.Secrets { return &api.Secrets{"api.example": u} }
	for name, tc := range map[string]struct {
		policy  *api.NetworkPolicy
		secrets *api.Secrets
		field   string
	}{
		"a wildcard in the middle":        {policy("a.*.example"), nil, "network.allow[0]"},
		"a named policy that is not":      {&api.NetworkPolicy{Policy: "none"}, nil, "network.policy"},
		"a secret for what is closed":     {policy("other.example"), use(api.SecretUse{Header: "A", Value: "v"}), "secrets.api.example"},
		"a secret that the server lacks":  {policy("api.example"), use(api.SecretUse{Header: "A", Ref: "none"}), "secrets.api.example"},
		"a field that no policy has":      {&api.NetworkPolicy{Unknown: []string{"alow"}}, nil, "network.alow"},
		"a secret where nothing is open":  {nil, use(api.SecretUse{Header: "A", Value: "v"}), "secrets.api.example"},
		"a secret with value and ref too": {policy("api.example"), use(api.SecretUse{Header: "A", Value: "v", Ref: "r"}), "secrets.api.example"},
	} {
		_, err := s.Plan(t.Context(), "ann", tc.policy, tc.secrets, store.Network{})
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != tc.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Plan(t.Context(), "ann", &api.NetworkPolicy{Policy: "index"}, nil, store.Network{}); err != nil {
		t.Error(err)
	}
	if _, err := network.New(network.Options{Key: key, Named: map[string]api.NetworkPolicy{"bad": *policy("a.*.b")}}); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("%v", err)
	}
}

func TestSecretsGoInAndNeverComeOut(t *testing.T) {
	s, st, _ := open(t)
	ctx := t.Context()
	first, err := s.PutSecret(ctx, "ann", "model", value)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Value(ctx, "ann", "model"); got != value || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	again, err := s.PutSecret(ctx, "ann", "model", "Bearer another")
	if err != nil || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("%+v, %v", again, err)
	}
	if got, _ := s.Value(ctx, "ann", "model"); got != "Bearer another" {
		t.Error(got)
	}
	if _, err := s.Value(ctx, "bob", "model"); !errors.Is(err, fault.NotFound) {
		t.Errorf("another workspace's: %v", err)
	}
	if list, err := s.ListSecrets(ctx, "ann"); err != nil || len(list) != 1 || list[0].Name != "model" {
		t.Errorf("%v, %v", list, err)
	}
	// Put under another name, what is encrypted does not open.
	sec, err := st.Secret(ctx, "ann", "model")
	if err != nil || bytes.Contains(sec.Sealed, []byte("another")) {
		t.Fatalf("%q, %v", sec.Sealed, err)
	}
	sec.Name = "moved"
	if err := st.PutSecret(ctx, sec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Value(ctx, "ann", "moved"); err == nil {
		t.Error("a secret was moved to another name")
	}
	if err := s.DeleteSecret(ctx, "ann", "model"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSecret(ctx, "ann", "model"); !errors.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	for _, bad := range [][2]string{{"", value}, {"a b", value}, {"x", ""}, {"x", "two\nlines"}, {"x", " around "}, {"x", strings.Repeat("x", 20<<10)}} {
		if _, err := s.PutSecret(ctx, "ann", bad[0], bad[1]); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// query asks for the address of a name, as a resolver does.
func query(name string) []byte {
	q := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for part := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(part))), part...)
	}
	return append(q, 0, 0, 1, 0, 1)
}

// addressIn gives the address at the end of an answer.
func addressIn(answer []byte) string {
	if len(answer) < 4 {
		return ""
	}
	return fmt.Sprint(answer[len(answer)-4:])
}

// An address means the same after a crash of the daemon, in copies and in what
// is made from snapshots.
func TestNamesAreKeptBeforeTheyAreTold(t *testing.T) {
	s, st, _ := open(t)
	ctx := context.Background()
	n, err := s.Plan(ctx, "ann", policy("*.example"), nil, store.Network{})
	if err != nil {
		t.Fatal(err)
	}
	row := store.Sandbox{ID: "sb-1", Owner: "ann", Network: n, Generation: 1}
	g, err := s.Open(ctx, row)
	if err != nil {
		t.Fatal(err)
	}
	a := addressIn(g.Resolve(ctx, query("a.example"), false))
	b := addressIn(g.Resolve(ctx, query("b.example"), false))
	if a == "" || a == b {
		t.Fatalf("%s, %s", a, b)
	}
	kept, err := st.NetworkState(ctx, "sb-1")
	if err != nil || fmt.Sprint(kept.Names) != "[a.example b.example]" {
		t.Errorf("%+v, %v", kept, err)
	}
	if err := s.Keep(ctx, row, "sn-1"); err != nil {
		t.Fatal(err)
	}
	later := service(t, st, key) // after a crash: nothing was closed
	for _, sb := range []store.Sandbox{
		row,
		{ID: "sb-2", Owner: "ann", Network: n, ForkedFrom: "sb-1"},
		{ID: "sb-3", Owner: "ann", Network: n, FromSnapshot: "sn-1"},
		{ID: "sb-4", Owner: "ann", Network: n, FromSnapshot: "sn-1", ForkedFrom: "sb-2"},
	} {
		g, err := later.Open(ctx, sb)
		if err != nil {
			t.Fatal(err)
		}
		// Asked the other way round.
		if got := addressIn(g.Resolve(ctx, query("b.example"), false)); got != b {
			t.Errorf("%s: b.example is %s, and was %s", sb.ID, got, b)
		}
		if got := addressIn(g.Resolve(ctx, query("a.example"), false)); got != a {
			t.Errorf("%s: a.example is %s, and was %s", sb.ID, got, a)
		}
		defer later.Close(sb)
	}
	s.Close(row)
}

func event(sandbox string, i int) api.NetworkEvent {
	return api.NetworkEvent{SandboxID: sandbox, Workspace: "ann", Protocol: "tcp", Verdict: api.NetworkRefused, Reason: strings.Repeat("x", 500), Port: i + 1}
}

func TestLogIsBoundedAndSurvives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "network")
	l, err := network.OpenLog(dir, 2, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4000 {
		l.Add(event("sb-1", i))
	}
	l.Add(event("sb-2", 0))
	l.Close()
	var size int64
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s may be read by others: %v", f, info.Mode())
		}
	}
	if size > 2<<20 || size < 1<<20 {
		t.Errorf("%d bytes in %d files", size, len(files))
	}
	if l, err = network.OpenLog(dir, 2, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	last := l.Tail("sb-1", 3)
	if len(last) != 3 || last[2].Port != 4000 || last[2].Seq != 4000 {
		t.Errorf("%+v", last)
	}
	l.Add(event("sb-1", 4000))
	if last = l.Tail("sb-1", 1); last[0].Seq != 4002 {
		t.Errorf("%+v", last)
	}
	if n := len(l.Tail("sb-1", 100000)); n > 500 {
		t.Errorf("%d lines", n)
	}
}

func TestLogIsFollowed(t *testing.T) {
	l, err := network.OpenLog(t.TempDir(), 2, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 5 {
		l.Add(event("sb-1", i))
		l.Add(event("sb-2", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []int
	for line, err := range l.Follow(ctx, "sb-1", -1, 2) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, line.Port); len(got) == 2 {
			l.Add(event("sb-2", 5))
			l.Add(event("sb-1", 5))
		}
		if len(got) == 3 {
			break
		}
	}
	if fmt.Sprint(got) != "[4 5 6]" {
		t.Errorf("%v", got)
	}
	for line := range l.Follow(ctx, "sb-1", 7, 0) { // behind a number
		if line.Seq != 9 {
			t.Errorf("%+v", line)
		}
		break
	}
	go l.EndStreams()
	for range l.Follow(ctx, "sb-3", -1, 5) {
		t.Error("a line of nobody's")
	}
	if ctx.Err() != nil {
		t.Error("the stream did not end")
	}
}
