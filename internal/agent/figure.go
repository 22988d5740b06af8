package agent

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // formats that figures come in
	"image/png"
	"strings"

	"golang.org/x/image/draw"
)

const (
	maxSide        = 1568     // pixels; providers shrink what is larger
	maxFigureBytes = 1 << 20  // of one that a model is shown
	maxPixels      = 40 << 20 // that are decoded at all
	maxFigures     = 6        // of one cell
	maxShown       = 8        // figures that the model sees again at each turn, the newest
)

// drawn is a figure of a cell.
type drawn struct {
	mime          string
	data          []byte
	width, height int
}

// pictures are the types that models accept, best first.
var pictures = []string{"image/png", "image/jpeg"}

// decodeFigure decodes a picture of a result and makes it small enough to be
// shown. What it is given comes from the sandbox.
func decodeFigure(mime, text string) (drawn, error) {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return drawn{}, errors.New("it is not base64")
	}
	size, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || "image/"+format != mime {
		return drawn{}, fmt.Errorf("it is no %s", strings.TrimPrefix(mime, "image/"))
	}
	if size.Width < 1 || size.Height < 1 || size.Width > maxPixels/size.Height {
		return drawn{}, fmt.Errorf("it has %d×%d pixels, which is too much to look at", size.Width, size.Height)
	}
	d := drawn{mime, data, size.Width, size.Height}
	if max(d.width, d.height) <= maxSide && len(data) <= maxFigureBytes {
		return d, nil
	}
	full, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return drawn{}, errors.New("it cannot be decoded")
	}
	for side := maxSide; side >= 64; side = side * 2 / 3 {
		scale := min(1, float64(side)/float64(max(size.Width, size.Height)))
		small := image.NewRGBA(image.Rect(0, 0, max(1, int(float64(size.Width)*scale)), max(1, int(float64(size.Height)*scale))))
		draw.ApproxBiLinear.Scale(small, small.Bounds(), full, full.Bounds(), draw.Src, nil)
		var b bytes.Buffer
		if err := png.Encode(&b, small); err != nil {
			return drawn{}, err
		}
		if b.Len() <= maxFigureBytes {
			return drawn{"image/png", b.Bytes(), small.Bounds().Dx(), small.Bounds().Dy()}, nil
		}
	}
	return drawn{}, errors.New("it cannot be made small enough")
}
