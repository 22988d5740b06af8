package agent

import (
	"maps"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// What notebooks show of what a model or code says. Jupyter loads pictures from
// wherever Markdown and HTML name them, also in notebooks that it does not trust, and
// an address can carry what was read in a sandbox out of it: opening a notebook
// loads nothing.

// tagOrPicture is what begins HTML or a picture in Markdown.
var tagOrPicture = regexp.MustCompile(`<[A-Za-z/!?]|!\[`)

// withoutPictures is Markdown that a model wrote, with HTML and pictures shown as
// they are written. Entities, since a backslash before one changes nothing.
func withoutPictures(words string) string {
	return tagOrPicture.ReplaceAllStringFunc(words, func(s string) string {
		if s == "![" {
			return "!&#91;"
		}
		return "&lt;" + s[1:]
	})
}

// harmless are the representations of a result without what could load something.
// One whose only text is Markdown is shown as text.
func harmless(data map[string]string) map[string]string {
	out := maps.Clone(data)
	if words, ok := out["text/markdown"]; ok {
		delete(out, "text/markdown")
		if out["text/plain"] == "" {
			out["text/plain"] = words
		}
	}
	if source, ok := out["text/html"]; ok && !harmlessHTML(source) {
		delete(out, "text/html")
		if table := plainTable(source); table != "" {
			out["text/html"] = string(table)
		} else if len(out) == 0 {
			out["text/plain"] = source
		}
	}
	return out
}

var (
	harmlessTags = wordSet("table thead tbody tfoot tr th td caption colgroup col div span p b i strong em br hr pre code style ul ol li dl dt dd small sub sup h1 h2 h3 h4 h5 h6")
	// harmlessAttributes are those of tables of data frames, and of text.
	harmlessAttributes = wordSet("class id border scope scoped colspan rowspan align halign type title style")
)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// harmlessHTML tells whether HTML has nothing but text, tables and their looks.
func harmlessHTML(source string) bool {
	z, style := html.NewTokenizer(strings.NewReader(source)), false
	for {
		kind := z.Next()
		t := z.Token()
		switch kind {
		case html.ErrorToken:
			return len(z.Raw()) == 0 // or a tag has no end
		case html.TextToken:
			if style && loads(t.Data) {
				return false
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			style = t.Data == "style"
			if !harmlessTags[t.Data] {
				return false
			}
			for _, a := range t.Attr {
				if !harmlessAttributes[a.Key] || a.Key == "style" && loads(a.Val) {
					return false
				}
			}
		case html.EndTagToken:
			style = false
			if !harmlessTags[t.Data] {
				return false
			}
		default: // comments and the like, which readers read differently
			return false
		}
	}
}

// loads tells whether CSS might load something: by a function, a rule with @, or a
// name that is written with escapes.
func loads(css string) bool {
	return strings.ContainsAny(css, `(@\<`)
}
