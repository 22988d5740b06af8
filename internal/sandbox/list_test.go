package sandbox_test

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
)

func TestListFilters(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	a := r.create(api.CreateSandboxRequest{Metadata: map[string]string{"run": "1", "x": "y"}})
	r.clock.advance(time.Second)
	b := r.create(api.CreateSandboxRequest{Metadata: map[string]string{"run": "2"}})
	for _, tc := range []struct {
		f    sandbox.ListFilter
		want []string
	}{
		{sandbox.ListFilter{}, []string{b.ID, a.ID}},
		{sandbox.ListFilter{Limit: 1}, []string{b.ID}},
		{sandbox.ListFilter{Metadata: map[string]string{"run": "1"}}, []string{a.ID}},
		{sandbox.ListFilter{Metadata: map[string]string{"run": "1", "x": "z"}}, nil},
		{sandbox.ListFilter{Status: api.StatusPaused}, nil},
		{sandbox.ListFilter{Status: api.StatusRunning}, []string{b.ID, a.ID}},
		{sandbox.ListFilter{Template: "base"}, []string{b.ID, a.ID}},
		{sandbox.ListFilter{Template: "ubuntu-24.04"}, []string{b.ID, a.ID}},
		{sandbox.ListFilter{Template: "code-interpreter"}, nil},
		{sandbox.ListFilter{Template: "gone"}, nil},
	} {
		list, err := r.List(ctx, "ann", tc.f)
		var got []string
		for _, s := range list {
			got = append(got, s.ID)
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %q, %v, want %q", tc.f, got, err, tc.want)
		}
	}
	if _, err := r.List(ctx, "ann", sandbox.ListFilter{Status: "sleeping"}); !errors.Is(err, fault.Invalid) {
		t.Errorf("an unknown status: %v", err)
	}
}

// Keys and values are compared as they are, whatever stands in them.
func TestMetadataIsFoundAsItIs(t *testing.T) {
	r := newRig(t, nil)
	pairs := map[string]string{`a"b`: "1", "a.b": "2", "ü<&>": "3\n4", `\`: `'"`, "$": "%", " ": "", "[0]": "x"}
	r.create(api.CreateSandboxRequest{Metadata: pairs})
	r.create(api.CreateSandboxRequest{})
	for k, v := range pairs {
		for value, want := range map[string]int{v: 1, v + "x": 0} {
			list, err := r.List(context.Background(), "ann", sandbox.ListFilter{Metadata: map[string]string{k: value}})
			if err != nil || len(list) != want {
				t.Errorf("%q=%q: %d, %v, want %d", k, value, len(list), err, want)
			}
		}
	}
}

// Pages together are the list, also when sandboxes come and go meanwhile.
func TestPages(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	for range 7 { // some of them within one millisecond
		r.create(api.CreateSandboxRequest{})
	}
	if _, err := r.Create(ctx, "bob", api.CreateSandboxRequest{}); err != nil {
		t.Fatal(err)
	}
	all, err := r.List(ctx, "ann", sandbox.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 2, 7, 8} {
		var got []string
		f, pages := sandbox.ListFilter{Limit: size}, 0
		for {
			list, next, err := r.Page(ctx, "ann", f)
			if err != nil || len(list) > size || next != "" && len(list) < size {
				t.Fatalf("a page of %d: %d, next %q, %v", size, len(list), next, err)
			}
			for _, s := range list {
				got = append(got, s.ID)
			}
			if pages++; next == "" {
				break
			}
			f.Cursor = next
		}
		if !slices.EqualFunc(got, all, func(id string, s api.SandboxInfo) bool { return id == s.ID }) || pages != (len(all)+size-1)/size {
			t.Errorf("%d pages of %d: %q", pages, size, got)
		}
	}

	// The one that the cursor is about ends, and a new one comes.
	first, next, err := r.Page(ctx, "ann", sandbox.ListFilter{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(ctx, "ann", first[2].ID); err != nil {
		t.Fatal(err)
	}
	r.clock.advance(time.Second)
	r.create(api.CreateSandboxRequest{})
	rest, end, err := r.Page(ctx, "ann", sandbox.ListFilter{Limit: 10, Cursor: next})
	if err != nil || end != "" || len(rest) != 4 || rest[0].ID != all[3].ID {
		t.Errorf("behind it: %+v, next %q, %v", rest, end, err)
	}
	// A cursor opens nothing to others.
	if list, _, err := r.Page(ctx, "carol", sandbox.ListFilter{Cursor: next}); err != nil || len(list) != 0 {
		t.Errorf("carol sees %+v, %v", list, err)
	}
	for _, bad := range []string{"x", "!", base64.RawURLEncoding.EncodeToString([]byte("1")), base64.RawURLEncoding.EncodeToString([]byte("x.sb-1")), base64.RawURLEncoding.EncodeToString([]byte("1."))} {
		if _, _, err := r.Page(ctx, "ann", sandbox.ListFilter{Cursor: bad}); !errors.Is(err, fault.Invalid) {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
}
