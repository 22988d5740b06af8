package kernel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// The metadata comes from the sandbox as much as the data does.
func TestMetadataCountsForTheSizeOfResults(t *testing.T) {
	big := json.RawMessage(`"` + strings.Repeat("m", 20<<20) + `"`)
	events := func(yield func(api.Event, error) bool) {
		for i := range 10 {
			e := api.Event{Seq: int64(i + 1), Type: api.EventResult, Data: api.Bundle{"text/plain": "x"}, Metadata: map[string]json.RawMessage{"a": big}}
			if !yield(e, nil) {
				return
			}
		}
		yield(api.Event{Seq: 11, Type: api.EventEnd, Execution: &api.Execution{End: api.EndOK}}, nil)
	}
	x, err := assemble(events)
	if err != nil || len(x.Results) != maxResultsBytes/(20<<20) || !x.Truncated {
		t.Errorf("%d results kept, truncated %v, %v", len(x.Results), x.Truncated, err)
	}
}
