//go:build ignore

package mm

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// leastLoad is how much of a snapshot is loaded at least when a page is asked
// for. Whoever reads along gets more.
const leastLoad = 64 << 10

// loadUnit is how much around ar is to be loaded, and mapped, at once.
func loadUnit(mf *pgalloc.MemoryFile, pseg pmaIterator, ar hostarch.AddrRange) uint64 {
	for _, unit := range []uint64{4 << 20, 512 << 10} {
		before := hostarch.AddrRange{Start: ar.Start - min(ar.Start, hostarch.Addr(unit)), End: ar.Start}.Intersect(pseg.Range())
		if uint64(before.Length()) == unit && mf.Loaded(pseg.fileRangeOf(before)) {
			return unit
		}
	}
	return leastLoad
}

// partMappings gives internal mappings of a part of pseg, which are not to be
// kept, while the whole of it is not loaded yet.
func (pseg pmaIterator) partMappings(ar hostarch.AddrRange) (ims safemem.BlockSeq, ok bool, err error) {
	pma := pseg.ValuePtr()
	mf, ok := pma.file.(*pgalloc.MemoryFile)
	if !ok || !pma.internalMappings.IsEmpty() || mf.Loaded(pseg.fileRange()) {
		return safemem.BlockSeq{}, false, nil
	}
	wide := hostarch.AddrRange{Start: ar.Start &^ (leastLoad - 1), End: (ar.End + leastLoad - 1) &^ (leastLoad - 1)}
	wide = wide.Intersect(pseg.Range())
	perms := pma.maxPerms
	perms.Execute = false
	if ims, err = mf.MapInternal(pseg.fileRangeOf(wide), perms); err != nil {
		return safemem.BlockSeq{}, false, err
	}
	return ims.DropFirst64(uint64(ar.Start - wide.Start)).TakeFirst64(uint64(ar.Length())), true, nil
}
