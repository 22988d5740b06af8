package kernels

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const plainText = "text/plain"

// bounded leaves out of a result what the host would refuse the whole for:
// objects may describe themselves in any number of types, and with any
// metadata. When something of the value is missing its text says so.
func bounded(data api.Bundle, meta map[string]json.RawMessage) (api.Bundle, map[string]json.RawMessage) {
	fits := len(data) > 0 && len(data) <= guestapi.MaxTypes
	for t := range data {
		fits = fits && t != "" && len(t) <= guestapi.MaxTypeName
	}
	if !fits {
		kept := api.Bundle{}
		others := 0 // beside the text, which has its place in any case
		for _, t := range slices.Sorted(maps.Keys(data)) {
			switch {
			case t == "" || len(t) > guestapi.MaxTypeName:
			case t == plainText:
				kept[t] = data[t]
			case others < guestapi.MaxTypes-1:
				kept[t] = data[t]
				others++
			}
		}
		words := fmt.Sprintf("[%d of %d types of this result left out: there are too many, or their names are too long]", len(data)-len(kept), len(data))
		if text, ok := kept[plainText]; ok {
			words = text + "\n" + words
		}
		kept[plainText] = words
		data = kept
	}
	var few map[string]json.RawMessage
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		if len(few) < guestapi.MaxMetadata && len(k) <= guestapi.MaxTypeName && guestapi.Depth(meta[k]) <= guestapi.MaxDepth {
			if few == nil {
				few = make(map[string]json.RawMessage, min(len(meta), guestapi.MaxMetadata))
			}
			few[k] = meta[k]
		}
	}
	return data, few
}

// message gives what a notebook is told, unless the host would refuse it.
func message(f frame) (*api.NotebookMessage, bool) {
	if !slices.Contains(guestapi.Messages, f.Type) || !isObject(f.Content) || len(f.Buffers) > guestapi.MaxBuffers {
		return nil, false
	}
	meta, err := json.Marshal(f.Metadata)
	if err != nil || guestapi.Depth(meta) > guestapi.MaxDepth {
		return nil, false
	}
	return &api.NotebookMessage{Type: f.Type, Content: f.Content, Metadata: meta, Buffers: f.Buffers}, true
}

// isObject tells whether a value is an object that is not nested too deep.
func isObject(raw json.RawMessage) bool {
	return len(raw) > 0 && raw[0] == '{' && guestapi.Depth(raw) <= guestapi.MaxDepth
}
