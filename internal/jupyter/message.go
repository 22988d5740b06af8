// Package jupyter speaks Jupyter's messaging protocol with front ends
// (JupyterLab, VS Code, jupyter_client) over their WebSockets and runs what they
// ask for in the code contexts of sandboxes, beside whoever else uses these. The
// HTTP API calls it.
//
// It translates and keeps no kernel of its own: cells, completion, comms and
// input happen in the sandbox, by package kernel. It never talks to a driver or
// the store.
package jupyter

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Subprotocol is the name of the WebSocket framing in which a message is one
// binary frame of parts, without a second encoding of what is JSON already.
// https://jupyter-server.readthedocs.io, "WebSocket kernel wire protocols".
const Subprotocol = "v1.kernel.websocket.jupyter.org"

// version is that of the messaging protocol.
const version = "5.4"

// The channels of a kernel.
const (
	shell   = "shell"
	control = "control"
	stdin   = "stdin"
	iopub   = "iopub"
)

// maxParts bounds the parts of a message: channel, header, parent, metadata,
// content and buffers.
const maxParts = 512

// maxHeader bounds a header: each answer has that of its request in it.
const maxHeader = 64 << 10

// Header is the header of a message.
type Header struct {
	MsgID    string `json:"msg_id"`
	Username string `json:"username"`
	Session  string `json:"session"`
	Date     any    `json:"date"` // a string; some clients send a number
	MsgType  string `json:"msg_type"`
	Version  string `json:"version"`
}

// Message is a message on one of a kernel's channels.
type Message struct {
	Channel  string
	Header   Header
	Parent   json.RawMessage // the header of what it answers, as that came; {} for none
	Metadata json.RawMessage
	Content  json.RawMessage
	Buffers  [][]byte

	raw json.RawMessage // the header as it came, or goes
}

// overhead is what a message takes besides what is in it.
const overhead = 512

var none = json.RawMessage("{}")

// size is about how many bytes it has.
func (m *Message) size() int {
	n := overhead + len(m.raw) + len(m.Parent) + len(m.Metadata) + len(m.Content)
	for _, b := range m.Buffers {
		n += len(b)
	}
	return n
}

func newID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// wire is a message in the default framing.
type wire struct {
	Channel  string            `json:"channel"`
	Header   json.RawMessage   `json:"header"`
	Parent   json.RawMessage   `json:"parent_header"`
	Metadata json.RawMessage   `json:"metadata"`
	Content  json.RawMessage   `json:"content"`
	Buffers  []json.RawMessage `json:"buffers"`
	MsgID    string            `json:"msg_id,omitempty"`
	MsgType  string            `json:"msg_type,omitempty"`
}

var errMalformed = errors.New("a message is malformed")

// decode reads a message: in the subprotocol, or in the default framing, which
// is text, or binary when there are buffers.
func decode(subprotocol string, isBinary bool, b []byte) (*Message, error) {
	if subprotocol == Subprotocol {
		parts, err := partsLE(b)
		if err != nil {
			return nil, err
		}
		if len(parts) < 5 {
			return nil, fmt.Errorf("%w: it has %d parts", errMalformed, len(parts))
		}
		return message(wire{string(parts[0]), parts[1], parts[2], parts[3], parts[4], nil, "", ""}, parts[5:])
	}
	var buffers [][]byte
	if isBinary {
		parts, err := partsBE(b)
		if err != nil {
			return nil, err
		}
		b, buffers = parts[0], parts[1:]
	}
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return message(w, buffers)
}

func message(w wire, buffers [][]byte) (*Message, error) {
	m := &Message{Channel: w.Channel, Parent: w.Parent, Metadata: w.Metadata, Content: w.Content, Buffers: buffers, raw: w.Header}
	if m.Channel == "" {
		m.Channel = shell
	}
	for _, each := range []*json.RawMessage{&m.Parent, &m.Metadata, &m.Content} {
		if len(*each) == 0 || string(*each) == "null" {
			*each = none
		}
	}
	if len(w.Header) > maxHeader {
		return nil, fmt.Errorf("%w: its header has %d bytes, and may have %d", errMalformed, len(w.Header), maxHeader)
	}
	if err := json.Unmarshal(w.Header, &m.Header); err != nil || m.Header.MsgType == "" {
		return nil, fmt.Errorf("%w: it has no header", errMalformed)
	}
	if !json.Valid(m.Content) || !json.Valid(m.Metadata) {
		return nil, fmt.Errorf("%w: it is no JSON", errMalformed)
	}
	return m, nil
}

