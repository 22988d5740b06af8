package egress

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"golang.org/x/crypto/cryptobyte"
)

var errRecorded = errors.New("recorded")

// recorder is a connection that keeps what is written and gives nothing.
type recorder struct {
	net.Conn
	bytes.Buffer
}

func (r *recorder) Read([]byte) (int, error)    { return 0, errRecorded }
func (r *recorder) Write(b []byte) (int, error) { return r.Buffer.Write(b) }

// clientHello gives the handshake message of a real client, without record
// headers. With ech, the name is encrypted and ech is the one outside.
func clientHello(t testing.TB, sni, ech string) []byte {
	t.Helper()
	cfg := &tls.Config{ServerName: sni, InsecureSkipVerify: sni == ""} //nolint:gosec // nothing is sent
	if ech != "" {
		cfg.EncryptedClientHelloConfigList, cfg.MinVersion = echConfig(t, ech), tls.VersionTLS13
	}
	r := &recorder{}
	if err := tls.Client(r, cfg).Handshake(); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	return r.Bytes()[5:]
}

func echConfig(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(extensionECH)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint8(1)
			b.AddUint16(0x20) // X25519
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(key.PublicKey().Bytes()) })
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(1); b.AddUint16(1) })
			b.AddUint8(32)
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(public)) })
			b.AddUint16(0)
		})
	})
	return b.BytesOrPanic()
}

// inRecords cuts a handshake message into n records.
func inRecords(message []byte, n int) []byte {
	var out []byte
	size := (len(message) + n - 1) / n
	for len(message) > 0 {
		part := message[:min(size, len(message))]
		message = message[len(part):]
		out = append(out, recordHandshake, 3, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// nameTwice adds a second extension with a name.
func nameTwice(message []byte) []byte {
	s := cryptobyte.String(message[4:])
	var session, suites, compression, extensions cryptobyte.String
	fixed := message[4 : 4+34]
	if !s.Skip(34) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) || !s.ReadUint8LengthPrefixed(&compression) || !s.ReadUint16LengthPrefixed(&extensions) {
		panic("not a hello")
	}
	var b cryptobyte.Builder
	b.AddUint8(handshakeHello)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddBytes(fixed)
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(session) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(suites) })
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(compression) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddBytes(extensions)
			b.AddUint16(extensionName)
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
					b.AddUint8(nameTypeHostname)
					b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte("other.example")) })
				})
			})
		})
	})
	return b.BytesOrPanic()
}
