package guestapi

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Programs in the sandbox call functions outside of it. The host holds one
// stream open for that, POST /calls: its body is what the host says, its answer
// what the guest says, both in frames. A frame has a kind, the number of the
// call that it belongs to, the length of what follows, and that.
//
// The guest begins a call with a number that this stream has not had. A request
// is pieces of CallData and then CallEnd, and so is the answer; pieces of several
// calls may be mixed. A call that is cancelled among its pieces comes to its CallEnd,
// too. The first line of a request is a CallHead in JSON, the rest
// is the program's own words, as is the answer.
//
// When the stream breaks, calls in flight have failed: they are never sent
// again. The exception are those that the host said CallHeld of and not
// CallFree: they have not begun, so the guest presents them to the next stream
// under the same key.
const (
	CallData   = byte(0) // a piece of the request or of the answer
	CallEnd    = byte(1) // it is whole; length 0
	CallCancel = byte(2) // from the guest: nobody waits for the answer any more; length 0
	CallHeld   = byte(3) // from the host: the call waits for somebody's decision, and the deadline of its cell does not run; length 0
	CallFree   = byte(4) // from the host: it waits no longer; length 0

	CallHeader = 9
	CallPiece  = 64 << 10 // the longest piece

	MaxCallRequest = 16 << 20 // bytes of a request
	MaxCallAnswer  = 64 << 20 // bytes of an answer
	MaxCallsAtOnce = 256      // of a sandbox; more wait in the guest
)

// CallSocket is where programs in the sandbox find the agent, an abstract Unix
// socket. One connection carries one call at a time: a length in four bytes and
// so many bytes of JSON, both ways. A connection that is closed before the
// answer came cancels its call.
const CallSocket = "@pandastack-tools"

// CallHead begins a request. It is the guest's word, and worth that.
type CallHead struct {
	Key         string `json:"key"`                    // made up by the agent, once for each call
	Context     string `json:"context,omitempty"`      // the code context that calls, if it is one
	ExecutionID string `json:"execution_id,omitempty"` // the cell that runs in it
	Again       bool   `json:"again,omitempty"`        // an earlier stream was told that it is held
}

// CallFrame is one frame.
type CallFrame struct {
	Kind byte
	Call uint32
	Data []byte
}

// WriteCallFrames writes frames in one piece.
func WriteCallFrames(w io.Writer, frames ...CallFrame) error {
	size := 0
	for _, f := range frames {
		size += CallHeader + len(f.Data)
	}
	b := make([]byte, 0, size)
	for _, f := range frames {
		b = append(b, f.Kind)
		b = binary.BigEndian.AppendUint32(b, f.Call)
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.Data)))
		b = append(b, f.Data...)
	}
	_, err := w.Write(b)
	return err
}

// WriteCall writes a whole request or answer, in pieces. The last of them goes
// together with the end: whoever reads is woken once.
func WriteCall(write func(...CallFrame) error, call uint32, data []byte) error {
	for len(data) > CallPiece {
		if err := write(CallFrame{CallData, call, data[:CallPiece]}); err != nil {
			return err
		}
		data = data[CallPiece:]
	}
	end := CallFrame{CallEnd, call, nil}
	if len(data) == 0 {
		return write(end)
	}
	return write(CallFrame{CallData, call, data}, end)
}

// ReadCallFrame reads a frame. At the end of the stream it gives io.EOF.
func ReadCallFrame(r io.Reader) (CallFrame, error) {
	var b [CallHeader]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return CallFrame{}, err
	}
	f := CallFrame{Kind: b[0], Call: binary.BigEndian.Uint32(b[1:])}
	n := binary.BigEndian.Uint32(b[5:])
	if f.Kind > CallFree || n > CallPiece || f.Kind != CallData && n != 0 {
		return CallFrame{}, fmt.Errorf("a frame of kind %d and length %d", f.Kind, n)
	}
	if n > 0 {
		f.Data = make([]byte, n)
		if _, err := io.ReadFull(r, f.Data); err != nil {
			return CallFrame{}, fmt.Errorf("the data of a frame: %w", err)
		}
	}
	return f, nil
}
