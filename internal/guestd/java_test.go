package guestd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Java reads authorities from a key store. No template of ours has Java, so what
// its own tool makes of the call is looked at where this machine has one.
func TestJavaIsTold(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("there is no Java")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the authority of a test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	authority, store := filepath.Join(dir, "authority.pem"), filepath.Join(dir, "cacerts")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is once
		if err := tellJava(t.Context(), keytool, authority, "-keystore", store); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(keytool, "-list", "-v", "-keystore", store, "-storepass", "changeit").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "trustedCertEntry") || !strings.Contains(string(out), "CN=the authority of a test") || !strings.Contains(string(out), "1 entry") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := tellJava(t.Context(), keytool, filepath.Join(dir, "nothing.pem"), "-keystore", filepath.Join(dir, "other")); err == nil {
		t.Error("an authority that is not there was taken")
	}
}
