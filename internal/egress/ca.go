package egress

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	caAge     = 10 * 365 * 24 * time.Hour
	leafAge   = 7 * 24 * time.Hour
	leafSkew  = 24 * time.Hour // a sandbox's clock may be behind
	maxLeaves = 1024
)

// CA signs certificates for hosts whose TLS is opened. Its key never leaves the
// host; its certificate is what sandboxes have to trust. There is one for each
// data directory.
type CA struct {
	cert *x509.Certificate
	pem  []byte
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
	leafed *ecdsa.PrivateKey // of all leaves
}

// LoadCA reads the CA from a file, which it makes, for the owner alone, if it is
// not there.
func LoadCA(path string) (*CA, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = newCA(time.Now()); err == nil {
			b, err = keepFirst(path, b)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the network's certificate authority: %w", err)
	}
	ca, err := parseCA(b)
	if err != nil {
		return nil, fmt.Errorf("the network's certificate authority, %s: %w (take the file away to have a new one made)", path, err)
	}
	return ca, nil
}

// keepFirst writes a file unless another was faster, and gives what is in it.
func keepFirst(path string, b []byte) ([]byte, error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ca-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

func newCA(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"PandaStack"}, CommonName: fmt.Sprintf("PandaStack sandbox egress %x", serial.Bytes()[:4])},
		NotBefore: now.Add(-leafSkew), NotAfter: now.Add(caAge), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := pem.Encode(&out, b); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func serialNumber() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	b[0] = b[0]&0x7f | 0x40 // positive, and of one length
	return new(big.Int).SetBytes(b), nil
}

func parseCA(b []byte) (*CA, error) {
	pair, err := tls.X509KeyPair(b, b)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("it is not a certificate authority with an ECDSA key")
	}
	leafed, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &CA{cert: pair.Leaf, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}), key: key,
		leaves: map[string]*tls.Certificate{}, leafed: leafed}, nil
}

// PEM is the certificate that sandboxes have to trust.
func (c *CA) PEM() []byte { return bytes.Clone(c.pem) }

// leaf gives a certificate for a name.
func (c *CA) leaf(name string, now time.Time) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leaves[name]; l != nil && now.Before(l.Leaf.NotAfter.Add(-leafSkew)) {
		return l, nil
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, DNSNames: []string{name}, NotBefore: now.Add(-leafSkew), NotAfter: now.Add(leafAge),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if len(name) <= 64 {
		t.Subject.CommonName = name
	}
	der, err := x509.CreateCertificate(rand.Reader, t, c.cert, c.leafed.Public(), c.key)
	if err != nil {
		return nil, fmt.Errorf("a certificate for %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("a certificate for %s: %w", name, err)
	}
	if len(c.leaves) >= maxLeaves {
		clear(c.leaves)
	}
	l := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.leafed, Leaf: parsed}
	c.leaves[name] = l
	return l, nil
}
