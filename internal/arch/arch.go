// Package arch holds the architecture: its tests read the import graph and the
// sources and fail when an arrow points the wrong way. Nothing imports it.
package arch
