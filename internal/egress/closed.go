package egress

import (
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"
)

// closedRange is addresses that are not the public internet. A rule opens one
// only by a CIDR that lies within it, so that 0.0.0.0/0 opens none.
type closedRange struct {
	prefix netip.Prefix
	what   string
}

// The special-purpose registries of IANA, and what clouds have put elsewhere.
var closedRanges = func() *bart.Table[closedRange] {
	t := &bart.Table[closedRange]{}
	for _, r := range []struct{ what, prefixes string }{
		{"unspecified", "0.0.0.0/8 ::/128"},
		{"loopback", "127.0.0.0/8 ::1/128"},
		{"private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7 fec0::/10"},
		{"link-local", "169.254.0.0/16 fe80::/10"},
		{"metadata", "169.254.169.254/32 169.254.170.2/32 169.254.170.23/32 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd00:ec2::254/128 fd00:ec2::23/128 fd20:ce::254/128"},
		{"multicast", "224.0.0.0/4 ff00::/8"},
		{"broadcast", "255.255.255.255/32"},
		{"reserved", "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 ::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 3fff::/20"},
		{"translated IPv4", "64:ff9b::/96 64:ff9b:1::/48 ::ffff:0:0/96 2002::/16 2001::/32"},
	} {
		for p := range strings.FieldsSeq(r.prefixes) {
			prefix := netip.MustParsePrefix(p)
			t.Insert(prefix, closedRange{prefix, r.what})
		}
	}
	return t
}()

// closed gives the narrowest closed range that an address is in.
func closed(addr netip.Addr) (closedRange, bool) { return closedRanges.Lookup(addr) }

// metadataNames are what clouds call their metadata services.
var metadataNames = map[string]string{
	"metadata.google.internal":   "169.254.169.254",
	"metadata.goog":              "169.254.169.254",
	"metadata":                   "169.254.169.254",
	"instance-data":              "169.254.169.254",
	"instance-data.ec2.internal": "169.254.169.254",
	"metadata.azure.internal":    "169.254.169.254",
	"metadata.azure.com":         "169.254.169.254",
	"metadata.oraclecloud.com":   "169.254.169.254",
	"metadata.tencentyun.com":    "169.254.0.23",
}
