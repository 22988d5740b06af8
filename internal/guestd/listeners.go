package guestd

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/internal/guestapi"
)

// listeners reads from the kernel what programs listen on, by port.
func listeners(procNet string) ([]guestapi.Listener, error) {
	list := []guestapi.Listener{}
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(procNet, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		more, err := parseListeners(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		list = append(list, more...)
	}
	slices.SortFunc(list, func(a, b guestapi.Listener) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address))
	})
	list = slices.Compact(list)
	return list[:min(len(list), guestapi.MaxListeners)], nil
}

// parseListeners reads lines such as "0: 0100007F:1F90 00000000:0000 0A …",
// of which 0A means that somebody listens.
func parseListeners(r io.Reader) ([]guestapi.Listener, error) {
	var list []guestapi.Listener
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || words[3] != "0A" {
			continue
		}
		address, port, _ := strings.Cut(words[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("the port in %q", words[1])
		}
		ip, err := procAddress(address)
		if err != nil {
			return nil, err
		}
		list = append(list, guestapi.Listener{Port: int(n), Address: ip.Unmap().String()})
	}
	return list, lines.Err()
}

// procAddress reads an address as the kernel writes it: 32-bit words, each with
// its bytes the wrong way round.
func procAddress(s string) (netip.Addr, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.Addr{}, fmt.Errorf("the address %q", s)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip, nil
}