// partsLE cuts a frame of the subprotocol: the number of offsets, the offsets,
// each 8 bytes little-endian, and between them the parts.
func partsLE(b []byte) ([][]byte, error) {
	if len(b) < 8 {
		return nil, errMalformed
	}
	n := binary.LittleEndian.Uint64(b)
	if n < 2 || n > maxParts || uint64(len(b)) < 8*(n+1) {
		return nil, errMalformed
	}
	offsets := make([]uint64, n)
	for i := range offsets {
		offsets[i] = binary.LittleEndian.Uint64(b[8*(i+1):])
	}
	return cut(b, offsets)
}

// partsBE cuts a binary frame of the default framing: the number of parts, where
// each begins, each 4 bytes big-endian, and the parts.
func partsBE(b []byte) ([][]byte, error) {
	if len(b) < 4 {
		return nil, errMalformed
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n < 1 || n > maxParts || uint64(len(b)) < 4*(n+1) {
		return nil, errMalformed
	}
	offsets := make([]uint64, n, n+1)
	for i := range offsets {
		offsets[i] = uint64(binary.BigEndian.Uint32(b[4*(i+1):]))
	}
	return cut(b, append(offsets, uint64(len(b))))
}

func cut(b []byte, offsets []uint64) ([][]byte, error) {
	var parts [][]byte
	for i := 1; i < len(offsets); i++ {
		from, to := offsets[i-1], offsets[i]
		if from > to || to > uint64(len(b)) {
			return nil, errMalformed
		}
		parts = append(parts, b[from:to])
	}
	return parts, nil
}

// encode writes a message as decode reads it.
func encode(subprotocol string, m *Message) (isBinary bool, b []byte, err error) {
	header := m.raw
	if subprotocol == Subprotocol {
		parts := append([][]byte{[]byte(m.Channel), header, m.Parent, m.Metadata, m.Content}, m.Buffers...)
		at := uint64(8 * (len(parts) + 2))
		b = binary.LittleEndian.AppendUint64(b, uint64(len(parts)+1))
		b = binary.LittleEndian.AppendUint64(b, at)
		for _, p := range parts {
			at += uint64(len(p))
			b = binary.LittleEndian.AppendUint64(b, at)
		}
		for _, p := range parts {
			b = append(b, p...)
		}
		return true, b, nil
	}
	text, err := json.Marshal(wire{
		Channel: m.Channel, Header: header, Parent: m.Parent, Metadata: m.Metadata, Content: m.Content,
		Buffers: []json.RawMessage{}, MsgID: m.Header.MsgID, MsgType: m.Header.MsgType,
	})
	if err != nil || len(m.Buffers) == 0 {
		return false, text, err
	}
	parts := append([][]byte{text}, m.Buffers...)
	at := uint32(4 * (len(parts) + 1))
	b = binary.BigEndian.AppendUint32(b, uint32(len(parts)))
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, at)
		at += uint32(len(p))
	}
	for _, p := range parts {
		b = append(b, p...)
	}
	return true, b, nil
}

// answer makes a message of a kernel in answer to another, nil for none.
func answer(parent *Message, channel, kind, session string, content any) *Message {
	m := &Message{
		Channel: channel, Parent: none, Metadata: none,
		Header: Header{MsgID: newID(), Username: "kernel", Session: session, Date: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"), MsgType: kind, Version: version},
	}
	if parent != nil {
		m.Parent = parent.raw
	}
	m.raw, m.Content = encoded(m.Header), encoded(content)
	return m
}

// encoded is the JSON of a value of our own, which always has one.
func encoded(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
