package egress

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

// hello is what can be seen of a TLS ClientHello.
type hello struct {
	name string // SNI, as it was sent; "" without
	ech  bool   // an encrypted name is offered, or the look of one (GREASE)
}

const maxHello = 64 << 10 // bytes of a ClientHello with its record headers

var (
	errHello   = errors.New("malformed TLS ClientHello")
	errMore    = errors.New("more bytes are needed")
	errTooLong = errors.New("it is too long")
)

const (
	recordHandshake  = 22
	handshakeHello   = 1
	extensionName    = 0
	extensionECH     = 0xfe0d
	nameTypeHostname = 0
)

// startsTLS says whether bytes begin a TLS handshake.
func startsTLS(b []byte) bool {
	return len(b) > 0 && b[0] == recordHandshake && (len(b) == 1 || b[1] == 3)
}

// parseHello reads a ClientHello from the first bytes of a connection. It may be
// cut into several records. errMore says that it goes on.
func parseHello(b []byte) (hello, error) {
	if len(b) > maxHello {
		return hello{}, errTooLong
	}
	var message []byte
	records := cryptobyte.String(b)
	for {
		if len(message) >= 4 {
			n := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			switch {
			case message[0] != handshakeHello:
				return hello{}, errHello
			case n > maxHello:
				return hello{}, errTooLong
			case len(message) >= 4+n:
				return parseHelloBody(message[4 : 4+n])
			}
		}
		if len(records) < 5 {
			return hello{}, errMore
		}
		if records[0] != recordHandshake || records[1] != 3 {
			return hello{}, errHello
		}
		n := int(records[3])<<8 | int(records[4])
		if n == 0 || n > 16<<10 { // an empty handshake record is forbidden, and only confuses
			return hello{}, errHello
		}
		if len(records) < 5+n {
			message = append(message, records[5:]...)
			records = nil
			// What has come of the record can already show a wrong type.
			if len(message) > 0 && message[0] != handshakeHello {
				return hello{}, errHello
			}
			return hello{}, errMore
		}
		message = append(message, records[5:5+n]...)
		records = records[5+n:]
	}
}

func parseHelloBody(b []byte) (out hello, err error) {
	s := cryptobyte.String(b)
	var session, suites, compression, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) || !s.ReadUint8LengthPrefixed(&compression) {
		return out, errHello
	}
	if s.Empty() {
		return out, nil // of a time before extensions
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return out, errHello
	}
	named := false
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return out, errHello
		}
		switch kind {
		case extensionECH:
			out.ech = true
		case extensionName:
			if named { // two names: one of them could be looked at here and the other there
				return out, errHello
			}
			named = true
			if out.name, err = parseServerName(data); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func parseServerName(data cryptobyte.String) (name string, err error) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return "", errHello
	}
	for !list.Empty() {
		var kind uint8
		var value cryptobyte.String
		if !list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&value) || kind != nameTypeHostname || name != "" || value.Empty() {
			return "", errHello
		}
		name = string(value)
	}
	return name, nil
}

// alertDenied is what TLS clients show as "access denied".
var alertDenied = []byte{21, 3, 3, 0, 2, 2, 49}
