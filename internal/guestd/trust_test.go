package guestd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestTrust(t *testing.T) {
	s := start(t)
	ours := authority(t)
	certifi := filepath.Join(s.cfg.Root, "opt/venv/lib/python3.12/site-packages/certifi/cacert.pem")
	system := filepath.Join(s.cfg.Root, "etc/ssl/certs/ca-certificates.crt")
	if err := os.MkdirAll(filepath.Dir(certifi), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, certifi, "the world's\n")
	for range 2 { // twice is once
		s.do("POST", "/trust", guestapi.TrustRequest{PEM: ours}, nil)
		for _, path := range []string{certifi, system} {
			if got, err := os.ReadFile(path); err != nil || string(got) != "the world's\n"+string(ours) {
				t.Errorf("%s: %v\n%s", path, err, got)
			}
		}
	}
	events, _ := s.shell("echo $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS; GIT_SSL_CAINFO=mine sh -c 'echo $GIT_SSL_CAINFO'")
	if got := text(events, api.EventStdout); got != "/etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/pandastack.pem\nmine\n" {
		t.Errorf("%q", got)
	}
	s.fails("POST", "/trust", guestapi.TrustRequest{PEM: []byte(strings.Repeat(string(ours), 2))}, 400, api.CodeInvalid)
	s.fails("POST", "/trust", guestapi.TrustRequest{PEM: []byte("x")}, 400, api.CodeInvalid)
}
