package archive

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/pandastack/pandastack/internal/fault"
)

// Key is a public key in words, as "ed25519:…". It is what a server is known by.
type Key string

const keyPrefix = "ed25519:"

// KeyOf gives the public half of a signing key.
func KeyOf(signer ed25519.PrivateKey) Key {
	return Key(keyPrefix + base64.RawURLEncoding.EncodeToString(signer.Public().(ed25519.PublicKey)))
}

// ParseKey checks the words of a key.
func ParseKey(s string) (Key, error) {
	if _, err := Key(s).public(); err != nil {
		return "", err
	}
	return Key(s), nil
}

func (k Key) public() (ed25519.PublicKey, error) {
	word, ours := strings.CutPrefix(string(k), keyPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if !ours || err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fault.New("invalid", "%.80q is no key of a server", string(k)).WithHint("as %s and 43 letters, digits, - and _; pandastack version shows a server's own", keyPrefix)
	}
	return raw, nil
}

// signature is the second member.
type signature struct {
	Key       Key    `json:"key"`
	Signature []byte `json:"signature"`
}

// signed is what a signature is of: no other thing that is signed looks like it.
func signed(manifest []byte) []byte {
	return append([]byte("pandastack snapshot archive\x00"), manifest...)
}

func sign(signer ed25519.PrivateKey, manifest []byte) ([]byte, error) {
	return json.Marshal(signature{KeyOf(signer), ed25519.Sign(signer, signed(manifest))})
}

// verify says whose signature of a manifest it is.
func verify(manifest, raw []byte) (Key, error) {
	var s signature
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", errBad("%s cannot be read", signatureName)
	}
	public, err := s.Key.public()
	if err != nil {
		return "", errBad("%s names no key", signatureName)
	}
	if !ed25519.Verify(public, signed(manifest), s.Signature) {
		return "", errBad("%s is not what %s signed", manifestName, s.Key)
	}
	return s.Key, nil
}
