package jupyter

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What one framing writes it reads again, with buffers and without.
func TestFramings(t *testing.T) {
	parent := answer(nil, shell, "execute_request", "front", map[string]string{"code": "1"})
	for _, subprotocol := range []string{"", Subprotocol} {
		for _, buffers := range [][][]byte{nil, {[]byte("one"), {}, {0, 1, 2, 0xff}}} {
			m := answer(parent, iopub, "comm_msg", "kernel", map[string]any{"comm_id": "c", "data": map[string]any{"ü": []int{1}}})
			m.Buffers = buffers
			isBinary, raw, err := encode(subprotocol, m)
			if err != nil {
				t.Fatal(err)
			}
			if want := subprotocol != "" || buffers != nil; isBinary != want {
				t.Errorf("%q with %d buffers: binary is %v", subprotocol, len(buffers), isBinary)
			}
			got, err := decode(subprotocol, isBinary, raw)
			if err != nil {
				t.Fatalf("%q with %d buffers: %v", subprotocol, len(buffers), err)
			}
			if got.Channel != iopub || got.Header != m.Header || !same(t, got.Parent, parent.raw) || !same(t, got.Content, m.Content) {
				t.Errorf("%q: got %+v, want %+v", subprotocol, got, m)
			}
			if len(got.Buffers) != len(buffers) {
				t.Fatalf("%q: %d buffers, want %d", subprotocol, len(got.Buffers), len(buffers))
			}
			for i := range buffers {
				if !bytes.Equal(got.Buffers[i], buffers[i]) {
					t.Errorf("%q: buffer %d is %v, want %v", subprotocol, i, got.Buffers[i], buffers[i])
				}
			}
		}
	}
}

func same(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("%s or %s is no JSON", a, b)
	}
	ja, _ := json.Marshal(x)
	jb, _ := json.Marshal(y)
	return bytes.Equal(ja, jb)
}

// A frame of the subprotocol as jupyter_server lays it out.
func TestSubprotocolLayout(t *testing.T) {
	m := &Message{Channel: "iopub", raw: json.RawMessage(`{"msg_type":"x"}`), Parent: none, Metadata: none, Content: json.RawMessage(`{"a":1}`), Buffers: [][]byte{[]byte("xyz")}}
	_, raw, err := encode(Subprotocol, m)
	if err != nil {
		t.Fatal(err)
	}
	// 8 offsets: of the channel, the header, its parent, metadata, content, the buffer, and the end.
	if raw[0] != 7 || raw[8] != 8*8 || !bytes.HasPrefix(raw[64:], []byte(`iopub{"msg_type":"x"}{}{}{"a":1}xyz`)) {
		t.Errorf("laid out otherwise: %q", raw)
	}
}

func FuzzDecode(f *testing.F) {
	for _, subprotocol := range []string{"", Subprotocol} {
		m := answer(nil, shell, "execute_request", "s", none)
		m.Buffers = [][]byte{[]byte("b")}
		isBinary, raw, _ := encode(subprotocol, m)
		f.Add(subprotocol == Subprotocol, isBinary, raw)
	}
	f.Add(false, false, []byte(`{"header":{"msg_type":"x"},"content":null}`))
	f.Fuzz(func(t *testing.T, v1, isBinary bool, raw []byte) {
		subprotocol := ""
		if v1 {
			subprotocol = Subprotocol
		}
		m, err := decode(subprotocol, isBinary, raw)
		if err != nil {
			return
		}
		if m.Header.MsgType == "" || !json.Valid(m.Content) || !json.Valid(m.Parent) {
			t.Fatalf("taken: %+v", m)
		}
		if _, _, err := encode(Subprotocol, m); err != nil {
			t.Fatalf("cannot be written again: %v", err)
		}
	})
}
