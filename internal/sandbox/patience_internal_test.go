package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/store"
)

// noTemplates is never asked.
type noTemplates struct{}

func (noTemplates) Templates(context.Context) ([]Template, error) { return nil, nil }
func (noTemplates) ByDigest(context.Context, string) (Template, error) {
	return Template{}, store.ErrNotFound
}

// Clients wait for a create at least as long as it may take, so that they hear
// how it ended. The Go SDK waits as its context says: see its own test.
func TestClientsWaitLongerThanACreateTakes(t *testing.T) {
	c := Config{Driver: fake.New(fake.NewHost()), Store: &store.Store{}, Templates: noTemplates{}, RunDir: t.TempDir()}
	if err := c.fill(); err != nil {
		t.Fatal(err)
	}
	most := c.QueueTimeout + c.CreateTimeout + endTime // the last to undo one that failed
	said := regexp.MustCompile(`(?m)^(?:const )?CREATE_SECONDS = ([0-9.]+);?$`)
	for _, file := range []string{"python/src/pandastack/_routes.py", "typescript/src/sandbox.ts"} {
		source, err := os.ReadFile(filepath.Join("../../sdk", file))
		if err != nil {
			t.Fatal(err)
		}
		found := said.FindSubmatch(source)
		if found == nil {
			t.Errorf("%s no longer says for how long it waits", file)
			continue
		}
		seconds, err := strconv.ParseFloat(string(found[1]), 64)
		if patience := time.Duration(seconds * float64(time.Second)); err != nil || patience < most+10*time.Second {
			t.Errorf("%s waits for %s, and a create may take %s", file, patience, most)
		}
	}
}
